"""What every room needs and none owns: errors, the config base class, files, seeds, progress.

It lives here because ``kernels`` is the one room that every other may import.
"""
