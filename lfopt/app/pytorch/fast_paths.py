"""Kernels of `torch.nn.TransformerEncoderLayer` and `MultiheadAttention`, in operators of torch.onnx.

The two call them in inference. Source: schemas in torch/_meta_registrations.py, masks in `merge_masks` of
torch/nn/modules/activation.py (PyTorch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, relu, scaled_dot_product_attention

PADDING = 1  # mask type: [batch, keys]; others can be broadcast to [batch, heads, queries, keys]


def _attended(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """Mask of the keys that a query sees, to be broadcast to [batch, heads, queries, keys].

    The kernel's mask has the keys that it does not see.
    """
    if mask is None:
        return None
    seen = mask.to(torch.bool).logical_not()
    if mask_type == PADDING:
        return seen[:, None, None, :]
    return seen


def _heads(x: Tensor, weight: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys, values: [batch, heads, tokens, width of a head] each."""
    q, k, v = linear(x, weight, bias).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    return q, k, v


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """A layer of an encoder: [batch, tokens, embed_dim] -> the same."""

    def norm_1(x: Tensor) -> Tensor:
        return layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attention(x: Tensor) -> Tensor:
        q, k, v = _heads(x, qkv_weight, qkv_bias, num_heads)
        heads = scaled_dot_product_attention(q, k, v, attn_mask=_attended(mask, mask_type))
        return linear(heads.transpose(1, 2).flatten(-2), proj_weight, proj_bias)

    def feed_forward(x: Tensor) -> Tensor:
        wide = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(wide) if use_gelu else relu(wide), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attention(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attention(src))
    return norm_2(x + feed_forward(x))


def self_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention on [batch, tokens, embed_dim]; and its weights, [batch, queries, keys].

    [batch, heads, queries, keys] unless averaged over heads, (0,) where they are not needed. The kernel is
    called where query, key and value are the same.
    """
    q, k, v = _heads(query, qkv_weight, qkv_bias, num_head)
    seen = _attended(mask, mask_type)
    if not need_weights:
        heads = scaled_dot_product_attention(q, k, v, attn_mask=seen)
        weights = query.new_empty(0)
    else:
        scores = (q @ k.transpose(-1, -2)) * (embed_dim // num_head) ** -0.5
        weights = (scores if seen is None else scores.masked_fill(seen.logical_not(), float("-inf"))).softmax(
            -1
        )
        heads = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    return linear(heads.transpose(1, 2).flatten(-2), proj_weight, proj_bias), weights


FAST_PATHS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,  # noqa: SLF001
    torch.ops.aten._native_multi_head_attention.default: self_attention,  # noqa: SLF001
}
