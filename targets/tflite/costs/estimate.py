"""What a TFLite file takes on devices that are not here, operator by operator, by their cost tables.

Nothing is run: the same file gives the same numbers on every machine.  How far they can be trusted says
docs/measurements/device-costs.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from convertkit.errors import Unsupported
from convertkit.kernel_costs import SMALL_MATRIX, ConvShape, DenseShape, Shape, TransposedShape
from convertkit.operators import ON_THE_FLY, Estimate, NodeTime
from convertkit.profile import OpCost
from convertkit.recipe import THIS, MeasuredDevice
from convertkit.targets.forms.devices import machines_of
from convertkit.targets.tflite.costs.calls import CallCosts, call_costs
from convertkit.targets.tflite.costs.loops import OPERATORS_OF_A_STEP, LoopCosts, loops
from convertkit.targets.tflite.costs.tables import Tables, tables
from convertkit.targets.tflite.devices import error_of
from convertkit.targets.tflite.inspection import Placed, placed_operators

_FAST_TAPS = 25
"""Depthwise windows up to 5 × 5 have fast kernels."""
_SHUFFLES = frozenset({(0, 1, 2, 4, 3), (0, 1, 3, 2, 4)})
_ROWS: Mapping[str, str] = {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "MAXIMUM": "Max", "MINIMUM": "Min", "SOFTMAX": "Softmax",
    "LOG_SOFTMAX": "LogSoftmax", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish", "RELU": "Relu",
    "RELU6": "Clip", "RELU_N1_TO_1": "Clip", "RELU_0_TO_1": "Clip", "LEAKY_RELU": "LeakyRelu", "PRELU": "PRelu",
    "ABS": "Abs", "MEAN": "ReduceMean", "SUM": "ReduceSum", "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin",
    "MAX_POOL_2D": "MaxPool", "AVERAGE_POOL_2D": "AveragePool", "RESIZE_BILINEAR": "Resize",
    "RESIZE_NEAREST_NEIGHBOR": "Resize", "CONCATENATION": "Concat", "RESHAPE": "Reshape", "SQUEEZE": "Squeeze",
    "EXPAND_DIMS": "Unsqueeze", "PAD": "Pad", "PADV2": "Pad", "MIRROR_PAD": "Pad", "SLICE": "Slice",
    "STRIDED_SLICE": "Slice", "SPLIT": "Split", "SPLIT_V": "Split", "UNPACK": "Split", "PACK": "Concat",
    "GATHER": "Gather", "EMBEDDING_LOOKUP": "Gather", "BROADCAST_TO": "Expand", "TILE": "Tile",
    "DEPTH_TO_SPACE": "DepthToSpace", "SPACE_TO_DEPTH": "SpaceToDepth", "QUANTIZE": "QuantizeLinear",
    "DEQUANTIZE": "DequantizeLinear", "GELU": "Gelu",
    # No table has a row for these: that of an operator whose kernel does about as much.
    "SQUARED_DIFFERENCE": "Sub", "SQUARE": "Mul", "NEG": "Relu", "CAST": "QuantizeLinear", "ELU": "Tanh",
    "REVERSE_V2": "Slice", "DYNAMIC_UPDATE_SLICE": "Slice",
    "DIV": "Sigmoid", "SQRT": "Sigmoid", "RSQRT": "Sigmoid", "EXP": "Sigmoid", "LOG": "Sigmoid",
}  # fmt: skip
"""Rows of the cost tables by builtin operator."""
_WHOLE_NUMBERS = "Add"
"""The row of what computes with indices and flags, of which no model has many."""
_LOOP = "WHILE"
_UNKNOWABLE = frozenset({"IF", "CALL", "CALL_ONCE", "CUSTOM", "DELEGATE"})
_CUTS = frozenset({"SLICE", "STRIDED_SLICE", "GATHER"})
"""They read what they write; the tables' rows are of slices of one half, for which twice as much was counted."""
_READS_SIZES = frozenset({"SHAPE", "RANK"})
_PADS_ITSELF = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})
"""Their border of zeros is taken to cost nothing.

Measured for float32, where XNNPACK makes it a part of the convolution.  For int8 it is assumed: it
brings the estimate of a whole MobileNetV2 to 0.98 of its emulation, from 1.26.
"""
_WAYS_OUT = ("convertkit bench without --device, which measures here",)
_INTEGERS = ("int8", "int16x8")


def estimates(path: Path, devices: Sequence[str]) -> tuple[Estimate, ...]:
    """Of one call on each of ``devices``; one that stands for several is the weighted mean of them.

    Raises ``Unsupported`` for an operator that the tables do not know.
    """
    operators = placed_operators(path)
    return tuple(_estimate(name, operators) for name in devices)


def estimate_here(path: Path, measured: MeasuredDevice) -> Estimate:
    """Of one call by tables of the machine at hand; raises as :func:`estimates` does."""
    operators = placed_operators(path)
    machine = _Machine(tables((THIS,), measured), _loop_costs(THIS), call_costs(THIS))
    nodes = tuple(
        NodeTime(placed.told.name, placed.told.kind, machine.nanoseconds(placed) / 1e6) for placed in operators
    )
    ms = sum(node.ms for node in nodes) + machine.beside_ns(operators) / 1e6
    return Estimate(THIS, ms, nodes, measured=measured.told)


def _estimate(device: str, operators: Sequence[Placed]) -> Estimate:
    shares = machines_of((device,))
    each = [_Machine(tables((name,)), _loop_costs(name), call_costs(name)) for name in shares]
    nodes = tuple(
        NodeTime(placed.told.name, placed.told.kind, sum(
            share * machine.nanoseconds(placed) for machine, share in zip(each, shares.values(), strict=True)
        ) / 1e6)
        for placed in operators
    )  # fmt: skip
    beside = sum(share * machine.beside_ns(operators) for machine, share in zip(each, shares.values(), strict=True))
    ms = sum(node.ms for node in nodes) + beside / 1e6
    return Estimate(device, ms, nodes, error_of(device, ms))


def _loop_costs(name: str) -> LoopCosts:
    ((_, costs),) = loops((name,)).machines
    return costs


@dataclass(frozen=True, slots=True)
class _Machine:
    """The tables of one device, and what its loops and calls cost."""

    known: Tables
    loops: LoopCosts
    calls: CallCosts

    def beside_ns(self, operators: Sequence[Placed]) -> float:
        """What a call takes, the first integer product beside itself, and what the caches lack of small ones."""
        multiplies = any(_is_integer(each) and each.told.macs for each in operators)
        start = self.known.kernel_costs.start_ns if multiplies else 0.0
        return start + self._call(operators) + self._copies(operators)

    def _call(self, operators: Sequence[Placed]) -> float:
        """What the runtime does around the operators."""
        own = sum(each.turns or 0.0 for each in operators if each.reads and _is_left_to_the_runtime(each))
        return self.calls.call + self.calls.operator * len(operators) + self.calls.own * own

    def _copies(self, operators: Sequence[Placed]) -> float:
        """What it takes to read what each operator keeps, where that of a whole subgraph is more than the caches hold.

        Steps of a recurrent layer that are written out have a copy of the weights each.
        """
        found, own = 0.0, self.loops.step_bytes / OPERATORS_OF_A_STEP
        for graph in {each.graph for each in operators}:
            kept = [(own + _small_weights(each), each.turns or 0.0) for each in operators if each.graph == graph]
            price = self.loops.per_byte(sum(held for held, _ in kept))
            found += price * sum(held * turns for held, turns in kept)
        return found

    def nanoseconds(self, placed: Placed) -> float:
        """Of the operator in one call of the file, in all turns of its loop."""
        if placed.turns is None:
            raise Unsupported("its loop does not count to a constant", subject=placed.told.name, ways_out=_WAYS_OUT)
        return placed.turns * self._once(placed)

    def _once(self, placed: Placed) -> float:
        kind = placed.told.kind
        if kind == _LOOP:
            # What it runs are operators of their own.
            return self.loops.loop + (placed.body_turns or 0.0) * self.loops.turn
        if not placed.reads or kind in _READS_SIZES:
            return 0.0  # made of constants, once, when the file is loaded; or of a tensor's sizes alone
        if kind == "PAD" and placed.reader in _PADS_ITSELF:
            return 0.0
        if kind in _SHAPES:
            shape = _SHAPES[kind](placed)
            if shape is not None:
                return self._tiled(placed, shape)
            row = _row_of_product(placed)
            return self._row(placed, row, float(placed.told.macs)) + self._loading(placed, row)
        if kind == "BATCH_MATMUL":
            row = "MatMul.dynamic" if len(placed.reads) > 1 else "MatMul"
            return self._row(placed, row, float(placed.told.macs)) + self._loading(placed, row)
        if kind == "TRANSPOSE":
            return self._row(placed, "Transpose.shuffle" if _is_shuffle(placed) else "Transpose")
        if placed.gated:
            return self._row(placed, "Mul.gated")
        if kind not in _ROWS and not placed.told.precision and kind not in _UNKNOWABLE:
            return self._row(placed, _WHOLE_NUMBERS)
        if kind not in _ROWS:
            raise Unsupported(
                f"no cost table knows {kind}, so the time of the file cannot be estimated",
                subject=placed.told.name,
                ways_out=_WAYS_OUT,
            )
        return self._row(placed, _ROWS[kind])

    def _tiled(self, placed: Placed, shape: Shape) -> float:
        integer, real = self.known.kernel_costs.written(shape)
        if placed.told.precision == ON_THE_FLY:
            return integer + self.known.kernel_costs.rounding_ns(shape, placed.read_elements)
        return integer if _is_integer(placed) else real

    def _row(self, placed: Placed, row: str, work: float = 0.0) -> float:
        cost: OpCost = self.known.costs[row]
        most = 2 * placed.written_elements if placed.told.kind in _CUTS else math.inf
        touched = min(placed.read_elements, most) + placed.written_elements
        larger = work or float(max(placed.written_elements, min(max(map(math.prod, placed.reads), default=0), most)))
        integer, real = cost.times(larger, touched)
        if placed.told.precision == ON_THE_FLY:
            return integer + self._rounding(placed)
        return integer if _is_integer(placed) else real

    def _loading(self, placed: Placed, row: str) -> float:
        """What it takes to load the weights of a dense layer."""
        if row not in ("Gemm", "MatMul"):
            return 0.0
        integer, real = self.known.kernel_costs.loading_ns(math.prod(placed.weight))
        return integer if placed.told.precision == ON_THE_FLY or _is_integer(placed) else real

    def _rounding(self, placed: Placed) -> float:
        """What it takes to quantize the rows that a product reads, and to write float."""
        deep = placed.reads[0][-1] if placed.reads[0] else 1
        rows = placed.read_elements / deep
        return rows * self.known.costs["DynamicQuantizeLinear"].times(deep, placed.written_elements / rows)[1]


def _is_integer(placed: Placed) -> bool:
    """Whether the kernel reads and writes integers that stand for real numbers; between types, it is one of floats."""
    return placed.told.precision in _INTEGERS


def _is_left_to_the_runtime(placed: Placed) -> bool:
    """Whether XNNPACK has no kernel for its type."""
    return not placed.told.precision or placed.told.kind in _READS_SIZES


def _small_weights(placed: Placed) -> float:
    """Bytes of the weights of a row's product, which are read once; beyond SMALL_MATRIX ``_loading`` counts them."""
    if placed.told.kind != "FULLY_CONNECTED" or placed.written_elements != placed.weight[0]:
        return 0.0
    size = 1 if placed.told.precision == ON_THE_FLY or _is_integer(placed) else 4
    return size * min(math.prod(placed.weight), SMALL_MATRIX)


def _row_of_product(placed: Placed) -> str:
    if placed.told.kind == "DEPTHWISE_CONV_2D":
        return "Conv.depthwise_large" if math.prod(placed.weight[1:3]) > _FAST_TAPS else "Conv.depthwise"
    return {"CONV_2D": "Conv", "TRANSPOSE_CONV": "ConvTranspose"}.get(placed.told.kind, "Gemm")


def _is_shuffle(placed: Placed) -> bool:
    return placed.perm in _SHUFFLES


def _convolution(placed: Placed) -> Shape | None:
    """Of one without groups; the row of a dilated one counts as one pixel."""
    filters, height, width, channels = placed.weight
    batch, rows, columns, _ = placed.written[0]
    if placed.reads[0][-1] != channels:
        return None
    options = _options(placed, schema.Conv2DOptions)
    dilated = max(options.DilationHFactor(), options.DilationWFactor()) > 1
    pixels = batch * rows * columns
    return ConvShape(pixels, 1 if dilated else columns, (height, width), options.StrideW(), channels, filters)


def _transposed(placed: Placed) -> Shape | None:
    filters, height, width, channels = placed.weight
    batch, rows, columns, _ = placed.written[0]
    options = _options(placed, schema.TransposeConvOptions)
    taps = height * width / (options.StrideH() * options.StrideW())
    return TransposedShape(batch * rows * columns, taps, channels, filters)


def _dense(placed: Placed) -> Shape | None:
    """Of one with few weights: of many, memory decides as much as tiles do."""
    if len(placed.weight) != 2 or math.prod(placed.weight) > SMALL_MATRIX:
        return None
    wide, deep = placed.weight
    return DenseShape(max(placed.written_elements // wide, 1), deep, wide)


def _depthwise(placed: Placed) -> Shape | None:
    """Of one with a single channel: it is a convolution, and has its kernel."""
    _, height, width, filters = placed.weight
    batch, rows, columns, _ = placed.written[0]
    if placed.reads[0][-1] != 1:
        return None
    options = _options(placed, schema.DepthwiseConv2DOptions)
    dilated = max(options.DilationHFactor(), options.DilationWFactor()) > 1
    return ConvShape(batch * rows * columns, 1 if dilated else columns, (height, width), options.StrideW(), 1, filters)


_SHAPES: Mapping[str, Callable[[Placed], Shape | None]] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transposed,
    "FULLY_CONNECTED": _dense,
}


def _options(placed: Placed, kind: Any) -> Any:
    found = kind()
    found.Init(placed.options.Bytes, placed.options.Pos)
    return found
