"""Studies: variants of a recipe, several seeds of each, compared in pairs."""
