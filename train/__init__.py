"""Packed shards -> checkpoints -> merged model."""
