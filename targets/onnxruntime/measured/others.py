"""ONNX Runtime's operators that are never integers, or only moved, each behind a Concat whose time is taken away."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

CHAINS = (1, 2, 4, 8)
WIDE = 8
TYPES = {"float32": TensorProto.FLOAT, "int8": TensorProto.UINT8}


@dataclass(frozen=True, slots=True)
class Other:
    """An operator behind a Concat of two halves of ``shape``; ``given`` are its constant inputs, ``float_`` or bytes.

    ``work`` are elements of the larger of what it reads and writes.
    """

    kind: str
    op: str
    shape: tuple[int, ...]
    given: tuple[tuple[float | int, ...], ...] = ()
    attributes: tuple[tuple[str, object], ...] = ()
    kinds: tuple[str, ...] = ("float32",)
    grows: int = 1

    @property
    def work(self) -> float:
        """Elements."""
        return float(np.prod(self.shape)) * self.grows


MAPS = ((2, 8, 4, 4), (2, 16, 28, 28), (2, 96, 14, 14), (2, 24, 56, 56))
ROWS_OF = ((2, 8, 16), (2, 32, 128), (2, 64, 197), (2, 128, 256))
BOTH = ("float32", "int8")
Asked: TypeAlias = tuple[Other, str]
Times: TypeAlias = dict[tuple[str, str], list[tuple[float, float]]]
"""Elements and nanoseconds, by operator and type."""


def _on(op: str, shapes: Sequence[tuple[int, ...]], kind: str = "", **attributes: object) -> Iterator[Other]:
    yield from (Other(kind or op, op, shape, attributes=tuple(attributes.items())) for shape in shapes)


OTHERS: tuple[Other, ...] = (
    *itertools.chain(*(_on(op, MAPS) for op in ("Relu", "HardSigmoid", "HardSwish", "Tanh", "Erf", "Exp", "Sqrt"))),
    *_on("Gelu", MAPS),
    *_on("Softmax", ROWS_OF, axis=-1),
    *(Other("LayerNormalization", "LayerNormalization", shape, ((1.0,) * shape[-1], (0.5,) * shape[-1]))
      for shape in ROWS_OF),
    *(Other("ReduceMean.maps", "ReduceMean", shape, ((2, 3),)) for shape in MAPS),
    *(Other("ReduceMean", "ReduceMean", shape, ((-1,),)) for shape in ROWS_OF),
    *(Other("Pow", "Pow", shape, ((2.0,),)) for shape in MAPS),
    *(Other("Transpose", "Transpose", shape, attributes=(("perm", [0, 2, 1]),), kinds=BOTH) for shape in ROWS_OF),
    *(Other("Slice", "Slice", shape, ((1,), (1000,), (1,)), kinds=BOTH) for shape in MAPS),
    *(Other("Resize", "Resize", shape, ((), (1.0, 1.0, 2.0, 2.0)), kinds=BOTH, grows=4) for shape in MAPS[:3]),
    *(Other("Resize.interpolated", "Resize", shape, ((), (1.0, 1.0, 2.0, 2.0)), (("mode", "linear"),), BOTH, 4)
      for shape in MAPS[:3]),
)  # fmt: skip


def models_of(row: Other, kind: str) -> list[ModelProto]:
    """The Concat alone, and with the operator behind it."""
    halves = (row.shape[0] // 2, *row.shape[1:])
    constants = [numpy_helper.from_array(_array(values), f"c{place}") for place, values in enumerate(row.given)]
    names = ["joined", *(f"c{place}" if values else "" for place, values in enumerate(row.given))]
    join = helper.make_node("Concat", ["x", "x"], ["joined"], axis=0)
    last = helper.make_node(row.op, names, ["y"], **dict(row.attributes))
    stored = [each for each, values in zip(constants, row.given, strict=True) if values]
    return [_model([join], "joined", halves, TYPES[kind], ()), _model([join, last], "y", halves, TYPES[kind], stored)]


def _array(values: Sequence[float | int]) -> npt.NDArray[np.generic]:
    return np.array(values, np.int64 if all(isinstance(each, int) for each in values) else np.float32)


def _model(
    nodes: Sequence[NodeProto], last: str, shape: tuple[int, ...], kind: int, stored: Sequence[TensorProto]
) -> ModelProto:
    ends = [helper.make_tensor_value_info("x", kind, shape)], [helper.make_tensor_value_info(last, kind, None)]
    graph = helper.make_graph(nodes, "other", *ends, list(stored))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def chain(length: int) -> ModelProto:
    """So many nodes on a few numbers."""
    nodes = [helper.make_node("Sqrt", ["x" if not n else f"y{n - 1}"], [f"y{n}"]) for n in range(length)]
    return _model(nodes, f"y{length - 1}", (WIDE,), TensorProto.FLOAT, ())
