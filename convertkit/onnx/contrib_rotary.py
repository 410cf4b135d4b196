"""ONNX Runtime's RotaryEmbedding as products with rows of its two tables."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.fusion import Fusion


def rotary_embedding(f: Fusion) -> Sequence[ir.Value | None]:
    """Of (batch, places, heads × size) or (batch, heads, places, size); positions are (batch, places) or (1)."""
    if f.whole("is_packed_batching"):
        raise Unsupported("packed batches", subject=f.title)
    x, by_heads = f.input(0), f.rank(f.input(0)) == 4
    width = f.input(2).shape
    if width is None or not isinstance(width[-1], int):
        raise Unsupported("a table of unknown size", subject=f.title)
    turned = 2 * width[-1]
    if not by_heads:
        heads = f.whole("num_heads") if f.whole("rotary_embedding_dim") else -1
        x = f.op("Reshape", x, f.ints(0, 0, heads, -1 if heads > 0 else turned))
    ids = _positions(f, f.input(1), x, 2 if by_heads else 1)
    tables = [f.op("Unsqueeze", f.op("Gather", f.input(place), ids), f.ints(1 if by_heads else 2)) for place in (2, 3)]
    total = None if f.whole("rotary_embedding_dim") else turned
    result = rotated(f, x, tables[0], tables[1], turned, total, interleaved=bool(f.whole("interleaved")))
    return [result if by_heads else f.op("Reshape", result, f.ints(0, 0, -1))]


def _positions(f: Fusion, ids: ir.Value, x: ir.Value, axis: int) -> ir.Value:
    """Given for every place, or as the first one's."""
    shape = ids.shape
    if f.rank(ids) == 2:
        return ids
    if shape is None or shape[0] != 1:
        raise Unsupported("positions that are neither one nor (batch, places)", subject=f.title)
    count = f.op("Squeeze", f.op("Gather", f.op("Shape", x), f.ints(axis)), f.ints(0))
    zero, one = (f.scalar(number) for number in (0, 1))
    return f.op("Unsqueeze", f.op("Add", f.op("Range", zero, count, one), ids), f.ints(0))


def rotated(
    f: Fusion, x: ir.Value, cos: ir.Value, sin: ir.Value, turned: int, total: int | None, *, interleaved: bool
) -> ir.Value:
    """The first ``turned`` of the last axis as pairs, each turned by its angle; the rest as it is.

    Pairs are neighbours (``interleaved``) or one from each half.  ``total`` is the axis' size, where it is known.
    """
    last = [ir.AttrInt64("axis", -1)]
    rest: list[ir.Value] = []
    if total != turned:
        ends = [f.ints(end) for end in (0, turned, 1 << 31)]
        rest = [f.op("Slice", x, ends[1], ends[2], f.ints(-1))]
        x = f.op("Slice", x, ends[0], ends[1], f.ints(-1))
    if interleaved:
        x = f.op("Reshape", x, f.ints(0, 0, 0, turned // 2, 2))
        first, second = (f.op("Gather", x, f.scalar(place), attributes=last) for place in (0, 1))
    else:
        first, second = f.ops("Split", x, attributes=[*last, ir.AttrInt64("num_outputs", 2)], count=2)
    real = f.op("Sub", f.op("Mul", first, cos), f.op("Mul", second, sin))
    imaginary = f.op("Add", f.op("Mul", first, sin), f.op("Mul", second, cos))
    if interleaved:
        parts = [f.op("Unsqueeze", part, f.ints(-1)) for part in (real, imaginary)]
        whole = f.op("Reshape", f.op("Concat", *parts, attributes=last), f.ints(0, 0, 0, turned))
    else:
        whole = f.op("Concat", real, imaginary, attributes=last)
    return f.op("Concat", whole, *rest, attributes=last) if rest else whole
