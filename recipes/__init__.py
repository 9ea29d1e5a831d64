"""Recipes (YAML) and the runner that turns one into a released model."""
