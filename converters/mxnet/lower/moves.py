"""Operators that move numbers, and those that look rows up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.converters.mxnet.evaluate.moves import DTYPES
from convertkit.converters.mxnet.lower.site import Site

_END = int(np.iinfo(np.int64).max)


def _reshape(s: Site) -> ir.Value:
    """Codes that ONNX has, too, as they are; else sizes are taken from the operand's shape."""
    codes = s.attributes.ints("shape")
    if all(code >= -1 for code in codes):
        return s.op("Reshape", s.values[0], s.tape.ints(*codes))
    shape, parts, place, code = s.op("Shape", s.values[0]), list[ir.Value](), 0, 0
    while code < len(codes):
        each = codes[code]
        if each == -2:
            parts.append(s.op("Slice", shape, s.tape.ints(place), s.tape.ints(_END)))
            place = s.rank
        elif each == -3:
            two = (s.op("Gather", shape, s.tape.ints(place + more)) for more in (0, 1))
            parts.append(s.op("Mul", *two))
            place += 2
        elif each == -4:
            parts += _halves(s, s.op("Gather", shape, s.tape.ints(place)), codes[code + 1 : code + 3])
            place, code = place + 1, code + 2
        else:
            parts.append(s.op("Gather", shape, s.tape.ints(place)) if each == 0 else s.tape.ints(each))
            place += 1
        code += 1
    return s.op("Reshape", s.values[0], s.op("Concat", *parts, axis=0))


def _halves(s: Site, whole: ir.Value, sizes: tuple[int, ...]) -> list[ir.Value]:
    if len(sizes) != 2 or sizes == (-1, -1) or 0 in sizes:
        raise s.refused("a split of one axis into sizes that are not told")
    known = s.tape.ints(max(sizes))
    other = s.op("Div", whole, known)
    if -1 not in sizes:
        return [s.tape.ints(size) for size in sizes]
    return [other, known] if sizes[0] == -1 else [known, other]


def _flatten(s: Site) -> ir.Value:
    return s.op("Flatten", s.values[0], axis=1)


def _transpose(s: Site) -> ir.Value:
    return s.op("Transpose", s.values[0], perm=list(s.attributes.ints("axes") or range(s.rank - 1, -1, -1)))


def _swap(s: Site) -> ir.Value:
    order = list(range(s.rank))
    one, other = s.attributes.whole("dim1", 0), s.attributes.whole("dim2", 0)
    order[one], order[other] = order[other], order[one]
    return s.op("Transpose", s.values[0], perm=order)


def _expand_dims(s: Site) -> ir.Value:
    return s.op("Unsqueeze", s.values[0], s.tape.ints(s.attributes.whole("axis")))


def _squeeze(s: Site) -> ir.Value:
    axes = s.attributes.ints("axis")
    if not axes:
        raise s.refused("all axes of one element, which depend on the sizes")
    return s.op("Squeeze", s.values[0], s.tape.ints(*axes))


def _split(s: Site) -> list[ir.Value]:
    axis, count = s.attributes.whole("axis", 1), s.attributes.whole("num_outputs")
    if not 1 <= count <= 4096:
        raise s.refused(f"{count} parts")
    parts = list(s.tape.ops("Split", s.values[0], count=count, axis=axis, num_outputs=count))
    if s.attributes.flag("squeeze_axis"):
        parts = [s.op("Squeeze", part, s.tape.ints(axis)) for part in parts]
    return parts


def _slice(s: Site) -> ir.Value:
    begin, end = s.attributes.bounds("begin"), s.attributes.bounds("end")
    steps = s.attributes.bounds("step") or (None,) * len(begin)
    if any(step is not None and step < 1 for step in steps):
        raise s.refused("steps backwards")
    starts = s.tape.ints(*(each or 0 for each in begin))
    ends = s.tape.ints(*(_END if each is None else each for each in end))
    return s.op(
        "Slice", s.values[0], starts, ends, s.tape.ints(*range(len(begin))), s.tape.ints(*(x or 1 for x in steps))
    )


def _slice_axis(s: Site) -> ir.Value:
    a, last = s.attributes, s.attributes.maybe("end")
    bounds = s.tape.ints(a.whole("begin")), s.tape.ints(_END if last is None else last)
    return s.op("Slice", s.values[0], *bounds, s.tape.ints(a.whole("axis")))


def _concat(s: Site) -> ir.Value:
    return s.op("Concat", *s.values, axis=s.attributes.whole("dim", 1))


def _stack(s: Site) -> ir.Value:
    axis = s.attributes.whole("axis", 0)
    return s.op("Concat", *(s.op("Unsqueeze", x, s.tape.ints(axis)) for x in s.values), axis=axis)


def _tile(s: Site) -> ir.Value:
    reps = s.attributes.ints("reps")
    if len(reps) > s.rank:
        raise s.refused("more repetitions than axes")
    return s.op("Tile", s.values[0], s.tape.ints(*[1] * (s.rank - len(reps)), *reps))


def _reverse(s: Site) -> ir.Value:
    return _turned_around(s, s.attributes.ints("axis"))


def _turned_around(s: Site, axes: tuple[int, ...]) -> ir.Value:
    ends = (s.tape.ints(*[number] * len(axes)) for number in (-1, -_END))
    return s.op("Slice", s.values[0], *ends, s.tape.ints(*axes), s.tape.ints(*[-1] * len(axes)))


def _pad(s: Site) -> ir.Value:
    widths = s.attributes.ints("pad_width")
    pads = s.tape.ints(*widths[::2], *widths[1::2])
    mode, number = s.attributes.word("mode", "constant"), s.attributes.real("constant_value", 0.0)
    if mode not in ("constant", "edge", "reflect"):
        raise s.refused(f"mode={mode}")
    if mode == "constant":
        return s.op("Pad", s.values[0], pads, s.tape.number(number), mode=mode)
    return s.op("Pad", s.values[0], pads, mode=mode)


def _cast(s: Site) -> ir.Value:
    """Between floats the graph stays at float32; of integers what is behind the point is cut."""
    kind = s.attributes.word("dtype", "float32")
    if kind not in DTYPES or kind in ("float16", "int8", "uint8"):
        raise s.refused(f"dtype={kind}")
    if "int" not in kind:
        return s.op("Identity", s.values[0])
    return s.op("Cast", s.op("Cast", s.values[0], to=int(ir.DataType.INT64)), to=int(ir.DataType.FLOAT))


def _embedding(s: Site) -> ir.Value:
    ids, table = s.values
    return s.op("Gather", table, _clipped(s, ids, s.shapes[1][0]), axis=0)


def _take(s: Site) -> ir.Value:
    axis = s.attributes.whole("axis", 0)
    if s.constants[0] is None:
        raise s.refused("rows of a computed table")
    return s.op("Gather", s.values[0], _clipped(s, s.values[1], s.shapes[0][axis]), axis=axis)


def _clipped(s: Site, ids: ir.Value, count: int) -> ir.Value:
    whole = s.op("Cast", ids, to=int(ir.DataType.INT64))
    return s.op("Min", s.op("Max", whole, s.tape.whole(0)), s.tape.whole(count - 1))


def _zeros(s: Site) -> ir.Value:
    shape = tuple(size or 1 for size in s.attributes.ints("shape"))
    return s.tape.weight(np.zeros(shape, np.float32), f"{s.tape.place}/zeros")


def _sequence_last(s: Site) -> ir.Value:
    return s.op("Gather", s.values[0], s.tape.whole(-1), axis=s.attributes.whole("axis", 0))


def _sequence_reverse(s: Site) -> ir.Value:
    return _turned_around(s, (s.attributes.whole("axis", 0),))


MOVES: Mapping[str, Callable[[Site], ir.Value | list[ir.Value]]] = {
    "Reshape": _reshape,
    "reshape": _reshape,
    "Flatten": _flatten,
    "flatten": _flatten,
    "transpose": _transpose,
    "SwapAxis": _swap,
    "swapaxes": _swap,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "SliceChannel": _split,
    "split": _split,
    "slice": _slice,
    "slice_axis": _slice_axis,
    "Concat": _concat,
    "concat": _concat,
    "_rnn_param_concat": _concat,
    "stack": _stack,
    "tile": _tile,
    "reverse": _reverse,
    "flip": _reverse,
    "Pad": _pad,
    "pad": _pad,
    "Cast": _cast,
    "cast": _cast,
    "Embedding": _embedding,
    "take": _take,
    "_zeros": _zeros,
    "SequenceLast": _sequence_last,
    "SequenceReverse": _sequence_reverse,
}
