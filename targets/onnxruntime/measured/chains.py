"""Chains of ONNX Runtime's operators that may be integers, in float32 and in QDQ, and what their times say.

What an operator costs depends on its neighbours: integers are laid out channels-last, float32 in blocks of channels,
and both are converted at the borders.  So every operator stands in chains of two lengths, in float32 and with uint8
activations as it is delivered; the difference is the operator, what is left of the shorter chain the borders.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

SHORT, LONG = 2, 6
SCALE = 0.02
LEAST_NS = 100.0
"""Of what is found as a difference of times."""


@dataclass(frozen=True, slots=True)
class Row:
    """One operator at one size: the shape that it keeps, its weight, and what it reads besides.

    ``beside`` stands behind it in every link of the chain: a convolution, which brings integers channels-last, or what
    restores the shape.  A Sigmoid makes the gate that a Mul multiplies its own input with.
    """

    kind: str
    op: str
    shape: tuple[int, ...]
    weight: tuple[int, ...] = ()
    axis: int = 0
    bias: bool = False
    second: bool = False
    attributes: tuple[tuple[str, object], ...] = ()
    beside: Literal["", "Conv", "Mul", "Slice", "Sigmoid"] = ""

    @property
    def elements(self) -> float:
        """Elements read and written."""
        return float(np.prod(self.shape)) * (3 if self.second else 2)

    @property
    def work(self) -> float:
        """Multiply-adds of a matrix operator, else elements."""
        if self.op == "Concat":
            return 2 * float(np.prod(self.shape))
        if not self.weight:
            return float(np.prod(self.shape)) * (self.shape[-1] if self.op == "MatMul" else 1)
        if self.op in ("Conv", "ConvTranspose"):
            return float(np.prod(self.shape[2:])) * float(np.prod(self.weight))
        return float(np.prod(self.shape)) * self.weight[0]


def conv(kind: str, channels: int, size: int, kernel: int, group: int = 1) -> Row:
    """A convolution that keeps its map."""
    weight = (channels, channels // group, kernel, kernel)
    attributes = (("pads", [kernel // 2] * 4), ("group", group))
    return Row(kind, "Conv", (1, channels, size, size), weight, bias=True, attributes=attributes)


def transposed(channels: int, size: int, kernel: int) -> Row:
    """A transposed convolution that keeps its map: its stride is 1."""
    attributes = (("pads", [kernel // 2] * 4),)
    weight = (channels, channels, kernel, kernel)
    return Row("ConvTranspose", "ConvTranspose", (1, channels, size, size), weight, 1, bias=True, attributes=attributes)


MAPS = ((16, 56), (24, 28), (64, 56), (72, 28), (96, 14), (240, 14), (576, 7), (144, 28))
LARGE = ((16, 112), (32, 112), (96, 112))
"""Maps that no cache next to a core holds."""
ROWS: tuple[Row, ...] = (
    *(conv("Conv", c, s, 3) for c, s in ((8, 28), (32, 28), (64, 28), (128, 14), (256, 7), (64, 56), *LARGE[:2])),
    *(conv("Conv.pointwise", c, s, 1) for c, s in (*MAPS, *LARGE)),
    *(conv("Conv.depthwise", c, s, k, c) for (c, s), k in itertools.product((*MAPS, *LARGE), (3, 5))),
    *(conv("Conv.depthwise_large", c, s, 7, c) for c, s in MAPS),
    *(conv("Conv.grouped", c, s, 3, 4) for c, s in MAPS[1:6]),
    *(transposed(c, s, 3) for c, s in ((8, 28), (32, 28), (64, 28), (128, 14), (64, 56))),
    *(Row("Gemm", "Gemm", (m, k), (k, k), 0, bias=True, attributes=(("transB", 1),))
      for m, k in ((1, 64), (1, 256), (1, 1024), (16, 128), (64, 256), (197, 192), (128, 512))),
    *(Row("MatMul", "MatMul", (1, m, k), (k, k), 1)
      for m, k in ((1, 64), (1, 256), (16, 128), (64, 256), (197, 192), (128, 512))),
    *(Row("MatMul.dynamic", "MatMul", (h, t, t), second=True)
      for h, t in ((1, 32), (4, 32), (3, 64), (4, 128), (3, 197))),
    *(Row(op, op, (1, c, s, s)) for op in ("Sigmoid", "LeakyRelu") for c, s in (*MAPS, *LARGE)),
    *(Row(op, op, (1, c, s, s), second=True) for op in ("Add", "Mul") for c, s in (*MAPS, *LARGE)),
    *(Row("Mul.gated", "Mul", (1, c, s, s), beside="Sigmoid") for c, s in (*MAPS, *LARGE)),
    *(Row(op, op, (1, c, s, s), attributes=(("kernel_shape", [3, 3]), ("pads", [1] * 4)), beside="Conv")
      for op in ("MaxPool", "AveragePool") for c, s in MAPS),
    *(Row("GlobalAveragePool", "GlobalAveragePool", (1, c, s, s), beside="Mul") for c, s in MAPS),
    *(Row("Concat", "Concat", (1, c, s, s), second=True, attributes=(("axis", 1),), beside="Slice") for c, s in MAPS),
)  # fmt: skip


class Chain:
    """Builds the operator several times in a row; in integers with a pair between each two."""

    def __init__(self, row: Row, *, integer: bool) -> None:
        self._row, self._integer = row, integer
        self._rng = np.random.default_rng(0)
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, TensorProto] = {}

    def model(self, length: int, *, beside_alone: bool = False) -> ModelProto:
        """``length`` links; ``beside_alone`` leaves the measured operator out of them."""
        row = self._row
        value = first = self._pair("x")
        for place in range(length):
            before = value
            if row.beside == "Sigmoid":
                value = self._gated(value, place, beside_alone=beside_alone)
            elif not beside_alone:
                operands = [
                    *([first] if row.second else []),
                    *self._weight(f"w{place}", row.weight, row.axis, row.bias),
                ]
                value = self._link(row.op, [value, *operands], f"y{place}", dict(row.attributes))
            if row.beside == "Conv":
                weight = self._weight(f"v{place}", (row.shape[1],) * 2 + (1, 1), 0, True)
                value = self._link("Conv", [value, *weight], f"z{place}", {})
            elif row.beside == "Mul":
                value = self._link("Mul", [before, value], f"z{place}", {})
            elif row.beside == "Slice":
                ends = [
                    self._constant(n, np.array([v], np.int64)) for n, v in (("0", 0), ("c", row.shape[1]), ("1", 1))
                ]
                value = self._link("Slice", [value, *ends], f"z{place}", {})
        graph = helper.make_graph(
            self._nodes,
            "chain",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, row.shape)],
            [helper.make_tensor_value_info(value, TensorProto.FLOAT, row.shape)],
            list(self._constants.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)

    def _gated(self, value: str, place: int, *, beside_alone: bool) -> str:
        gate = self._link("Sigmoid", [value], f"g{place}", {})
        return gate if beside_alone else self._link(self._row.op, [value, gate], f"y{place}", {})

    def _link(self, op: str, inputs: list[str], name: str, attributes: dict[str, object]) -> str:
        self._nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return self._pair(name)

    def _constant(self, name: str, array: npt.NDArray[np.generic]) -> str:
        self._constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def _pair(self, value: str) -> str:
        if not self._integer:
            return value
        parameters = [
            self._constant("scale", np.asarray(np.float32(SCALE))),
            self._constant("zero", np.asarray(np.uint8(128))),
        ]
        self._nodes.append(helper.make_node("QuantizeLinear", [value, *parameters], [f"{value}_q"]))
        self._nodes.append(helper.make_node("DequantizeLinear", [f"{value}_q", *parameters], [f"{value}_d"]))
        return f"{value}_d"

    def _weight(self, name: str, shape: tuple[int, ...], axis: int, with_bias: bool) -> list[str]:
        if not shape:
            return []
        real = self._rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)
        channels = shape[axis]
        bias = self._rng.normal(0, 0.1, channels).astype(np.float32)
        if not self._integer:
            return [self._constant(name, real), *([self._constant(f"{name}_b", bias)] if with_bias else [])]
        scales = np.full(channels, np.abs(real).max() / 127, np.float32)
        made = [self._constant(f"{name}_i", np.rint(real / scales[0]).astype(np.int8))]
        made += [self._constant(f"{name}_s", scales), self._constant(f"{name}_z", np.zeros(channels, np.int8))]
        self._nodes.append(helper.make_node("DequantizeLinear", made, [name], axis=axis))
        if not with_bias:
            return [name]
        steps = self._constant(f"{name}_bi", np.rint(bias / (scales * SCALE)).astype(np.int32))
        sizes = self._constant(f"{name}_bs", (scales * SCALE).astype(np.float32))
        self._nodes.append(helper.make_node("DequantizeLinear", [steps, sizes], [f"{name}_b"], axis=0))
        return [name, f"{name}_b"]


Found: TypeAlias = tuple[float, float, float]
"""Nanoseconds of an operator in float32 and in int8, and of both borders of a chain of integers."""


def models_of(row: Row) -> list[ModelProto]:
    """Chains of two lengths in float32 and in integers; then the same of what stands beside the operator, alone."""
    alone = [False, True] if row.beside in ("Conv", "Sigmoid") else [False]
    return [Chain(row, integer=integer).model(length, beside_alone=without)
            for without in alone for integer in (False, True) for length in (SHORT, LONG)]  # fmt: skip


def found_of(times: Sequence[float]) -> Found:
    """What the times of a row's models say of its operator."""
    real, whole = ((b - a) / (LONG - SHORT) for a, b in (times[:2], times[2:4]))
    borders = (times[2] - SHORT * whole) - (times[0] - SHORT * real)
    if len(times) > len((False, True)) * len((SHORT, LONG)):
        real -= (times[5] - times[4]) / (LONG - SHORT)
        whole -= (times[7] - times[6]) / (LONG - SHORT)
    return max(real, LEAST_NS), max(whole, LEAST_NS), borders
