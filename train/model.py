"""The decoder of PCMind-2.1-Kaiyuan-2B: Qwen3's block with sandwich norm and soft-capped logits.

Per block: x += N(Attention(N(x))); x += N(MLP(N(x))). N is RMSNorm; the outer N acts on what the branch adds,
before the addition. Queries and keys are normalised per head before RoPE; the MLP is SwiGLU; the final logits
are c tanh(z / c). Sources: arXiv 2512.07612; placement of the outer norm as in Gemma 2. RMSNorm's eps, the
initial standard deviation and c are not published: the defaults here are ours.

Legend of shape suffixes: B rows, T positions, D hidden size, H query heads, K key/value heads, E head size,
F MLP size, V vocabulary, N tokens.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from gristmill.kernels.common.config import Config
from gristmill.kernels.common.seeds import derive
from gristmill.train.attention import attention, document_mask
from gristmill.train.norm import RMSNorm


class ModelConfig(Config):
    """Shape and stabilisers of the decoder."""

    layers: int = Field(ge=1, le=1024, description="blocks (count)")
    hidden: int = Field(ge=2, description="size of the residual stream (features)")
    mlp: int = Field(ge=1, description="inner size of the SwiGLU MLP (features)")
    heads: int = Field(ge=1, description="query heads (count)")
    kv_heads: int = Field(ge=1, description="key/value heads (count), a divisor of heads")
    head_dim: int | None = Field(None, ge=2, description="size of a head (features, even); default: hidden / heads")
    vocab_size: int | None = Field(
        None, ge=1, description="rows of the embedding (count), at least the tokenizer's; default: just as many"
    )
    norm: Literal["sandwich", "pre"] = Field(
        "sandwich", description="sandwich: also normalise what a branch adds; pre: only what it reads"
    )
    qk_norm: bool = Field(True, description="normalise queries and keys per head before RoPE")
    logit_softcap: float | None = Field(None, gt=0, description="c of c tanh(z / c) on the final logits; null: none")
    rope_theta: float = Field(10000, gt=1, description="base of the rotary wavelengths")
    norm_eps: float = Field(1e-6, gt=0, lt=1, description="added to the mean square in RMSNorm")
    init_std: float = Field(0.02, gt=0, description="standard deviation of initial matrices")
    embed_std: float | None = Field(
        None, gt=0, description="standard deviation of initial embeddings; default: 1, or init_std where tied"
    )
    tie: bool = Field(False, description="use the embedding as the output head")

    @model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads: {self.heads} is not a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(f"hidden: {self.hidden} is not a multiple of heads ({self.heads}); set head_dim")
        if self.head_size % 2:
            raise ValueError(f"head_dim: RoPE rotates pairs, so a head must be even, not {self.head_size}")
        return self

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def embedding_std(self) -> float:
        """A sandwich branch adds a vector of RMS 1 from the start, in which an embedding of 0.02 is lost. With 1 a
        3-layer model on the miniature corpus was 0.04 to 0.4 nats lower in steps 40 to 60 (two seeds)."""
        return self.embed_std or (self.init_std if self.tie else 1.0)


class Attention(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        D, E = config.hidden, config.head_size
        self.q = nn.Linear(D, config.heads * E, bias=False)
        self.k = nn.Linear(D, config.kv_heads * E, bias=False)
        self.v = nn.Linear(D, config.kv_heads * E, bias=False)
        self.o = nn.Linear(config.heads * E, D, bias=False)
        self.q_norm = RMSNorm(E, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(E, config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, x_BTD: Tensor, rope: tuple[Tensor, Tensor], mask_BTT: Tensor) -> Tensor:
        B, T, _ = x_BTD.shape
        q_BTHE = self.q_norm(self.q(x_BTD).view(B, T, self.heads, -1))
        k_BTKE = self.k_norm(self.k(x_BTD).view(B, T, self.kv_heads, -1))
        v_BTKE = self.v(x_BTD).view(B, T, self.kv_heads, -1)
        q_BHTE, k_BKTE = rotate(q_BTHE, rope).transpose(1, 2), rotate(k_BTKE, rope).transpose(1, 2)
        out_BHTE = attention(q_BHTE.contiguous(), k_BKTE.contiguous(), v_BTKE.transpose(1, 2).contiguous(), mask_BTT)
        return self.o(out_BHTE.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate x) * up x)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.mlp, bias=False)
        self.up = nn.Linear(config.hidden, config.mlp, bias=False)
        self.down = nn.Linear(config.mlp, config.hidden, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x_BTD)) * self.up(x_BTD))


class Block(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        D, eps, sandwich = config.hidden, config.norm_eps, config.norm == "sandwich"
        self.attention_norm = RMSNorm(D, eps)
        self.attention = Attention(config)
        self.attention_out_norm = RMSNorm(D, eps) if sandwich else nn.Identity()
        self.mlp_norm = RMSNorm(D, eps)
        self.mlp = MLP(config)
        self.mlp_out_norm = RMSNorm(D, eps) if sandwich else nn.Identity()

    def forward(self, x_BTD: Tensor, rope: tuple[Tensor, Tensor], mask_BTT: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention_out_norm(self.attention(self.attention_norm(x_BTD), rope, mask_BTT))
        return x_BTD + self.mlp_out_norm(self.mlp(self.mlp_norm(x_BTD)))


class Decoder(nn.Module):
    """tokens, segments -> hidden states (``forward``) -> logits (``logits``).

    A token sees the earlier tokens of its own segment only, so what stands beside a document in a row does not
    change a bit of its logits. RoPE positions run over the row: attention depends on their differences alone,
    hence a document's place in its row is immaterial (to rounding).
    """

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embed = nn.Embedding(vocab_size, config.hidden)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.head = None if config.tie else nn.Linear(config.hidden, vocab_size, bias=False)

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """Final-normed hidden states [B, T, D]. ``segments_BT``: document of each token, -1 for padding, contiguous
        within a row; None takes each row as one document."""
        if segments_BT is None:
            segments_BT = torch.zeros_like(tokens_BT)
        mask_BTT = document_mask(segments_BT)
        rope = rotations(tokens_BT.shape[1], self.config.head_size, self.config.rope_theta, tokens_BT.device)
        x_BTD = self.embed(tokens_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD, rope, mask_BTT)
        return self.norm(x_BTD)

    @property
    def head_VD(self) -> Tensor:
        return self.embed.weight if self.head is None else self.head.weight

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        """Soft-capped FP32 logits [..., V] of hidden states; training computes them in chunks (``loss``) instead."""
        return softcap(F.linear(hidden_BTD, self.head_VD).float(), self.config.logit_softcap)


def softcap(z: Tensor, cap: float | None) -> Tensor:
    """cap * tanh(z / cap); z itself where ``cap`` is None."""
    return z if cap is None else cap * torch.tanh(z / cap)


def rotations(length: int, head_size: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin [T, 1, E / 2] of position * theta^(-2i/E) (FP32; arXiv 2104.09864)."""
    rate_e = 1.0 / theta ** (torch.arange(0, head_size, 2, dtype=torch.float, device=device) / head_size)
    angle_T1e = torch.outer(torch.arange(length, dtype=torch.float, device=device), rate_e)[:, None]
    return angle_T1e.cos(), angle_T1e.sin()


def rotate(x_BTHE: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate feature i with feature i + E/2 (the pairing of Llama, Qwen and Gemma checkpoints)."""
    cos, sin = rope
    a, b = x_BTHE.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x_BTHE)


@torch.no_grad()
def initialise(model: Decoder, seed: int) -> Decoder:
    """Matrices from N(0, init_std^2), embeddings from N(0, embedding_std^2), gains 1.

    Each parameter has a generator of its own, seeded by (seed, its name): values depend neither on the order of
    construction nor on what else the model holds.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.fill_(1.0)
        else:
            generator = torch.Generator().manual_seed(derive(seed, name))
            std = model.config.embedding_std if name == "embed.weight" else model.config.init_std
            parameter.copy_(torch.empty(parameter.shape).normal_(0, std, generator=generator))
    return model


def parameter_count(config: ModelConfig, vocab_size: int) -> dict[str, int]:
    """Parameters by kind: ``embedding`` (input and, when untied, output), ``matrices`` of the blocks, ``gains``."""
    count = {"embedding": 0, "matrices": 0, "gains": 0}
    with torch.device("meta"):
        model = Decoder(config, vocab_size)
    for name, parameter in model.named_parameters():
        kind = "gains" if parameter.ndim == 1 else "matrices" if name.startswith("layers.") else "embedding"
        count[kind] += parameter.numel()
    return count


def flops_per_token(config: ModelConfig, vocab_size: int, seq_len: int) -> float:
    """Training FLOPs per token: 6 (N_blocks + V D) + 6 L (H E) T.

    The first term is 2 FLOPs per multiply-add, forward plus twice that backward, for the blocks' matrices and the
    output head (the input embedding is a look-up); the second is causal attention's two products over T / 2 keys
    on average. Document masks make it an upper bound; norms and element-wise work are left out.
    """
    matmul = parameter_count(config, vocab_size)["matrices"] + vocab_size * config.hidden
    return 6.0 * matmul + 6.0 * config.layers * config.heads * config.head_size * seq_len
