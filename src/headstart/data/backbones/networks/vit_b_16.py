"""ViT-B/16 (Dosovitskiy et al. 2021): 196 patches of 16×16 and a class token through 12 layers.

The features are the class token after the final layer norm.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_PATCH, _SIDE, _WIDTH, _HIDDEN, _HEADS, _LAYERS = 16, 224, 768, 3072, 12, 12


def build() -> VisionTransformer:
    """Return the torch module with random weights."""
    return VisionTransformer()


class VisionTransformer(nn.Module):
    """ViT-B/16, with the module names of its published weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, _WIDTH, _PATCH, _PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.encoder = Encoder(1 + (_SIDE // _PATCH) ** 2)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(_WIDTH, 1000))
        hook: Any = self.register_load_state_dict_pre_hook
        hook(_rename)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], 1)
        encoded: Tensor = self.encoder(tokens)
        return encoded[:, 0]

    def logits(self, x: Tensor) -> Tensor:
        scores: Tensor = self.heads(self(x))
        return scores


class Encoder(nn.Module):
    """The transformer's blocks and their last normalization."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, _WIDTH).normal_(std=0.02))
        self.layers = nn.Sequential()
        for i in range(_LAYERS):
            self.layers.add_module(f"encoder_layer_{i}", Layer())
        self.ln = _norm()

    def forward(self, x: Tensor) -> Tensor:
        encoded: Tensor = self.ln(self.layers(x + self.pos_embedding))
        return encoded


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.self_attention = _norm(), Attention()
        self.ln_2, self.mlp = _norm(), _mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attention(self.ln_1(x))
        return torch.add(x, self.mlp(self.ln_2(x)))


class Attention(nn.Module):
    """softmax(QKᵀ/√64)V in each of 12 heads; Q, K and V come from one product."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * _WIDTH, _WIDTH))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * _WIDTH))
        self.out_proj = nn.Linear(_WIDTH, _WIDTH)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.shape[1]
        joint = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        split = joint.view(-1, tokens, 3, _HEADS, _WIDTH // _HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(split[0], split[1], split[2])
        out: Tensor = self.out_proj(mixed.transpose(1, 2).reshape(-1, tokens, _WIDTH))
        return out


def _mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(_WIDTH, _HIDDEN),
        nn.GELU(),
        nn.Dropout(0.0),
        nn.Linear(_HIDDEN, _WIDTH),
        nn.Dropout(0.0),
    )


def _norm() -> nn.LayerNorm:
    return nn.LayerNorm(_WIDTH, eps=1e-6)


def _rename(module: nn.Module, state: dict[str, Any], *_: Any) -> None:
    """The published file dates from when the two linear maps of an mlp had names, not positions."""
    for key in [key for key in state if ".mlp.linear_" in key]:
        new = key.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.")
        state[new] = state.pop(key)
