"""Raw text -> clean, deduplicated, scored, split, tokenised, mixed, ordered and packed."""
