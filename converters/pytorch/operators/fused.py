"""Operators that only traces hold, written out in those that the exporter knows.

Semantics: aten/src/ATen/native/transformers/transformer.cpp and attention.cpp; Convolution.cpp beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from convertkit.errors import Unsupported

_BEFORE_MASK = 17
"""Arguments of an encoder layer between what it encodes and the mask."""
_SOURCE_MASK, _PADDING_MASK, _MERGED_MASK = 0, 1, 2


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
    """``aten::_transformer_encoder_layer_fwd``: attention and feed-forward, each with a residual and a norm."""

    def attend(x: Tensor) -> Tensor:
        q, k, v = _projected(x, x, x, qkv_weight, qkv_bias)
        return functional.linear(_attended(q, k, v, num_heads, mask, mask_type), proj_weight, proj_bias)

    def feed_forward(x: Tensor) -> Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        active = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(active, ffn_weight_2, ffn_bias_2)

    def norm_1(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attend(src))
    return norm_2(x + feed_forward(x))


def multi_head_attention(
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
) -> tuple[Tensor, Tensor | None]:
    """``aten::_native_multi_head_attention``, batch first; the weights only where they are asked for."""
    q, k, v = _projected(query, key, value, qkv_weight, qkv_bias)
    out = functional.linear(_attended(q, k, v, num_head, mask, mask_type), proj_weight, proj_bias)
    if not need_weights:
        return out, None
    weights = _weights(_heads(q, num_head), _heads(k, num_head), mask, mask_type)
    return out, weights.mean(1) if average_attn_weights else weights


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *backend: bool,
) -> Tensor:
    """``aten::_convolution``: a convolution with flags of the backend that it was traced on."""
    return torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _projected(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    if query is key and key is value:
        q, k, v = functional.linear(query, weight, bias).chunk(3, -1)
        return q, k, v
    weights, biases = weight.chunk(3), bias.chunk(3)
    q, k, v = (functional.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _heads(x: Tensor, count: int) -> Tensor:
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).transpose(1, 2)


def _attended(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Tensor | None, mask_type: int | None) -> Tensor:
    q, k, v = _heads(q, heads), _heads(k, heads), _heads(v, heads)
    plain = mask is None
    mixed = functional.scaled_dot_product_attention(q, k, v) if plain else _weights(q, k, mask, mask_type) @ v
    return mixed.transpose(1, 2).flatten(2)


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, mask_type: int | None) -> Tensor:
    """Attention weights by head; not a number where a mask hides every key, as in the kernels."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    allowed = _allowed(mask, mask_type)
    if allowed is not None:
        scores = scores.masked_fill(torch.logical_not(allowed), float("-inf"))
    return torch.softmax(scores, -1)


def _allowed(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """Where attention may look; the kernels' masks say where it may not, as bool or as 0 and -inf."""
    if mask is None:
        return None
    allowed = torch.logical_not(mask.to(torch.bool))
    if mask_type == _PADDING_MASK:
        return allowed[:, None, None, :]
    if mask_type in (_SOURCE_MASK, _MERGED_MASK):
        return allowed
    raise Unsupported(f"an attention mask of type {mask_type}")


@dataclass(frozen=True, slots=True)
class Nested:
    """Sequences of several lengths, padded to the longest; ``kept`` says which rows are theirs."""

    padded: Tensor
    kept: Tensor


def nested_from_mask(padded: Tensor, mask: Tensor, mask_check: bool = True) -> Nested:
    """``aten::_nested_tensor_from_mask``: of every sample as many rows from its first on as its mask counts."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return Nested(padded, places < mask.sum(1, keepdim=True))


def left_aligned(padded: Tensor, mask: Tensor) -> bool:
    """``aten::_nested_tensor_from_mask_left_aligned``, upon which a script chooses between nested and padded."""
    raise Unsupported(
        "the data decide whether sequences are nested",
        ways_out=("enable_nested_tensor=False for nn.TransformerEncoder: only what lies in the padding differs",),
    )


def padded_again(nested: Nested, padding: float, size: Sequence[int] | None = None) -> Tensor:
    """``aten::to_padded_tensor``, at the size that the sequences had before."""
    return nested.padded.masked_fill(torch.logical_not(nested.kept).unsqueeze(-1), padding)


def any_encoder_layer(src: Tensor | Nested, *rest: Any) -> Tensor | Nested:
    """``aten::_transformer_encoder_layer_fwd``, for nested sequences, too: none of them sees what pads it."""
    if not isinstance(src, Nested):
        return encoder_layer(src, *rest)
    if any(each is not None for each in rest[_BEFORE_MASK:]):
        raise Unsupported("a mask over nested sequences")
    encoded: Callable[..., Tensor] = encoder_layer
    hidden = torch.logical_not(src.kept)
    return Nested(encoded(src.padded, *rest[:_BEFORE_MASK], hidden, _PADDING_MASK), src.kept)


FUSED: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "aten::_convolution": convolution,
        "aten::_nested_tensor_from_mask": nested_from_mask,
        "aten::_nested_tensor_from_mask_left_aligned": left_aligned,
        "aten::_transformer_encoder_layer_fwd": any_encoder_layer,
        "aten::to_padded_tensor": padded_again,
        "aten::nested_to_padded_tensor": padded_again,
        "aten::_native_multi_head_attention": multi_head_attention,
    }
)
