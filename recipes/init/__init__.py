"""`gristmill init`: look at a folder of text, guess what it is, and write a recipe for it that runs."""
