"""Which numbers integers of a graph can be, so that what leaves the 32 bits of a runtime is refused or told.

Core ML and OpenVINO's CPU plugin have int32 alone.  Of int64, uint32 and uint64 they hold what fits, so a result is
right as long as it fits, too.
Smaller types and int32 begin again at the other end, as they do in ONNX, and never leave their own range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.intervals import ALL, FORWARD, INF, Interval, inside, join, of_numbers

_INT32: Interval = (-(2.0**31), 2.0**31 - 1)
_NATURAL: Interval = (0.0, _INT32[1])
"""What int32 holds of unsigned types, and more than all sizes and places."""
_WIDE = ("int64", "uint32", "uint64")
"""Element types of which such a runtime holds a part."""
_KNOWN = frozenset({"bool", "float32", "float16", *_WIDE, "int8", "int16", "int32", "uint8", "uint16"})
"""Element types that have ranges."""
_MOVES = frozenset(
    {
        *("Clip", "Compress", "Concat", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten", "Gather"),
        *("GatherElements", "GatherND", "Identity", "Max", "Min", "OneHot", "Pad", "ReduceMax", "ReduceMin", "Reshape"),
        *("ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "TensorScatter", "Tile", "TopK", "Transpose"),
        *("Trilu", "Unsqueeze", "Where", "MaxPool", "Cast", "CastLike"),
    }
)
"""Operators whose results are operands of the same type, or zeros."""
_JOINED = frozenset({"Concat", "Max", "Min"})
"""Those of them whose operands all go into the result."""
_DATA: Mapping[str, tuple[int, ...]] = {
    "OneHot": (2,),
    "Pad": (0, 2),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "TensorScatter": (0, 1),
    "Where": (1, 2),
}
"""Which operands go into the result of others, where that is not the first alone; the rest are sizes and places."""
_PLACES = frozenset({"ArgMax", "ArgMin", "NonZero", "Shape", "Size", "TopK"})
"""Operators that tell sizes and places of their first operand."""
_QUANTIZERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
"""Operators that hold their results to the type."""
_REALS = frozenset({"Clip", "Round", "Floor", "Ceil", "Identity"})
"""Operators on reals whose bounds are those of the integers that a cast makes of them."""


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest number; ``of_data`` says that these ends are those of what the model can be given."""

    interval: Interval
    of_data: bool = False


class Ranges:
    """The ranges of one graph's integers, node after node.

    ``holder`` is the runtime that has 32 bits; ``strict`` refuses unsigned integers of wide types, too, that the data
    decides.
    """

    def __init__(self, holder: str, *, strict: bool = True) -> None:
        self._holder, self._strict = holder, strict
        self._known: dict[ir.Value, Range] = {}
        self._beyond: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user has to know of results that leave int32 for some of the numbers that a model can be given."""
        if not self._beyond:
            return ()
        first, *others = dict.fromkeys(self._beyond)
        more = f" and {len(others)} more" if others else ""
        return (
            f"{first}{more}: int64 is computed in {self._holder}'s 32 bits, so the results are right from "
            f"{_spelled(_INT32).removeprefix('from ')} alone",
        )

    def bind(self, value: ir.Value, numbers: Array) -> None:
        """Say what a value is that is known while the model is lowered."""
        if numbers.dtype.name in _KNOWN:
            self._known[value] = Range(of_numbers(numbers) if numbers.size else (0.0, 0.0))

    def assume(self, value: ir.Value, known: Range) -> None:
        """Say what a value can be."""
        self._known[value] = known

    def add(self, node: ir.Node, value: ir.Value, subject: str) -> str:
        """Note a result's range; the name of its type where that is a small one and the result has to be held to it.

        ``Unsupported`` where a result leaves what the runtime holds of its type.
        """
        name = _dtype(value)
        operands = [None if each is None else self.of(each) for each in node.inputs]
        if name is None or np.dtype(name).kind not in "iu":
            if node.op_type in _REALS and operands[0] is not None:
                self._known[value] = Range(_real(node, operands), operands[0].of_data and node.op_type != "Clip")
            return ""
        found = self._of_body(node, value) if node.op_type == "Scan" else _result(node, value, operands)
        given = any(each is not None and each.of_data for each in operands) and not _is_place(node, value)
        of_data = given or not all(map(math.isfinite, found))
        limits = _limits(name)
        fits = inside(found, limits)
        if name in _WIDE and not fits:
            if not of_data or (self._strict and name != "int64"):
                raise Unsupported(f"{name} results {_spelled(found)}: {self._holder} holds those {_spelled(limits)}")
            self._beyond.append(subject)
        self._known[value] = Range(found if fits else limits, of_data)
        return name if not fits and np.dtype(name).itemsize < 4 else ""

    def _of_body(self, node: ir.Node, value: ir.Value) -> Interval:
        return self.of(node.attributes["body"].as_graph().outputs[node.outputs.index(value)]).interval

    def of(self, value: ir.Value) -> Range:
        """What is known of a value: by the node that makes it, by its numbers, else by its type."""
        if value in self._known:
            return self._known[value]
        name = _dtype(value)
        if name is not None and value.const_value is not None:
            return Range(of_numbers(value.const_value.numpy()) if value.const_value.size else (0.0, 0.0))
        if name is None or np.dtype(name).kind == "f":
            return Range(ALL, of_data=True)
        return Range((0.0, 1.0) if name == "bool" else _limits(name), of_data=name != "bool")


def _real(node: ir.Node, operands: Sequence[Range | None]) -> Interval:
    """What reals can be that are about to become integers."""
    low, high = _clipped(operands) if node.op_type == "Clip" else _interval(operands[0])
    return float(np.floor(low)), float(np.ceil(high))


def _interval(operand: Range | None) -> Interval:
    return ALL if operand is None else operand.interval


def _clipped(operands: Sequence[Range | None]) -> Interval:
    bounds = list(map(_interval, operands))
    return FORWARD["Clip"]([*bounds, ALL, ALL][:3])


def _dtype(value: ir.Value) -> str | None:
    if value.dtype is None or value.dtype == ir.DataType.STRING:
        return None
    name = value.dtype.numpy().name
    return name if name in _KNOWN else None


def _limits(name: str) -> Interval:
    """What 32 bits hold of an integer type."""
    if name in _WIDE:
        return _INT32 if name == "int64" else _NATURAL
    return float(np.iinfo(name).min), float(np.iinfo(name).max)


def _result(node: ir.Node, value: ir.Value, operands: Sequence[Range | None]) -> Interval:
    """What a result can be, before it is held to its type."""
    if node.op_type in _QUANTIZERS:
        return _limits(value.dtype.numpy().name) if value.dtype else ALL
    if _is_place(node, value):
        return _NATURAL[0], min(_places(node), _NATURAL[1])
    if _moves(node):
        return _moved(node, operands)
    intervals = list(map(_interval, operands))
    rule = _RULES.get(node.op_type)
    if rule is None or node.domain or not intervals:
        return ALL
    return rule(intervals, _count(node, value))


def _is_place(node: ir.Node, value: ir.Value) -> bool:
    return node.op_type in _PLACES and (node.op_type != "TopK" or value.index() == 1)


def _moves(node: ir.Node) -> bool:
    adds = node.op_type.startswith("Scatter") and _text(node, "reduction") in ("add", "mul")
    return node.op_type in _MOVES or (node.op_type in ("ScatterElements", "ScatterND") and not adds)


def _text(node: ir.Node, name: str) -> str:
    return node.attributes[name].as_string() if name in node.attributes else ""


def _moved(node: ir.Node, operands: Sequence[Range | None]) -> Interval:
    """All that is moved: the operands that go into the result, of a cast whatever it takes, and zeros between them."""
    if node.op_type in ("Cast", "CastLike"):
        return _interval(operands[0])
    if node.op_type == "Clip":
        return _clipped(operands)
    if node.op_type == "ConstantOfShape":
        return of_numbers(node.attributes["value"].as_tensor().numpy()) if "value" in node.attributes else (0.0, 0.0)
    data = range(len(operands)) if node.op_type in _JOINED else _DATA.get(node.op_type, (0,))
    own = (operands[place] for place in data if place < len(operands))
    return join([*(each.interval for each in own if each is not None), (0.0, 0.0)])


def _places(node: ir.Node) -> float:
    """How many places a node tells among at most: along its axis, whatever the other sizes are."""
    before, defaults = node.inputs[0], {"ArgMax": 0, "ArgMin": 0, "TopK": -1}
    if node.op_type in defaults and before is not None and before.shape is not None and len(before.shape):
        size = before.shape[node.attributes.get_int("axis", defaults[node.op_type])]
        return float(size) if isinstance(size, int) else INF
    return _most(before, node.op_type == "Size")


def _most(value: ir.Value | None, all_of_them: bool) -> float:
    """The largest size of a tensor, or the number of its elements."""
    if value is None or value.shape is None:
        return INF
    sizes = [float(size) if isinstance(size, int) else INF for size in value.shape]
    return math.prod(sizes) if all_of_them else max(sizes, default=1.0)


def _count(node: ir.Node, value: ir.Value) -> float:
    """How many elements of the first operand one of the result comes from at most."""
    before = node.inputs[0]
    if node.op_type == "MatMul":
        last = before.shape[-1] if before is not None and before.shape else None
        return float(last) if isinstance(last, int) else INF
    whole = _most(before, True)
    if node.op_type.startswith("Cum"):
        return _most(before, False)
    return whole if not math.isfinite(whole) else whole / max(_most(value, True), 1.0)


def _largest(x: Interval) -> float:
    return max(abs(x[0]), abs(x[1]))


def _power(base: float, exponent: float) -> float:
    if base <= 1.0 or exponent == 0.0:
        return max(base, 1.0)
    return base**exponent if exponent * math.log2(base) < 1000 else INF


def _around(most: float, *operands: Interval) -> Interval:
    """Up to ``most``, and down to its negative where an operand is negative."""
    return (0.0 if all(low >= 0.0 for low, _ in operands) else -most), most


def _times(x: Interval, count: float) -> Interval:
    """Up to ``count`` numbers added up."""
    return x[0] * count if x[0] < 0.0 else 0.0, x[1] * count if x[1] > 0.0 else 0.0


def _bits(x: Sequence[Interval], _: float) -> Interval:
    """As many bits as the operands have."""
    most = max(map(_largest, x))
    return _around(2.0 ** math.ceil(math.log2(most + 1)) - 1 if math.isfinite(most) else INF, *x)


def _within(x: Sequence[Interval], _: float) -> Interval:
    """No farther from 0 than the first operand."""
    return _around(_largest(x[0]), *x)


def _added(x: Sequence[Interval], _: float) -> Interval:
    return sum(low for low, _ in x), sum(high for _, high in x)


def _of_two(name: str) -> Callable[[Sequence[Interval], float], Interval]:
    return lambda x, _: FORWARD[name](x)


_RULES: Mapping[str, Callable[[Sequence[Interval], float], Interval]] = {
    **{name: _of_two(name) for name in ("Add", "Sub", "Mul", "Neg", "Abs", "Relu")},
    "Sum": _added,
    "Div": _within,
    "Mod": lambda x, _: _around(max(_largest(x[1]) - 1, 0.0), *x),
    "Sign": lambda x, _: _around(1.0, *x),
    "Pow": lambda x, _: _around(_power(_largest(x[0]), x[1][1]), x[0]),
    "ReduceSum": lambda x, count: _times(x[0], count),
    "ReduceMean": lambda x, count: _times(x[0], count),
    "CumSum": lambda x, count: _times(x[0], count),
    "ReduceL1": lambda x, count: _times((0.0, _largest(x[0])), count),
    "ReduceSumSquare": lambda x, count: _times((0.0, _largest(x[0]) ** 2), count),
    "ReduceProd": lambda x, count: _around(_power(_largest(x[0]), count), x[0]),
    "CumProd": lambda x, count: _around(_power(_largest(x[0]), count), x[0]),
    "MatMul": lambda x, count: _times(FORWARD["Mul"](x), count),
    "Range": lambda x, _: join(x[:2]),
    "BitwiseAnd": _bits,
    "BitwiseOr": _bits,
    "BitwiseXor": _bits,
    "BitwiseNot": lambda x, _: (-1 - x[0][1], -1 - x[0][0]),
}
"""The interval of a result, from those of its operands and the number of elements that it comes from."""


def _spelled(interval: Interval) -> str:
    return "of any size" if interval == ALL else f"from {interval[0]:.0f} to {interval[1]:.0f}"
