"""Which integers an input may hold: what they index, divide by, shift by, count or are compared with tells it.

Generated inputs need it.  Token types of 3 end a model with two of them, and tokens below 4 prove 4 rows of a table.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from convertkit.artifact import Artifact, TensorSpec
from convertkit.onnx.mapped import read_proto
from convertkit.onnx.stored_sizes import SMALL, StoredSizes
from convertkit.onnx.tolerated import as_taken

_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})
_HANDS_ON = frozenset(
    {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Slice", "Expand", "Tile"}
)
_TRIPS = 4
"""Iterations of a loop that an input counts."""
_BEYOND = 2
"""How far generated values reach beyond what they are compared with."""
_FAR = 2.0**31
"""Generated integers stay below, whatever they are compared with."""
_MOST_BYTES = 16
"""Bytes of an element, at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Ask:
    """An operand must lie in ``[low, high)``; ``should_reach`` is where its range ends where nothing bounds it.

    ``from_below`` is where that range begins if below 0.
    """

    place: int
    low: float = -math.inf
    high: float = math.inf
    should_reach: float = -math.inf
    from_below: float = 0.0

    def less(self, shift: float) -> _Ask:
        """The same of what is smaller by ``shift``."""
        below = self.from_below - shift if self.from_below < 0 else 0.0
        return _Ask(self.place, self.low - shift, self.high - shift, self.should_reach - shift, below)


def with_index_bounds(source: Artifact, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """``inputs`` of an ONNX source, integers without a range bounded by what the graph asks of them."""
    found = _ranges(*_asked_of(source, inputs))
    return tuple(
        dataclasses.replace(spec, value_range=found[spec.name]) if spec.name in found else spec for spec in inputs
    )


def held_inputs(source: Artifact, inputs: Sequence[TensorSpec]) -> frozenset[str]:
    """Integers of an ONNX source that index, divide or count: beyond a bound the graph is not defined."""
    graph, names = _asked_of(source, inputs)
    return frozenset(name for name, ask in _every(graph, names) if math.isfinite(ask.low) or math.isfinite(ask.high))


def _asked_of(source: Artifact, inputs: Sequence[TensorSpec]) -> tuple[StoredSizes, Mapping[str, np.iinfo[Any]]]:
    wanted = {spec.name: np.iinfo(spec.dtype) for spec in inputs if _is_open(spec)}
    if source.format != "onnx" or not wanted:
        return StoredSizes(onnx.ModelProto()), {}
    return StoredSizes(
        onnx.inliner.inline_local_functions(as_taken(read_proto(source.path, _MOST_BYTES * SMALL)))
    ), wanted


def _is_open(spec: TensorSpec) -> bool:
    return spec.dtype in _INTEGERS and spec.value_range is None


def _ranges(graph: StoredSizes, names: Mapping[str, np.iinfo[Any]]) -> dict[str, tuple[float, float]]:
    """``[low, high)`` of each input of which the graph says how large it may be, within what its type holds."""
    low, high, reach = dict.fromkeys(names, -math.inf), dict.fromkeys(names, math.inf), dict.fromkeys(names, -math.inf)
    below = dict.fromkeys(names, 0.0)
    for name, ask in _every(graph, names):
        low[name] = max(low[name], ask.low)
        high[name] = min(high[name], ask.high)
        reach[name] = max(reach[name], ask.should_reach)
        below[name] = min(below[name], ask.from_below)
    found = {}
    for name, kind in names.items():
        end = high[name] if math.isfinite(high[name]) else reach[name]
        least, most = max(low[name], below[name], float(kind.min)), min(end, float(kind.max) + 1.0)
        if math.isfinite(end) and most > least:
            found[name] = least, most
    return found


def _every(graph: StoredSizes, names: Collection[str]) -> Iterator[tuple[str, _Ask]]:
    """What operators ask of the inputs of those names, in numbers of the input itself."""
    origin = {name: (name, 0.0) for name in names}
    for node in graph.nodes:
        for ask in _asks(graph, node):
            if ask.place < len(node.input) and node.input[ask.place] in origin:
                name, shift = origin[node.input[ask.place]]
                yield name, ask.less(shift)
        if node.op_type in _HANDS_ON and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        elif (moved := _shifted(graph, node, origin)) is not None:
            origin[node.output[0]] = moved


def _shifted(
    graph: StoredSizes, node: onnx.NodeProto, origin: Mapping[str, tuple[str, float]]
) -> tuple[str, float] | None:
    """Where a constant is added to an input or taken from it: whose value it is, and how much larger."""
    if node.op_type not in ("Add", "Sub") or node.input[0] not in origin:
        return None
    number = graph.constant(node.input[1])
    if number is None or number.size != 1:
        return None
    name, shift = origin[node.input[0]]
    return name, shift + float(number.item()) * (1.0 if node.op_type == "Add" else -1.0)


def _asks(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    rule = _RULES.get(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
    if rule is not None:
        yield from rule(graph, node)


def _axis(node: onnx.NodeProto, name: str = "axis", default: int = 0) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def _embeds(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Words, segments and positions, each a row of a table of its own; and a mask of 0 and 1."""
    for place, table in ((0, 2), (1, 4), (8, 3)):
        rows = graph.sizes(node.input[table]) if table < len(node.input) else ()
        if rows and rows[0]:
            yield _Ask(place, 0.0, float(rows[0]))
    yield _Ask(7, 0.0, 2.0)


def _indexes(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Into the first operand, along an axis."""
    sizes, axis = graph.sizes(node.input[0]), _axis(node)
    if -len(sizes) <= axis < len(sizes) and sizes[axis]:
        yield _Ask(1, 0.0, float(sizes[axis]))


def _tuples(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Into the first axes of the first operand, behind its batch axes: the smallest counts."""
    sizes, indices, batch = graph.sizes(node.input[0]), graph.sizes(node.input[1]), _axis(node, "batch_dims")
    if sizes and indices and indices[-1]:
        met = sizes[batch : batch + indices[-1]]
        if all(met):
            yield _Ask(1, 0.0, float(min(met)))


def _one_hot(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    depth = graph.constant(node.input[1])
    if depth is not None:
        yield _Ask(0, 0.0, float(depth.reshape(-1)[0]))


def _classes(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Targets of a loss: the classes are the second axis."""
    sizes = graph.sizes(node.input[0])
    if len(sizes) > 1 and sizes[1]:
        yield _Ask(1, 0.0, float(sizes[1]))


def _divides(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    yield _Ask(1, low=1.0, should_reach=float(_TRIPS + 1))
    yield _Ask(0, should_reach=float(_dividends(graph, node)))


def _dividends(graph: StoredSizes, node: onnx.NodeProto) -> int:
    """So many that quotients and remainders differ."""
    number = graph.constant(node.input[1])
    return 16 if number is None else min(1 << 15, 2 * int(np.abs(number.astype(np.int64)).max(initial=1)) + _BEYOND)


def _shifts(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    yield _Ask(1, 0.0, 8.0)


def _counts(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    yield _Ask(0, 0.0, should_reach=float(_TRIPS))


def _compared(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Both sides of a constant have to be met."""
    places = range(len(node.input))
    for place, other in ((place, other) for place in places for other in places if place != other):
        number = graph.constant(node.input[other])
        if number is not None and number.dtype.kind in "iu" and number.size:
            least, most = float(number.min()) - _BEYOND, float(number.max()) + _BEYOND
            yield _Ask(place, should_reach=min(most, _FAR), from_below=max(least, -_FAR))


def _signed(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Numbers of both signs."""
    yield _Ask(0, should_reach=float(_TRIPS), from_below=-float(_TRIPS))


def _bits_of_floats(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Bits of float32 from 0.5 to 4, the sign and the exponent at both ends of them."""
    if _axis(node, "to") == onnx.TensorProto.FLOAT:
        yield _Ask(0, *(float(np.float32(end).view(np.int32)) for end in (0.5, 4.0)))


def _quantized(*places: int) -> Callable[[StoredSizes, onnx.NodeProto], Iterator[_Ask]]:
    """Integers that stand for reals: all of what their type holds, up to 8 bits."""

    def asks(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
        yield from (_Ask(place, should_reach=256.0, from_below=-128.0) for place in places)

    return asks


def _images(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Which image of the batch a region lies in."""
    sizes = graph.sizes(node.input[0])
    if sizes and sizes[0]:
        yield _Ask(2, 0.0, float(sizes[0]))


def _valid_keys(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """How many keys of Attention's cache are filled; the mask has to tell of all of them."""
    keys, mask = graph.sizes(node.input[1]), graph.sizes(node.input[3]) if len(node.input) > 3 else ()
    if len(keys) == 4 and keys[2]:
        most = min(keys[2], mask[-1] or keys[2]) if mask else keys[2]
        yield _Ask(6, 1.0, float(most + 1))


def _places_to_write(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """Where an update begins that has to fit into a cache; a circular one takes any place."""
    cache, update, axis = graph.sizes(node.input[0]), graph.sizes(node.input[1]), _axis(node, "axis", -2)
    if cache and update and cache[axis] and update[axis]:
        yield _Ask(2, 0.0, float(cache[axis] - update[axis] + 1))


def _lengths(graph: StoredSizes, node: onnx.NodeProto) -> Iterator[_Ask]:
    """How long sequences are, at most as long as the first operand."""
    place, axis = (1, _axis(node, "time_axis")) if node.op_type == "ReverseSequence" else (4, _axis(node, "layout"))
    sizes = graph.sizes(node.input[0])
    if sizes and sizes[axis]:
        yield _Ask(place, 1.0, float(sizes[axis] + 1))


_RULES: Mapping[str, Callable[[StoredSizes, onnx.NodeProto], Iterator[_Ask]]] = {
    "Abs": _signed,
    "Attention": _valid_keys,
    "BitCast": _bits_of_floats,
    "BitShift": _shifts,
    "Clip": _compared,
    "ConvInteger": _quantized(0, 1),
    "DequantizeLinear": _quantized(0),
    "Div": _divides,
    "Equal": _compared,
    "GRU": _lengths,
    "Gather": _indexes,
    "GatherElements": _indexes,
    "GatherND": _tuples,
    "Greater": _compared,
    "GreaterOrEqual": _compared,
    "LSTM": _lengths,
    "Less": _compared,
    "LessOrEqual": _compared,
    "Loop": _counts,
    "MatMulInteger": _quantized(0, 1),
    "Max": _compared,
    "Min": _compared,
    "Mod": _divides,
    "Neg": _signed,
    "NegativeLogLikelihoodLoss": _classes,
    "OneHot": _one_hot,
    "QLinearConv": _quantized(0, 3),
    "QLinearMatMul": _quantized(0, 3),
    "RNN": _lengths,
    "ReverseSequence": _lengths,
    "RoiAlign": _images,
    "Scatter": _indexes,
    "ScatterElements": _indexes,
    "ScatterND": _tuples,
    "Sign": _signed,
    "SoftmaxCrossEntropyLoss": _classes,
    "TensorScatter": _places_to_write,
    "com.microsoft.EmbedLayerNormalization": _embeds,
}
"""What operators ask of integer operands.  Source: ONNX operators."""
