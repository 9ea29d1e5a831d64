"""Shipped studies, found by name: `gristmill study curriculum`."""
