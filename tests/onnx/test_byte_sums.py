"""Sums of two products of bytes fit into 16 bits, or weights are unsigned: the same numbers on every x86."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.errors import ParityError
from convertkit.onnx.byte_sums import MOST, greatest_sums, limited
from convertkit.onnx.onnxruntime_compat import cuts_sums
from convertkit.onnx.unsigned import has_cut_sums, uncut, widen_weights

RNG = np.random.default_rng(0)


def summed(rows: np.ndarray, taps: int, activation: int = 255) -> np.ndarray:
    """What ``vpmaddubsw`` and the sum behind it make of equal activations; ``rows`` (n, channels × taps)."""
    last = rows.reshape(len(rows), -1, taps).swapaxes(1, 2).reshape(len(rows), -1).astype(np.int64) * activation
    even = np.pad(last, ((0, 0), (0, last.shape[1] % 2)))
    return np.clip(even[:, ::2] + even[:, 1::2], -(2**15), 2**15 - 1).sum(axis=1)


@pytest.mark.parametrize(("channels", "taps"), [(8, 1), (7, 1), (3, 9), (4, 4), (1, 9)])
def test_limited_weights_are_summed_exactly(channels: int, taps: int) -> None:
    full = RNG.integers(-127, 128, (64, channels * taps))
    made = limited(full, taps)
    assert greatest_sums(made, taps).max() == MOST
    assert np.array_equal(summed(made, taps), made.sum(axis=1) * 255)
    assert not np.array_equal(summed(full, taps), full.sum(axis=1) * 255), "power: others are cut"
    changed = made != full
    assert 0 < changed.mean() < 0.5
    assert (np.abs(made) <= np.abs(full)).all()
    assert np.array_equal(limited(made, taps), made)


FORMS = {
    "1d": ((16, 3, 5), 1, {}),
    "1d, groups": ((16, 4, 3), 4, {}),
    "1d, dilated": ((16, 8, 3), 1, {"dilations": [2]}),
    "odd channels": ((7, 5, 3, 3), 1, {}),
    "one output": ((1, 16, 3, 3), 1, {}),
    "strides and pads": ((16, 8, 3, 3), 1, {"strides": [2, 2], "pads": [1] * 4}),
    "pointwise": ((6, 7, 1, 1), 1, {}),
    "groups of odd size": ((12, 3, 3, 3), 3, {}),
    "channel multiplier": ((32, 1, 3, 3), 16, {}),
    "flat kernel": ((8, 3, 1, 7), 1, {}),
    "volumes": ((8, 3, 2, 3, 3), 1, {}),
}


def convolved(weight: np.ndarray, groups: int, level: str, **attributes: object) -> np.ndarray:
    """Sums of a quantized convolution of 255 everywhere, in steps of its output."""
    channels, rank = weight.shape[1] * groups, weight.ndim - 2
    step = max(1.0, np.abs(weight.astype(int)).reshape(len(weight), -1).sum(axis=1).max() / 120)
    ones, zeros = np.ones(len(weight), np.float32), np.zeros(len(weight), np.int8)
    constants = {"w": weight.astype(np.int8), "ws": ones, "wz": zeros, "s": np.float32(1 / 255), "z": np.uint8(0)}
    constants |= {"os": np.float32(step), "oz": np.uint8(128)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=0),
        helper.make_node("Conv", ["d", "v"], ["c"], group=groups, **attributes),
        helper.make_node("QuantizeLinear", ["c", "os", "oz"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "os", "oz"], ["y"]),
    ]
    x = np.ones((1, channels, *[9] * rank), np.float32)
    graph = helper.make_graph(
        nodes, "one", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})[0] / step


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_ENABLE_EXTENDED"])
@pytest.mark.parametrize(("shape", "groups", "attributes"), FORMS.values(), ids=FORMS)
def test_every_kernel_of_a_convolution_keeps_to_the_order(
    shape: tuple[int, ...], groups: int, attributes: dict[str, object], level: str
) -> None:
    """Which two weights meet is the kernel's own affair: held against the graph in floats, on this processor."""
    full = RNG.choice([-127, -90, 90, 127], shape)
    made = limited(full.reshape(shape[0], -1), int(np.prod(shape[2:]))).reshape(shape)
    wanted = convolved(made, groups, "ORT_DISABLE_ALL", **attributes)
    assert np.abs(convolved(made, groups, level, **attributes) - wanted).max() < 0.5
    if cuts_sums():  # power: such an input does overflow
        loud = np.full(shape, 127)
        wanted = convolved(loud, groups, "ORT_DISABLE_ALL", **attributes)
        assert np.abs(convolved(loud, groups, level, **attributes) - wanted).max() > 2


def network(path: Path) -> Path:
    """Convolutions, one of them depthwise, and a dense layer, large enough that integers pay."""
    shapes = {"a": (64, 3, 3, 3), "d": (64, 1, 3, 3), "b": (64, 64, 3, 3), "w": (10, 64)}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "d"], ["e"], pads=[1] * 4, group=64),
        helper.make_node("Relu", ["e"], ["s"]),
        helper.make_node("Conv", ["s", "b"], ["f"], pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("Gemm", ["h", "w"], ["y"], transB=1),
    ]
    weights = [numpy_helper.from_array(RNG.standard_normal(s).astype(np.float32) / 8, n) for n, s in shapes.items()]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def weights_of(path: Path) -> dict[str, np.ndarray]:
    model = ir.load(path)
    return {str(v.name): v.const_value.numpy() for v in model.graph.initializers.values() if len(v.shape or ()) > 1}


def test_delivered_weights_fit_every_processor(tmp_path: Path) -> None:
    images = RNG.standard_normal((16, 3, 16, 16)).astype(np.float32)
    asked = {"int8": True, "full_integer": True, "calib": {"x": images}}
    source = network(tmp_path / "net.onnx")
    path = convertkit.export(source, "onnxruntime", output=tmp_path / "any", **asked).artifact.path
    assert not has_cut_sums(ir.load(path))
    stored = weights_of(path)
    assert {array.dtype for array in stored.values()} == {np.dtype(np.int8)}, "signed: that is what VNNI multiplies"
    assert max(np.abs(array).max() for name, array in stored.items() if name.startswith("d")) == 127, (
        "depthwise is exact"
    )
    plain, default = ort.SessionOptions(), ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    loud = {"x": 4 * images}
    wanted, got = (ort.InferenceSession(path, options).run(None, loud)[0] for options in (plain, default))
    assert 10 * np.log10(np.square(wanted).sum() / np.square(wanted - got).sum()) > 40


def test_full_range_is_for_vnni_alone(tmp_path: Path) -> None:
    """Asked for, it is delivered where the processor keeps what the model computes, and refused where it does not."""
    images = RNG.standard_normal((16, 3, 16, 16)).astype(np.float32)
    asked = {"int8": True, "full_integer": True, "calib": {"x": images}, "output": tmp_path / "vnni"}
    asked["target_options"] = {"onnxruntime": {"cpu": "vnni"}}
    source = network(tmp_path / "net.onnx")
    if cuts_sums():
        with pytest.raises(ParityError):
            convertkit.export(source, "onnxruntime", **asked)
        return
    path = convertkit.export(source, "onnxruntime", **asked).artifact.path
    assert has_cut_sums(ir.load(path))
    assert min(np.abs(array).max() for array in weights_of(path).values()) == 127


@pytest.mark.parametrize("shape", [(6,), (6, 5), (2, 6, 5), (0, 5)], ids=str)
def test_weights_of_any_rank_are_looked_at(shape: tuple[int, ...]) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["v"]),
        helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]
    constants = {"w": np.full(shape, 100, np.int8), "s": np.float32(1), "xz": np.uint8(3)}
    wide = [2, 3, shape[-2] if len(shape) > 1 else shape[0]]
    graph = helper.make_graph(
        nodes, "one", [helper.make_tensor_value_info("x", TensorProto.UINT8, wide)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feed = {"x": RNG.integers(0, 256, wide).astype(np.uint8)}
    model = ir.from_proto(proto)
    assert widen_weights(model) == (0 if 0 in shape else 1)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    both = [proto, ir.to_proto(model)]
    one, other = (ort.InferenceSession(each.SerializeToString(), options).run(None, feed)[0] for each in both)
    assert np.array_equal(one, other)


@pytest.mark.parametrize("given", [True, False], ids=["zero points", "none"])
@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"])
def test_widened_weights_compute_the_same(op: str, given: bool) -> None:
    """Held against ONNX's reference evaluator: ONNX Runtime's own kernel is what may cut."""
    conv, linear = "Conv" in op, op.startswith("QLinear")
    constants = {"w": RNG.integers(-127, 128, (8, 6, 3, 3) if conv else (48, 8)).astype(np.int8)}
    constants |= {"xz": np.uint8(7), "wz": np.int8(0), "s": np.float32(1), "ys": np.float32(900), "yz": np.uint8(128)}
    names = ["x", "s", "xz", "w", "s", "wz", "ys", "yz"] if linear else ["x", "w", *(["xz", "wz"] if given else [])]
    kind = TensorProto.UINT8 if linear else TensorProto.INT32
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, names, ["y"])], "one",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 6, 5, 5] if conv else [4, 48])],
            [helper.make_tensor_value_info("y", kind, [1, 8, 3, 3] if conv else [4, 8])],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in names],
        ),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    feed = {"x": RNG.integers(0, 256, (1, 6, 5, 5) if conv else (4, 48)).astype(np.uint8)}
    model = ir.from_proto(proto)
    assert widen_weights(model) == 1
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    (got,) = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, feed)
    (wanted,) = ReferenceEvaluator(proto).run(None, feed)
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= (1 if linear else 0)
    (own,) = ort.InferenceSession(proto.SerializeToString()).run(None, feed)
    assert np.array_equal(own, got) or cuts_sums()
    assert (uncut(ir.from_proto(proto)).graph.initializers.keys() != {*constants}) or not cuts_sums()


def test_weights_behind_dynamic_quantization_are_looked_at_without_types() -> None:
    """``quantize_dynamic`` writes no types of values between nodes; what DynamicQuantizeLinear makes is unsigned."""
    proto = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
                helper.make_node("MatMulInteger", ["q", "w", "z"], ["y"]),
            ],
            "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
            [helper.make_tensor_value_info("y", TensorProto.INT32, [2, 4])],
            [numpy_helper.from_array(np.full((6, 4), 120, np.int8), "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    model = ir.from_proto(proto)
    assert has_cut_sums(model)
    assert widen_weights(model) == 1
    feed = {"x": np.ones((2, 6), np.float32)}
    (got,) = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, feed)
    assert np.array_equal(got, np.full((2, 4), 6 * 255 * 120))
