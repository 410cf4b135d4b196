"""Operators that move numbers, and those that look rows up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.mxnet.attributes import Attributes
from convertkit.errors import Unsupported

DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8")


def _reshape(a: Attributes, x: Array) -> Array:
    a.refuse("reverse", "False", "0", "false")
    return x.reshape(reshaped(a.ints("shape"), x.shape))


def reshaped(codes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes by MXNet's codes: 0 keeps one, -1 infers, -2 keeps the rest, -3 joins two, -4 splits one."""
    found: list[int] = []
    place, code = 0, 0
    while code < len(codes):
        each = codes[code]
        if each == -2:
            found += shape[place:]
            place = len(shape)
        elif each == -3:
            found.append(shape[place] * shape[place + 1])
            place += 2
        elif each == -4:
            first, second = codes[code + 1], codes[code + 2]
            whole = shape[place]
            found += [whole // second if first == -1 else first, whole // first if second == -1 else second]
            place, code = place + 1, code + 2
        else:
            found.append(shape[place] if each == 0 else each)
            place += 1
        code += 1
    return tuple(found)


def _flatten(a: Attributes, x: Array) -> Array:
    return x.reshape(len(x), prod(x.shape[1:]))


def _transpose(a: Attributes, x: Array) -> Array:
    return x.transpose(a.ints("axes") or None)


def _swap(a: Attributes, x: Array) -> Array:
    return x.swapaxes(a.whole("dim1", 0), a.whole("dim2", 0))


def _expand_dims(a: Attributes, x: Array) -> Array:
    return np.expand_dims(x, a.whole("axis"))


def _squeeze(a: Attributes, x: Array) -> Array:
    found = np.squeeze(x, a.ints("axis") or None)
    return found.reshape(1) if found.ndim == 0 else found


def _split(a: Attributes, x: Array) -> tuple[Array, ...]:
    axis = a.whole("axis", 1)
    parts = np.split(x, a.whole("num_outputs"), axis)
    return tuple(np.squeeze(part, axis) for part in parts) if a.flag("squeeze_axis") else tuple(parts)


def _slice(a: Attributes, x: Array) -> Array:
    steps = a.bounds("step") or (None,) * x.ndim
    return x[tuple(slice(*each) for each in zip(a.bounds("begin"), a.bounds("end"), steps))]


def _slice_axis(a: Attributes, x: Array) -> Array:
    axis = a.whole("axis") % x.ndim
    return x[(slice(None),) * axis + (slice(a.whole("begin"), a.maybe("end")),)]


def _concat(a: Attributes, *xs: Array) -> Array:
    return np.concatenate(xs, a.whole("dim", 1))


def _stack(a: Attributes, *xs: Array) -> Array:
    return np.stack(xs, a.whole("axis", 0))


def _tile(a: Attributes, x: Array) -> Array:
    return np.tile(x, a.ints("reps"))


def _reverse(a: Attributes, x: Array) -> Array:
    return np.flip(x, a.ints("axis"))


def _pad(a: Attributes, x: Array) -> Array:
    widths = a.ints("pad_width")
    pairs = list(zip(widths[::2], widths[1::2]))
    mode, value = a.word("mode", "constant"), a.real("constant_value", 0.0)
    return np.pad(x, pairs, constant_values=value) if mode == "constant" else np.pad(x, pairs, mode)  # type: ignore[call-overload]


def _cast(a: Attributes, x: Array) -> Array:
    """Numbers stay float64 here; a cast to integers cuts what is behind the point."""
    kind = a.word("dtype", "float32")
    if kind not in DTYPES:
        raise Unsupported(f"dtype={kind}", subject=a.title)
    return np.trunc(x) if "int" in kind else x


def _embedding(a: Attributes, ids: Array, weight: Array) -> Array:
    """Ids outside of the table count as its first or last row."""
    a.whole("input_dim")
    a.whole("output_dim")
    a.refuse("dtype", "float32")
    return np.asarray(weight[np.clip(ids.astype(np.int64), 0, len(weight) - 1)])


def _take(a: Attributes, x: Array, ids: Array) -> Array:
    a.refuse("mode", "clip")
    axis = a.whole("axis", 0)
    return np.take(x, np.clip(ids.astype(np.int64), 0, x.shape[axis] - 1), axis)


def _zeros(a: Attributes) -> Array:
    """A size of 0 is one that MXNet finds out: 1 stands for it, as for all that broadcasts."""
    a.refuse("dtype", "float32", "None")
    return np.zeros(tuple(size or 1 for size in a.ints("shape")))


def _sequence_last(a: Attributes, x: Array) -> Array:
    a.refuse("use_sequence_length", "False", "0", "false")
    return np.asarray(np.take(x, -1, a.whole("axis", 0)))


def _sequence_reverse(a: Attributes, x: Array) -> Array:
    a.refuse("use_sequence_length", "False", "0", "false")
    return np.flip(x, a.whole("axis", 0))


MOVES: Mapping[str, Callable[..., Array | tuple[Array, ...]]] = {
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
