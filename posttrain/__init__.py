"""Base model -> what follows pretraining. Today: the generator; SFT, SePT and ReMax stand on it."""
