"""A pointwise convolution goes in front of the Resize that enlarges what it reads, and computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper

import convertkit
from convertkit.quantization.prepare.resizing import convolve_before_enlarging
from tests.quantization.models import model_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 5, 7)).astype(np.float32)
WEIGHT, BIAS = RNG.standard_normal((4, 6, 1, 1)).astype(np.float32), RNG.standard_normal(4).astype(np.float32)
DOUBLE = {"scales": np.array([1, 1, 2, 3], np.float32)}


def resized(
    target: dict[str, np.ndarray] | None = None,
    weight: np.ndarray = WEIGHT,
    behind: str = "Neg",
    conv: dict[str, object] | None = None,
    **resize: object,
) -> onnx.ModelProto:
    """Resize, Conv and one more operator, for a batch of any size."""
    target = target or DOUBLE
    given = ["x", "", "scales"] if "scales" in target else ["x", "", "", "sizes"]
    nodes = [
        helper.make_node("Resize", given, ["large"], **{"mode": "linear", **resize}),
        helper.make_node("Conv", ["large", "w", "b"], ["c"], **(conv or {})),
        helper.make_node(behind, ["c"], ["y"]),
    ]
    constants = {**target, "w": weight, "b": BIAS[: len(weight)]}
    model = model_of(nodes, constants, {"x": ["N", 6, 5, 7]}, {"y": None}, 18)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def changed(model: onnx.ModelProto) -> onnx.ModelProto:
    found = ir.from_proto(model)
    convolve_before_enlarging(found)
    made = ir.to_proto(found)
    onnx.checker.check_model(made, full_check=True)
    return made


@pytest.mark.parametrize(
    "model",
    [
        resized(),
        resized(behind="Identity"),
        resized({"sizes": np.array([2, 6, 10, 15])}),
        resized(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        resized(coordinate_transformation_mode="align_corners"),
        resized(weight=RNG.standard_normal((6, 6, 1, 1)).astype(np.float32)[:4]),
    ],
    ids=["linear", "at the end", "sizes", "nearest", "align_corners", "other weights"],
)
def test_the_convolution_goes_in_front_and_the_numbers_stay(model: onnx.ModelProto) -> None:
    made = changed(model)
    assert kinds(made)[:2] == ["Conv", "Resize"]
    expected, got = (onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": X})[0]
                     for each in (model, made))  # fmt: skip
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    shapes = {each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in made.graph.value_info}
    assert shapes["c/small"][1:] == [4, 5, 7]


def test_the_output_of_the_graph_keeps_its_name() -> None:
    model = resized()
    del model.graph.node[2:]
    model.graph.node[1].output[0] = "y"
    made = changed(model)
    assert [(node.op_type, node.output[0]) for node in made.graph.node] == [("Conv", "y/small"), ("Resize", "y")]


@pytest.mark.parametrize(
    "model",
    [
        resized({"scales": np.array([1, 1, 0.5, 0.5], np.float32)}),
        resized({"scales": np.array([1, 1, 0.5, 4], np.float32)}),
        resized(mode="cubic"),
        resized(coordinate_transformation_mode="tf_crop_and_resize"),
        resized(behind="Relu"),
        resized(conv={"strides": [2, 2]}),
        resized(conv={"pads": [1, 0, 0, 0]}),
        resized(conv={"group": 2}, weight=WEIGHT[:, :3]),
        resized(weight=RNG.standard_normal((4, 6, 1, 3)).astype(np.float32)),
    ],
    ids=[
        *("smaller", "smaller on one axis", "cubic", "outside", "clamped"),
        *("strides", "pads", "groups", "window"),
    ],
)
def test_other_pairs_stay(model: onnx.ModelProto) -> None:
    assert kinds(changed(model))[0] == "Resize"


def test_sizes_that_keep_the_aspect_ratio_stay() -> None:
    model = resized({"sizes": np.array([2, 6, 10, 15])}, keep_aspect_ratio_policy="not_larger")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    model.graph.value_info.append(helper.make_tensor_value_info("large", onnx.TensorProto.FLOAT, [2, 6, 10, 14]))
    model.graph.value_info.append(helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, [2, 4, 10, 14]))
    found = ir.from_proto(model)
    convolve_before_enlarging(found)
    assert next(node.op_type for node in found.graph) == "Resize"


def test_more_channels_behind_it_stay() -> None:
    model = resized(weight=np.concatenate([WEIGHT, WEIGHT]))
    model.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(np.concatenate([BIAS, BIAS]), "b"))
    assert kinds(changed(model))[0] == "Resize"


def test_what_others_read_stays() -> None:
    model = resized()
    model.graph.node.append(helper.make_node("Abs", ["large"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["N", 6, 10, 21]))
    assert kinds(changed(model))[0] == "Resize"


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_integers_around_it_are_delivered(target: str, tmp_path: Path) -> None:
    first = RNG.standard_normal((16, 8, 3, 3)).astype(np.float32) / 8
    second, third = (RNG.standard_normal(shape).astype(np.float32) / 4 for shape in ((8, 16, 1, 1), (16, 16, 3, 3)))
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Resize", ["r1", "", "scales"], ["large"], mode="linear"),
        helper.make_node("Conv", ["large", "w2"], ["c2"]),
        helper.make_node("Concat", ["c2", "c2"], ["both"], axis=1),
        helper.make_node("Conv", ["both", "w3"], ["y"], pads=[1] * 4),
    ]
    constants = {"w1": first, "w2": second, "w3": third, "scales": np.array([1, 1, 2, 2], np.float32)}
    source = tmp_path / "net.onnx"
    onnx.save(model_of(nodes, constants, {"x": [1, 8, 24, 20]}, {"y": [1, 16, 48, 40]}), source)
    data = {"x": np.random.default_rng(2).standard_normal((32, 8, 24, 20)).astype(np.float32)}
    result = convertkit.export(source, target, int8=True, calib=data, output=tmp_path / "out")
    assert result.report["passed"]
    step = next(step for step in result.report["steps"] if step["stage"] == "quantize")
    assert step["diagnosis"]["held_out"]["snr_db"] > 25
