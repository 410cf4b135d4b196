"""ONNX Runtime's GroupQueryAttention: rotary positions, a cache of keys and values, products by group of heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.contrib_attention import by_heads, size_along, upto
from convertkit.onnx.contrib_rotary import rotated
from convertkit.onnx.fusion import Fusion

_MASKED = float(np.finfo(np.float32).min)
_NOT_HERE = {
    12: "a quantized cache", 13: "a quantized cache", 14: "norms of queries and keys", 15: "norms of queries and keys",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Places:
    """int64: ``old`` (batch) counts the places before the new ones, ``new`` (1) the new ones, ``all`` (1) both."""

    old: ir.Value
    new: ir.Value
    all: ir.Value


def grouped_query_attention(f: Fusion) -> Sequence[ir.Value | None]:
    """The mixed values, and all keys and values as (batch, heads of these, places, size).

    Every sample of the batch may have a past of its own length: its new keys stand right behind that.
    """
    for place, what in _NOT_HERE.items():
        if f.given(place) is not None:
            raise Unsupported(what, subject=f.title)
    if f.whole("sliding_window_cache"):
        raise Unsupported("a cache that evicts", subject=f.title)
    heads, groups = f.whole("num_heads"), f.whole("kv_num_heads")
    parts, size = _parts(f, heads, groups)
    query, key, value = (by_heads(f, part, count) for part, count in zip(parts, (heads, groups, groups), strict=True))
    places = _counted(f, query)
    if f.whole("do_rotary"):
        query, key = _turned(f, query, key, places, size)
    keys, values = (_cached(f, f.given(place), part, places) for place, part in ((3, key), (4, value)))
    members = f.ints(0, groups, -1, size)
    scores = f.op("MatMul", f.op("Reshape", query, members), _exchanged(f, keys, (0, 1, 3, 2)))
    shares = _shares(f, _masked(f, _weighed(f, scores, places, size), places), heads)
    mixed = f.op("MatMul", _grouped(f, shares, groups), values)
    split = f.op("Reshape", mixed, f.op("Concat", f.ints(0, heads), places.new, f.ints(size), attributes=_axis(0)))
    ordered = _exchanged(f, split)
    return [f.op("Reshape", ordered, f.ints(0, 0, -1)), keys, values, None]


def _axis(axis: int) -> list[ir.Attr]:
    return [ir.AttrInt64("axis", axis)]


def _parts(f: Fusion, heads: int, groups: int) -> tuple[list[ir.Value], int]:
    """Queries, keys and values as (batch, places, heads × size), and the size of a head."""
    first, second, third = f.input(0), f.given(1), f.given(2)
    width = None if first.shape is None else first.shape[-1]
    if not isinstance(width, int):
        raise Unsupported("queries of unknown size", subject=f.title)
    if second is not None and third is not None:
        return [first, second, third], width // heads
    size = width // (heads + 2 * groups)
    sizes = f.ints(heads * size, groups * size, groups * size)
    return f.ops("Split", first, sizes, attributes=_axis(-1), count=3), size


def _counted(f: Fusion, query: ir.Value) -> _Places:
    """A prompt's lengths may be shorter than its places: it starts at the first one all the same."""
    new = size_along(f, query, 2)
    lengths = f.op("Reshape", _whole(f, f.input(5)), f.ints(-1))
    old = f.op("Max", f.op("Sub", f.op("Add", lengths, f.ints(1)), new), f.ints(0))
    total = f.op("Reshape", _whole(f, f.input(6)), f.ints(1))
    past = f.given(3)
    return _Places(old, new, new if past is None else f.op("Max", total, size_along(f, past, 2)))


def _turned(f: Fusion, query: ir.Value, key: ir.Value, places: _Places, size: int) -> tuple[ir.Value, ir.Value]:
    table = f.input(7).shape
    if table is None or not isinstance(table[-1], int):
        raise Unsupported("a table of unknown size", subject=f.title)
    given = f.given(9)
    ids = f.op("Add", _column(f, places.old, 1), upto(f, places.new)) if given is None else given
    cos, sin = (f.op("Unsqueeze", f.op("Gather", f.input(place), ids), f.ints(1)) for place in (7, 8))
    pairs = bool(f.whole("rotary_interleaved"))
    one, other = (rotated(f, x, cos, sin, 2 * table[-1], size, interleaved=pairs) for x in (query, key))
    return one, other


def _cached(f: Fusion, past: ir.Value | None, new: ir.Value, places: _Places) -> ir.Value:
    """Old rows, then new ones, then zeros; each sample has its own number of old ones."""
    if past is None:
        return new
    room = size_along(f, past, 2)
    rows = f.op("Concat", past, new, attributes=_axis(2))
    place, old = f.op("Unsqueeze", upto(f, places.all), f.ints(0)), _column(f, places.old, 1)
    behind = f.op("Add", f.op("Sub", place, old), room)
    last = f.op("Sub", f.op("Add", room, places.new), f.ints(1))
    index = f.op("Where", f.op("Less", place, old), place, f.op("Min", behind, last))
    by_row = _exchanged(f, rows)
    chosen = f.op("GatherND", by_row, _column(f, index, 2), attributes=[ir.AttrInt64("batch_dims", 1)])
    present = _exchanged(f, chosen)
    known = f.op("Less", place, f.op("Add", old, places.new))
    return f.op("Where", f.op("Unsqueeze", known, f.ints(1, 3)), present, f.number(0.0))


def _weighed(f: Fusion, scores: ir.Value, places: _Places, size: int) -> ir.Value:
    """Scores as (batch, heads, new places, all places), scaled, softly capped and with their bias."""
    scale = f.real("scale", 0.0) or 1 / math.sqrt(size)
    heads = f.ints(f.whole("num_heads"))
    shape = f.op("Concat", f.ints(0), heads, places.new, f.ints(-1), attributes=_axis(0))
    scores = f.op("Reshape", f.op("Mul", scores, f.number(scale)), shape)
    cap = f.real("softcap", 0.0)
    if cap > 0:
        scores = f.op("Mul", f.op("Tanh", f.op("Div", scores, f.number(cap))), f.number(cap))
    bias = f.given(10)
    if bias is None:
        return scores
    missing = f.op("Sub", places.all, size_along(f, bias, 3))  # a cache may be longer than what the bias knows of
    pads = f.op("Concat", f.ints(0, 0, 0, 0, 0, 0, 0), missing, attributes=_axis(0))
    return f.op("Add", scores, f.op("Pad", bias, pads))


def _masked(f: Fusion, scores: ir.Value, places: _Places) -> ir.Value:
    """No key behind its query, none further back than the window."""
    new = f.op("Unsqueeze", upto(f, places.new), f.ints(0))
    now = f.op("Unsqueeze", f.op("Add", new, _column(f, places.old, 1)), f.ints(2))
    place = f.op("Unsqueeze", upto(f, places.all), f.ints(0, 1))
    if f.whole("causal", 1):
        allowed = f.op("LessOrEqual", place, now)
    else:
        ends = f.op("Add", _column(f, places.old, 1), places.new)
        allowed = f.op("Less", place, f.op("Unsqueeze", ends, f.ints(2)))
    window = f.whole("local_window_size", -1)
    if window > 0:
        allowed = f.op("And", allowed, f.op("Greater", place, f.op("Sub", now, f.ints(window))))
    return f.op("Where", f.op("Unsqueeze", allowed, f.ints(1)), scores, f.number(_MASKED))


def _shares(f: Fusion, scores: ir.Value, heads: int) -> ir.Value:
    """Softmax; a sink takes its share of every row and adds nothing."""
    sink = f.given(11)
    if sink is None and f.whole("smooth_softmax") != 1:
        return f.op("Softmax", scores, attributes=_axis(-1))
    level = f.op("Reshape", sink, f.ints(1, heads, 1, 1)) if sink is not None else f.number(0.0)
    first = f.op("Slice", scores, f.ints(0), f.ints(1), f.ints(3))
    column = f.op("Add", f.op("Mul", first, f.number(0.0)), level)
    shares = f.op("Softmax", f.op("Concat", scores, column, attributes=_axis(3)), attributes=_axis(-1))
    return f.op("Slice", shares, f.ints(0), f.ints(-1), f.ints(3))


def _grouped(f: Fusion, shares: ir.Value, groups: int) -> ir.Value:
    """(batch, groups, members × new places, all places)."""
    last = size_along(f, shares, 3)
    shape = f.op("Concat", f.ints(0, groups, -1), last, attributes=_axis(0))
    return f.op("Reshape", shares, shape)


def _exchanged(f: Fusion, x: ir.Value, perm: tuple[int, ...] = (0, 2, 1, 3)) -> ir.Value:
    return f.op("Transpose", x, attributes=[ir.AttrInt64s("perm", list(perm))])


def _column(f: Fusion, x: ir.Value, axis: int) -> ir.Value:
    return f.op("Unsqueeze", x, f.ints(axis))


def _whole(f: Fusion, x: ir.Value) -> ir.Value:
    return f.op("Cast", x, attributes=[ir.AttrInt64("to", int(ir.DataType.INT64))])
