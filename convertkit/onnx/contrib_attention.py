"""ONNX Runtime's attention operators as products, a mask and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.fusion import Fusion

_MASKED = -10000.0
"""What ONNX Runtime adds where a mask forbids, unless ``mask_filter_value`` says otherwise."""


def attention(f: Fusion) -> Sequence[ir.Value | None]:
    """``Attention``: one product makes queries, keys and values.

    The past and the second result hold keys and values as (2, batch, heads, places, size).
    """
    if f.given(6) is not None or f.whole("past_present_share_buffer"):
        raise Unsupported("a cache of fixed size", subject=f.title)
    if f.whole("do_rotary"):
        raise Unsupported("rotary positions inside", subject=f.title)
    joined, bias = f.op("MatMul", f.input(0), f.input(1)), f.given(2)
    if bias is not None:
        joined = f.op("Add", joined, bias)
    return attended(f, joined, hidden_sizes(f), (f.given(3), f.given(5), f.given(4)))


_FIRST = (ir.AttrInt64("axis", 0),)


def hidden_sizes(f: Fusion) -> tuple[int, ...]:
    """Sizes of queries, keys and values, all heads together."""
    stated, shape = f.node.attributes.get("qkv_hidden_sizes"), f.input(1).shape
    if stated is not None:
        return tuple(stated.as_ints())
    if shape is None or not isinstance(shape[-1], int):
        raise Unsupported("weights of unknown size", subject=f.title)
    return (shape[-1] // 3,) * 3


def multi_head_attention(f: Fusion) -> Sequence[ir.Value | None]:
    """``MultiHeadAttention``: queries (batch, places, heads × size), keys and values alike, by heads, or packed.

    The second and third result are all keys and values, the given past in front, as (batch, heads, places, size).
    """
    if any(f.given(place) is not None for place in (8, 9)):
        raise Unsupported("a cache of fixed size", subject=f.title)
    shape, heads = f.input(0).shape, f.whole("num_heads")
    if shape is None or not isinstance(shape[-1], int):
        raise Unsupported("queries of unknown size", subject=f.title)
    size = shape[-1] // heads if len(shape) == 3 else shape[-1]
    parts = _with_bias(f, _unpacked(f))
    query, key, value = (
        part if _is_by_heads(f, place) else by_heads(f, part, heads) for place, part in enumerate(parts)
    )
    key, value = (_behind(f, f.given(place), part) for place, part in ((6, key), (7, value)))
    return [by_score(f, (query, key, value), size, f.given(4), f.given(5)), key, value, None]


def _behind(f: Fusion, past: ir.Value | None, part: ir.Value) -> ir.Value:
    return part if past is None else f.op("Concat", past, part, attributes=[ir.AttrInt64("axis", 2)])


def _is_by_heads(f: Fusion, place: int) -> bool:
    given = f.given(place)
    return place > 0 and given is not None and f.rank(given) == 4


def _unpacked(f: Fusion) -> list[ir.Value]:
    """Queries, keys and values; packed ones are (batch, places, heads, 2 or 3, size)."""
    first, second, third = (f.given(place) for place in range(3))
    if first is not None and second is not None and third is not None:
        return [first, second, third]
    packed, count = (f.input(0), 3) if second is None else (second, 2)
    if f.rank(packed) != 5:
        raise Unsupported("keys or values are left out and nothing is packed", subject=f.title)
    attributes = [ir.AttrInt64("axis", 3), ir.AttrInt64("num_outputs", count)]
    parts = f.ops("Split", packed, attributes=attributes, count=count)
    flat = [f.op("Reshape", part, f.ints(0, 0, -1)) for part in parts]
    return flat if second is None else [f.input(0), *flat]


def _with_bias(f: Fusion, parts: list[ir.Value]) -> list[ir.Value]:
    """One vector holds the biases of all three."""
    bias = f.given(3)
    if bias is None:
        return parts
    shape = f.input(0).shape
    if (
        shape is None
        or not isinstance(shape[-1], int)
        or len(shape) != 3
        or any(_is_by_heads(f, place) for place in (1, 2))
    ):
        raise Unsupported("a bias for keys or values that are split or packed", subject=f.title)
    hidden = shape[-1]
    cuts = [(0, hidden), (hidden, 2 * hidden), (2 * hidden, 1 << 31)]
    rows = [f.op("Slice", bias, f.ints(first), f.ints(last), f.ints(0)) for first, last in cuts]
    return [f.op("Add", part, row) for part, row in zip(parts, rows, strict=True)]


def attended(
    f: Fusion, joined: ir.Value, sizes: Sequence[int], given: tuple[ir.Value | None, ir.Value | None, ir.Value | None]
) -> list[ir.Value]:
    """Queries, keys and values, (batch, places, all ``sizes``), as one such result; and keys and values as a past has.

    ``given`` are the mask, what is added to the scores, and the past.
    """
    mask, bias, past = given
    parts = f.ops("Split", joined, f.ints(*sizes), attributes=[ir.AttrInt64("axis", -1)], count=3)
    query, key, value = (by_heads(f, part, f.whole("num_heads")) for part in parts)
    if past is not None:
        old = (f.op("Gather", past, f.scalar(place), attributes=_FIRST) for place in (0, 1))
        key, value = (_behind(f, before, part) for before, part in zip(old, (key, value), strict=True))
    result = by_score(f, (query, key, value), sizes[0] // f.whole("num_heads"), mask, bias)
    return [result, f.op("Concat", *(f.op("Unsqueeze", part, f.ints(0)) for part in (key, value)), attributes=_FIRST)]


def by_score(
    f: Fusion,
    parts: tuple[ir.Value, ir.Value, ir.Value],
    size: int,
    mask: ir.Value | None,
    bias: ir.Value | None,
) -> ir.Value:
    """Queries, keys and values (batch, heads, places, size) as (batch, places, heads × size)."""
    query, key, value = parts
    turned = f.op("Transpose", key, attributes=[ir.AttrInt64s("perm", [0, 1, 3, 2])])
    scale = f.real("scale", 0.0) or 1 / math.sqrt(size)
    scores = f.op("Mul", f.op("MatMul", query, turned), _real(f, scale))
    hidden = None if mask is None else _forbidden(f, mask, scores)
    if f.whole("unidirectional"):
        hidden = f.op("Where", _later(f, scores), _lowest(f), _real(f, 0.0) if hidden is None else hidden)
    if hidden is not None:
        scores = f.op("Add", scores, hidden)
    if bias is not None:
        scores = f.op("Add", scores, bias)
    shares = f.op("Softmax", scores, attributes=[ir.AttrInt64("axis", -1)])
    mixed = f.op("Transpose", f.op("MatMul", shares, value), attributes=[ir.AttrInt64s("perm", [0, 2, 1, 3])])
    return f.op("Reshape", mixed, f.ints(0, 0, -1))


def _real(f: Fusion, value: float) -> ir.Value:
    """A scalar of the type that is computed in, which is float32 where the input is integer."""
    kind = f.input(0).dtype
    if kind is None or not kind.is_floating_point():
        return f.tensor(np.array(value, np.float32))
    return f.number(value)


def by_heads(f: Fusion, x: ir.Value, heads: int) -> ir.Value:
    """(batch, places, heads × size) as (batch, heads, places, size)."""
    split = f.op("Reshape", x, f.ints(0, 0, heads, -1))
    return f.op("Transpose", split, attributes=[ir.AttrInt64s("perm", [0, 2, 1, 3])])


def _forbidden(f: Fusion, mask: ir.Value, scores: ir.Value) -> ir.Value:
    """What is added where a mask (batch, places), (batch, places, places) or one of ends and starts forbids.

    Of integers, any above 0 allows.
    """
    rank = f.rank(mask)
    if rank == 1:
        allowed = _inside(f, mask, scores)
    elif rank in (2, 3):
        allowed = f.op("Greater", _whole(f, mask), f.scalar(0))
    else:
        raise Unsupported(f"a mask of rank {rank}", subject=f.title)
    by_place = f.op("Unsqueeze", allowed, f.ints(1) if rank == 3 else f.ints(1, 2))
    return f.op("Where", by_place, _real(f, 0.0), _real(f, f.real("mask_filter_value", _MASKED)))


def _inside(f: Fusion, mask: ir.Value, scores: ir.Value) -> ir.Value:
    """Which places (batch, places) lie before the ends (batch) in ``mask`` and not before the starts behind them.

    Where the sizes do not tell whether there are starts, zeros stand behind the mask: starts that hide nothing.
    """
    places = upto(f, size_along(f, scores, 3))
    ends, first = _whole(f, mask), f.input(0).shape
    if mask.shape is not None and first is not None and mask.shape[0] == first[0]:
        return f.op("Less", places, f.op("Unsqueeze", ends, f.ints(1)))
    count = size_along(f, f.input(0), 0)
    padded = f.op("Concat", ends, f.op("Expand", f.scalar(0), count), attributes=_FIRST)
    ends, starts = (
        f.op("Unsqueeze", f.op("Slice", padded, first, last, f.ints(0)), f.ints(1))
        for first, last in ((f.ints(0), count), (count, f.op("Add", count, count)))
    )
    return f.op("And", f.op("Less", places, ends), f.op("GreaterOrEqual", places, starts))


def _later(f: Fusion, scores: ir.Value) -> ir.Value:
    """Where (places, places) a key stands behind its query; the last ones stand side by side."""
    queries, keys = (upto(f, size_along(f, scores, axis)) for axis in (2, 3))
    older = f.op("Sub", size_along(f, scores, 3), size_along(f, scores, 2))
    return f.op("Greater", keys, f.op("Unsqueeze", f.op("Add", queries, older), f.ints(1)))


def upto(f: Fusion, count: ir.Value) -> ir.Value:
    """0, 1, … below ``count`` of shape (1)."""
    return f.op("Range", f.scalar(0), f.op("Squeeze", count, f.ints(0)), f.scalar(1))


def _lowest(f: Fusion) -> ir.Value:
    """What ONNX Runtime puts in the place of any mask behind the query: no share, whatever is hidden."""
    kind = f.input(0).dtype
    real = np.float32 if kind is None or not kind.is_floating_point() else kind.numpy()
    return _real(f, float(np.finfo(real).min))


def size_along(f: Fusion, x: ir.Value, axis: int) -> ir.Value:
    """One size, of shape (1)."""
    return f.op("Gather", f.op("Shape", x), f.ints(axis))


def _whole(f: Fusion, x: ir.Value) -> ir.Value:
    return f.op("Cast", x, attributes=[ir.AttrInt64("to", int(ir.DataType.INT64))])
