"""Schema, loader, stage graph, store and command line."""
