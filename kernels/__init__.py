"""Numeric hot spots, each beside a plain reference, and the ground floor every room stands on (``common``)."""
