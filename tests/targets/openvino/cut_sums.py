"""What OpenVINO's integer kernels compute of 255 everywhere, on the processor that ``ONEDNN_MAX_CPU_ISA`` names.

``python -m tests.targets.openvino.cut_sums`` prints for each form the largest difference from the exact sum: of weights
that are limited, and of the greatest ones.  The variable is read once, where OpenVINO is loaded.
"""

from __future__ import annotations

import json

import numpy as np
import openvino
from onnx import TensorProto, helper, numpy_helper

from convertkit.onnx.byte_sums import limited

RNG = np.random.default_rng(0)
FORMS: dict[str, tuple[str, tuple[int, ...], int]] = {
    "pointwise": ("Conv", (24, 16, 1, 1), 1),
    "odd channels": ("Conv", (24, 7, 3, 3), 1),
    "three channels": ("Conv", (24, 3, 3, 3), 1),
    "two channels": ("Conv", (24, 2, 5, 3), 1),
    "one channel": ("Conv", (24, 1, 5, 5), 1),
    "one channel, a line": ("Conv", (24, 1, 1, 4), 1),
    "one axis": ("Conv", (24, 9, 3), 1),
    "volumes": ("Conv", (24, 5, 3, 3, 3), 1),
    "groups": ("Conv", (24, 4, 3, 3), 4),
    "odd groups": ("Conv", (12, 3, 1, 1), 4),
    "groups of one channel": ("Conv", (32, 1, 3, 3), 16),
    "depthwise": ("Conv", (16, 1, 3, 3), 16),
    "depthwise, three channels": ("Conv", (3, 1, 5, 5), 3),
    "depthwise, a line": ("Conv", (36, 1, 4), 36),
    "transposed": ("ConvTranspose", (10, 12, 2, 2), 1),
    "transposed groups": ("ConvTranspose", (12, 6, 2, 2), 2),
    "dense": ("MatMul", (48, 24), 1),
    "dense, odd": ("MatMul", (33, 5), 1),
}
"""Operator, the shape of its weight, groups."""


def rows(weight: np.ndarray, operator: str, groups: int) -> tuple[np.ndarray, int]:
    """(outputs, channels × taps), and how many taps there are."""
    if operator == "MatMul":
        return weight.T, 1
    taps = int(np.prod(weight.shape[2:]))
    if operator == "Conv":
        return weight.reshape(len(weight), -1), taps
    by_group = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], taps).swapaxes(1, 2)
    return by_group.reshape(-1, by_group.shape[2] * taps), taps


def back(made: np.ndarray, shape: tuple[int, ...], operator: str, groups: int) -> np.ndarray:
    """The inverse of :func:`rows`."""
    if operator == "MatMul":
        return made.T
    if operator == "Conv":
        return made.reshape(shape)
    by_group = made.reshape(groups, shape[1], shape[0] // groups, -1).swapaxes(1, 2)
    return by_group.reshape(shape)


def computed(weight: np.ndarray, operator: str, groups: int, *, floats: bool = False) -> np.ndarray:
    """Sums of 255 times the weights, as bytes or as floats."""
    axis = 0 if operator == "Conv" else 1
    stored = {"s": np.float32(1), "z": np.uint8(0)}
    stored |= {"ws": np.ones(weight.shape[axis], np.float32), "wz": np.zeros(weight.shape[axis], np.int8)}
    stored["w"] = weight.astype(np.float32 if floats else np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=axis),
    ]
    attributes = {} if operator == "MatMul" else {"group": groups}
    nodes = [] if floats else nodes
    nodes.append(helper.make_node(operator, ["x", "w"] if floats else ["d", "v"], ["y"], **attributes))
    channels = weight.shape[1] * groups if operator == "Conv" else weight.shape[0]
    shape = [3, channels] if operator == "MatMul" else [1, channels, *[9] * (weight.ndim - 2)]
    graph = helper.make_graph(
        nodes, "one", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in stored.items() if not floats or name == "w"],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    core = openvino.Core()
    model = core.read_model(proto.SerializeToString(), b"")
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled(np.full(shape, 255, np.float32))[0]


def off(weight: np.ndarray, operator: str, groups: int) -> float:
    """The largest difference of integers from floats."""
    return float(np.abs(computed(weight, operator, groups) - computed(weight, operator, groups, floats=True)).max())


def main() -> None:
    """Print all of it."""
    found = {}
    for name, (operator, shape, groups) in FORMS.items():
        full = RNG.choice([-127, -90, 90, 127], shape)
        lines, taps = rows(full, operator, groups)
        made = back(limited(lines, taps, "in a tap"), shape, operator, groups)
        found[name] = [off(made, operator, groups), off(np.full(shape, 127), operator, groups)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
