"""Checkpoint -> scores one can trust."""
