"""Complex tensors of a frozen graph as two real ones, which tf2onnx takes: spectra of sounds of any length.

ONNX's operators have no complex numbers.  A Fourier transform whose length is known is two products with constant
matrices.  A graph with an operator on complex numbers that has no form here stays as it is.
Imports TensorFlow's graphs, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from convertkit.artifact import Array

Pair = tuple[str, str]
"""The tensors of the real and of the imaginary part."""

_REAL = {tf.complex64: tf.float32, tf.complex128: tf.float64}
_MOVES = frozenset(
    (
        *("Identity", "Transpose", "Reshape", "ExpandDims", "Squeeze", "StridedSlice", "Slice", "GatherV2", "Tile"),
        *("ReverseV2", "BroadcastTo", "ConcatV2", "Pack", "Pad", "Sum", "Mean", "Neg", "Add", "AddV2", "Sub", "AddN"),
    )
)
"""What does the same to both parts."""


_PART = "convertkit_part_"
_LONGEST = 2048
"""Of a transform: its matrices grow with the square of the length."""


class _Unknown(Exception):
    """An operator on complex numbers without a form here."""


def with_pairs(definition: Any) -> Any:
    """The graph without complex numbers; the same graph where it has none, or an operator that has no form."""
    if not any(_is_complex(node) for node in definition.node):
        return definition
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(definition, name="")
    made = tf.compat.v1.GraphDef()
    made.CopyFrom(definition)
    made.ClearField("node")
    try:
        _Writer(graph, made).write()
    except _Unknown:
        return definition
    return made


def _is_complex(node: Any) -> bool:
    return any(value.type in (tf.complex64.as_datatype_enum, tf.complex128.as_datatype_enum)
               for value in node.attr.values())  # fmt: skip


class _Writer:
    """Copies a graph node by node, complex ones as two."""

    def __init__(self, graph: Any, made: Any) -> None:
        self._graph, self._made = graph, made
        self._pairs: dict[str, Pair] = {}
        self._count = 0

    def write(self) -> None:
        """Every operator, in an order in which inputs come first."""
        for op in self._graph.get_operations():
            ends = [*op.inputs, *op.outputs]
            if not any(each.dtype in _REAL for each in ends):
                self._made.node.append(op.node_def)
                continue
            form = _FORMS.get(op.type, _moved if op.type in _MOVES else None)
            is_output = any(each.dtype in _REAL and not each.consumers() for each in op.outputs)
            if form is None or op.control_inputs or is_output:
                raise _Unknown
            result = form(self, op)
            if op.outputs[0].dtype in _REAL:
                if isinstance(result, str):
                    raise _Unknown
                self._pairs[op.outputs[0].name] = result
            elif isinstance(result, str):
                self.node("Identity", [result], name=op.name, T=op.outputs[0].dtype)
            else:
                raise _Unknown

    def pair(self, tensor: Any) -> Pair:
        """The parts of a complex tensor."""
        if tensor.name not in self._pairs:
            raise _Unknown
        return self._pairs[tensor.name]

    def node(self, kind: str, inputs: Sequence[str], *, name: str = "", **attributes: Any) -> str:
        """Add a node; its first output."""
        self._count += 1
        found = self._made.node.add(op=kind, name=name or f"{_PART}{self._count}", input=list(inputs))
        for key, value in attributes.items():
            place = found.attr[key]
            if isinstance(value, tf.DType):
                place.type = value.as_datatype_enum
            elif isinstance(value, bool):
                place.b = value
            elif isinstance(value, int):
                place.i = value
            else:
                place.tensor.CopyFrom(tf.make_tensor_proto(value))
        return str(found.name)

    @property
    def last(self) -> Any:
        """The node that was added last."""
        return self._made.node[-1]

    def constant(self, value: Array) -> str:
        """A constant of the array's type."""
        return self.node("Const", [], dtype=tf.as_dtype(value.dtype), value=value)

    def two(self, kind: str, left: str, right: str, real: Any) -> str:
        """An operator of two real tensors."""
        return self.node(kind, [left, right], T=real)


def _real_of(op: Any) -> Any:
    kinds = [_REAL[each.dtype] for each in (*op.inputs, *op.outputs) if each.dtype in _REAL]
    return kinds[0]


def _moved(w: _Writer, op: Any) -> Pair:
    """Both parts through the same operator."""
    results = []
    for part in (0, 1):
        inputs = [w.pair(each)[part] if each.dtype in _REAL else each.name for each in op.inputs]
        made = w.node(op.type, inputs)
        copied = w.last
        for key, value in op.node_def.attr.items():
            if key.startswith("_"):
                continue
            copied.attr[key].CopyFrom(value)
            kind = tf.as_dtype(value.type) if value.type else None
            if kind in _REAL:
                copied.attr[key].type = _REAL[kind].as_datatype_enum
        results.append(made)
    return results[0], results[1]


def _times(w: _Writer, a: Pair, b: Pair, real: Any, kind: str = "Mul") -> Pair:
    re = w.two("Sub", w.two(kind, a[0], b[0], real), w.two(kind, a[1], b[1], real), real)
    im = w.two("AddV2", w.two(kind, a[0], b[1], real), w.two(kind, a[1], b[0], real), real)
    return re, im


def _power(w: _Writer, a: Pair, real: Any) -> str:
    return w.two("AddV2", w.two("Mul", a[0], a[0], real), w.two("Mul", a[1], a[1], real), real)


def _multiplied(w: _Writer, op: Any) -> Pair:
    return _times(w, w.pair(op.inputs[0]), w.pair(op.inputs[1]), _real_of(op))


def _divided(w: _Writer, op: Any) -> Pair:
    a, b, real = w.pair(op.inputs[0]), w.pair(op.inputs[1]), _real_of(op)
    turned = b[0], w.node("Neg", [b[1]], T=real)
    found, size = _times(w, a, turned, real), _power(w, b, real)
    return w.two("RealDiv", found[0], size, real), w.two("RealDiv", found[1], size, real)


def _squared(w: _Writer, op: Any) -> Pair:
    a = w.pair(op.inputs[0])
    return _times(w, a, a, _real_of(op))


def _conjugated(w: _Writer, op: Any) -> Pair:
    a = w.pair(op.inputs[0])
    return a[0], w.node("Neg", [a[1]], T=_real_of(op))


def _joined(w: _Writer, op: Any) -> Pair:
    return op.inputs[0].name, op.inputs[1].name


def _magnitude(w: _Writer, op: Any) -> str:
    return w.node("Sqrt", [_power(w, w.pair(op.inputs[0]), _real_of(op))], T=_real_of(op))


def _angle(w: _Writer, op: Any) -> str:
    a = w.pair(op.inputs[0])
    return w.two("Atan2", a[1], a[0], _real_of(op))


def _exponential(w: _Writer, op: Any) -> Pair:
    (re, im), real = w.pair(op.inputs[0]), _real_of(op)
    size = w.node("Exp", [re], T=real)
    cosine, sine = (w.two("Mul", size, w.node(kind, [im], T=real), real) for kind in ("Cos", "Sin"))
    return cosine, sine


def _cast(w: _Writer, op: Any) -> str | Pair:
    given, wanted = op.inputs[0], op.outputs[0]
    if given.dtype in _REAL:
        parts = w.pair(given)
        if wanted.dtype not in _REAL:
            return w.node("Cast", [parts[0]], SrcT=_REAL[given.dtype], DstT=wanted.dtype)
        re, im = (w.node("Cast", [each], SrcT=_REAL[given.dtype], DstT=_REAL[wanted.dtype]) for each in parts)
        return re, im
    real = w.node("Cast", [given.name], SrcT=given.dtype, DstT=_REAL[wanted.dtype])
    return real, w.node("ZerosLike", [real], T=_REAL[wanted.dtype])


def _known(w: _Writer, op: Any) -> Pair:
    value = tf.make_ndarray(op.node_def.attr["value"].tensor)
    kind = _REAL[op.outputs[0].dtype].as_numpy_dtype
    return w.constant(value.real.astype(kind)), w.constant(value.imag.astype(kind))


def _length(op: Any) -> int:
    """The length of a transform that a constant says."""
    told = tf.get_static_value(op.inputs[1]) if len(op.inputs) > 1 else op.inputs[0].shape[-1]
    if told is None or op.inputs[0].shape.rank is None:
        raise _Unknown
    length = int(np.reshape(told, -1)[0])
    if length > _LONGEST:
        raise _Unknown
    return length


def _fitted(w: _Writer, part: str, tensor: Any, size: int, real: Any) -> str:
    """The last axis cut or filled with zeros to ``size``."""
    rank, have = tensor.shape.rank, tensor.shape[-1]
    if have == size:
        return part
    amounts = np.zeros((rank, 2), np.int32)
    amounts[-1, 1] = size if have is None else max(size - have, 0)
    padded = w.node("Pad", [part, w.constant(amounts)], T=real, Tpaddings=tf.int32) if amounts.any() else part
    begin, end = np.zeros(rank, np.int32), np.array([*[0] * (rank - 1), size], np.int32)
    ends = [w.constant(each) for each in (begin, end, np.ones(rank, np.int32))]
    mask = 2 ** (rank - 1) - 1
    return w.node(
        "StridedSlice", [padded, *ends], T=real, Index=tf.int32, begin_mask=mask, end_mask=mask,
        ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0,
    )  # fmt: skip


def _product(w: _Writer, part: str, matrix: Array, rank: int, real: Any) -> str:
    """The last axis times a constant matrix."""
    kind = real.as_numpy_dtype
    if rank > 1:
        known = w.constant(matrix.astype(kind))
        return w.node("BatchMatMulV2", [part, known], T=real, adj_x=False, adj_y=False)
    row = w.node("ExpandDims", [part, w.constant(np.array(0, np.int32))], T=real, Tdim=tf.int32)
    made = w.node("MatMul", [row, w.constant(matrix.astype(kind))], T=real, transpose_a=False, transpose_b=False)
    return w.node("Reshape", [made, w.constant(np.array([matrix.shape[1]], np.int32))], T=real, Tshape=tf.int32)


def _waves(rows: int, columns: int, length: int) -> tuple[Array, Array]:
    """Cosines and sines of 2πij / length; sines of whole and half turns are 0, of which the angle of a bin depends."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    sines = np.where(turns * 2 % length, np.sin(turns * (2 * np.pi / length)), 0.0)
    return np.cos(turns * (2 * np.pi / length)), sines


def _spectrum(w: _Writer, op: Any) -> Pair:
    """RFFT: bins up to half the length."""
    length, real, rank = _length(op), _real_of(op), op.inputs[0].shape.rank
    part = _fitted(w, op.inputs[0].name, op.inputs[0], length, real)
    cosines, sines = _waves(length, length // 2 + 1, length)
    return _product(w, part, cosines, rank, real), _product(w, part, 0.0 - sines, rank, real)


def _signal(w: _Writer, op: Any) -> str:
    """IRFFT: every bin but the first and that of half the length stands for two."""
    length, real, rank = _length(op), _real_of(op), op.inputs[0].shape.rank
    bins = length // 2 + 1
    cosines, sines = _waves(bins, length, length)
    share = np.full((bins, 1), 2.0 / length)
    share[0] = 1.0 / length
    if length % 2 == 0:
        share[-1] = 1.0 / length
    re, im = (_fitted(w, part, op.inputs[0], bins, real) for part in w.pair(op.inputs[0]))
    left, right = _product(w, re, cosines * share, rank, real), _product(w, im, sines * share, rank, real)
    return w.two("Sub", left, right, real)


def _turned(w: _Writer, op: Any) -> Pair:
    """FFT and IFFT."""
    length, real, rank = _length(op), _real_of(op), op.inputs[0].shape.rank
    cosines, sines = _waves(length, length, length)
    if op.type == "FFT":
        sines = 0.0 - sines
    else:
        cosines, sines = cosines / length, sines / length
    re, im = w.pair(op.inputs[0])
    times = [[_product(w, part, matrix, rank, real) for matrix in (cosines, sines)] for part in (re, im)]
    return w.two("Sub", times[0][0], times[1][1], real), w.two("AddV2", times[0][1], times[1][0], real)


_FORMS: Mapping[str, Callable[[_Writer, Any], str | Pair]] = {
    "RFFT": _spectrum,
    "IRFFT": _signal,
    "FFT": _turned,
    "IFFT": _turned,
    "Complex": _joined,
    "Real": lambda w, op: w.pair(op.inputs[0])[0],
    "Imag": lambda w, op: w.pair(op.inputs[0])[1],
    "ComplexAbs": _magnitude,
    "Angle": _angle,
    "Conj": _conjugated,
    "Mul": _multiplied,
    "RealDiv": _divided,
    "Square": _squared,
    "Exp": _exponential,
    "Cast": _cast,
    "Const": _known,
}
