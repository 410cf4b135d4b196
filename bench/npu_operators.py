"""Single operators for ``bench/npus.py``: each as a model of its own, with samples to quantize by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (1, 8, 12, 12)
SAMPLES = 40
_RNG = np.random.default_rng(0)


@dataclass(frozen=True, slots=True)
class Case:
    """An operator: ``shapes`` of its inputs, constants behind them (None where one is left out), attributes."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    constants: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    positive: bool = False

    @property
    def kind(self) -> str:
        """The operator without what tells one case from another."""
        return self.name.partition(", ")[0]

    def model(self) -> onnx.ModelProto:
        """One node, called ``node``."""
        inputs = [f"x{place}" for place in range(len(self.shapes))]
        kept = [("" if value is None else f"c{place}", value) for place, value in enumerate(self.constants)]
        outputs = ["y", "z"] if self.kind == "Split" else ["y"]
        node = helper.make_node(self.kind, [*inputs, *(name for name, _ in kept)], outputs, "node", **self.attributes)
        ports = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
            for name, shape in zip(inputs, self.shapes, strict=True)
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in kept if name]
        graph = helper.make_graph([node], "g", ports, results, constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made)

    def samples(self) -> dict[str, np.ndarray]:
        """Normally distributed, or their magnitudes."""
        rng = np.random.default_rng(1)
        drawn = [rng.normal(0, 1, (SAMPLES, *shape[1:])).astype(np.float32) for shape in self.shapes]
        return {f"x{place}": np.abs(each) + 0.05 if self.positive else each for place, each in enumerate(drawn)}


def _weights(*shape: int) -> np.ndarray:
    return _RNG.normal(0, 0.2, shape).astype(np.float32)


def _whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _products() -> Iterator[Case]:
    yield Case("Conv", (IMAGE,), (_weights(16, 8, 3, 3), _weights(16)), {"pads": [1] * 4})
    yield Case("Conv, depthwise", (IMAGE,), (_weights(8, 1, 3, 3), _weights(8)), {"pads": [1] * 4, "group": 8})
    yield Case("Conv, strides", (IMAGE,), (_weights(16, 8, 3, 3),), {"strides": [2, 2]})
    yield Case("Conv, dilations", (IMAGE,), (_weights(16, 8, 3, 3),), {"dilations": [2, 2]})
    yield Case("Conv, one axis", ((1, 8, 24),), (_weights(16, 8, 3),), {"pads": [1, 1]})
    yield Case("ConvTranspose", (IMAGE,), (_weights(8, 16, 2, 2), _weights(16)), {"strides": [2, 2]})
    yield Case("Gemm", ((1, 32),), (_weights(10, 32), _weights(10)), {"transB": 1})
    yield Case("MatMul", ((1, 6, 32),), (_weights(32, 10),))
    yield Case("MatMul, of two inputs", ((1, 4, 6, 16), (1, 4, 16, 6)))


def _elementwise() -> Iterator[Case]:
    for kind in ("Add", "Sub", "Mul", "Max", "Min"):
        yield Case(kind, (IMAGE, IMAGE))
    yield Case("Add, of a constant", (IMAGE,), (_weights(1, 8, 1, 1),))
    yield Case("Mul, by a constant", (IMAGE,), (_weights(1, 8, 1, 1),))
    yield Case("Div, by a constant", (IMAGE,), (np.float32(3.7),))
    yield Case("Pow, squared", (IMAGE,), (np.float32(2),))
    for kind in ("Relu", "Elu", "Gelu", "HardSwish", "HardSigmoid", "Sigmoid", "Tanh", "Erf", "Abs", "Neg", "Exp"):
        yield Case(kind, (IMAGE,))
    for kind in ("Softplus", "Selu", "ThresholdedRelu", "Sign", "Sin", "Cos", "Atan", "Round", "Floor"):
        yield Case(kind, (IMAGE,))
    for kind in ("Sqrt", "Log", "Reciprocal"):
        yield Case(kind, (IMAGE,), positive=True)
    for kind in ("Mean", "Sum"):
        yield Case(kind, (IMAGE, IMAGE))
    yield Case("Clip", (IMAGE,), (np.float32(-0.5), np.float32(1.5)))
    yield Case("LeakyRelu", (IMAGE,), attributes={"alpha": 0.2})
    yield Case("PRelu", (IMAGE,), (np.abs(_weights(8, 1, 1)),))
    yield Case("Softmax", ((1, 6, 20),), attributes={"axis": -1})
    yield Case("Softmax, over channels", (IMAGE,), attributes={"axis": 1})
    yield Case("LogSoftmax", ((1, 6, 20),), attributes={"axis": -1})
    yield Case("LRN", (IMAGE,), attributes={"size": 3})
    yield Case("LpNormalization", (IMAGE,), attributes={"axis": 1})
    yield Case("InstanceNormalization", (IMAGE,), (_weights(8), _weights(8)))
    yield Case("LayerNormalization", ((1, 6, 32),), (_weights(32), _weights(32)))


def _pooling() -> Iterator[Case]:
    halves = {"kernel_shape": [2, 2], "strides": [2, 2]}
    padded = {"kernel_shape": [3, 3], "pads": [1] * 4}
    for kind in ("AveragePool", "MaxPool"):
        yield Case(kind, (IMAGE,), attributes=halves)
        yield Case(f"{kind}, padded", (IMAGE,), attributes=padded)
    yield Case("AveragePool, counting padding", (IMAGE,), attributes={**padded, "count_include_pad": 1})
    for kind in ("GlobalAveragePool", "GlobalMaxPool"):
        yield Case(kind, (IMAGE,))
    for kind in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"):
        yield Case(kind, (IMAGE,), (_whole(2, 3),))


def _moves() -> Iterator[Case]:
    twice = (None, np.array([1, 1, 2, 2], np.float32))
    nearest = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    yield Case("Concat", (IMAGE, IMAGE), attributes={"axis": 1})
    yield Case("Pad", (IMAGE,), (_whole(0, 0, 1, 1, 0, 0, 1, 1),))
    yield Case("Reshape", (IMAGE,), (_whole(1, -1),))
    yield Case("Flatten", (IMAGE,))
    yield Case("Squeeze", ((1, 8, 1, 12),), (_whole(2),))
    yield Case("Unsqueeze", ((1, 8, 12),), (_whole(2),))
    yield Case("Transpose", (IMAGE,), attributes={"perm": [0, 2, 3, 1]})
    yield Case("Slice", (IMAGE,), (_whole(1), _whole(9), _whole(2)))
    yield Case("Split", (IMAGE,), attributes={"axis": 1, "num_outputs": 2})
    yield Case("Gather", (IMAGE,), (_whole(0, 3, 1),), {"axis": 1})
    yield Case("Expand", ((1, 8, 1, 12),), (_whole(1, 8, 5, 12),))
    yield Case("Tile", (IMAGE,), (_whole(1, 2, 1, 1),))
    yield Case("Resize, nearest", (IMAGE,), twice, nearest)
    yield Case("Resize, linear", (IMAGE,), twice, {"mode": "linear"})
    yield Case("DepthToSpace", (IMAGE,), attributes={"blocksize": 2})
    yield Case("SpaceToDepth", (IMAGE,), attributes={"blocksize": 2})


def cases() -> tuple[Case, ...]:
    """All of them, in the order of the page."""
    return (*_products(), *_elementwise(), *_pooling(), *_moves())
