"""A stock language model of random weights, small enough to be run through by every test that needs one."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def llama(vocab_size: int = 50, max_position_embeddings: int = 64, **config) -> LlamaForCausalLM:
    """Always the same weights for the same arguments."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        lengths = {"vocab_size": vocab_size, "max_position_embeddings": max_position_embeddings}
        return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **lengths, **config)).eval()
