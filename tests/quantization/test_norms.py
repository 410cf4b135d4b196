"""Batch normalisations that stand alone compute in integers, with a scale for each channel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.quantization.prepare.norms import norms_as_convolutions
from convertkit.quantization.prepare.norms_in_parts import norms_in_parts
from convertkit.recipe import ExportOptions
from tests.quantization.conftest import TARGETS
from tests.quantization.models import artifact_of, images, model_of


def pre_activation(rank: int = 4):
    """Relu, a normalisation that no convolution can absorb, Relu, and a convolution."""
    rng = np.random.default_rng(0)
    draw = {"scale": rng.uniform(0.1, 4, 3), "shift": rng.normal(size=3), "mean": rng.normal(size=3)}
    draw |= {"variance": rng.uniform(0.1, 9, 3), "w": rng.normal(size=(8, 3, *[3] * (rank - 2)))}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node(
            "BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"], "norm", epsilon=1e-3
        ),
        helper.make_node("Relu", ["b"], ["c"], "second"),
        helper.make_node("Conv", ["c", "w"], ["y"], "conv"),
    ]
    constants = {name: value.astype(np.float32) for name, value in draw.items()}
    sizes = [12] * (rank - 2)
    return model_of(nodes, constants, {"x": ["N", 3, *sizes]}, {"y": ["N", 8, *[10] * (rank - 2)]})


@pytest.mark.parametrize("rank", [3, 4])
def test_the_convolution_computes_the_same(rank: int) -> None:
    proto = pre_activation(rank)
    model = ir.from_proto(proto)
    for value in (*model.graph.inputs, *(value for node in model.graph for value in node.outputs)):
        value.dtype, value.shape = ir.DataType.FLOAT, value.shape or ir.Shape(["N", 3, *[12] * (rank - 2)])
    norms_as_convolutions(model)
    assert [node.op_type for node in model.graph] == ["Relu", "Conv", "Relu", "Conv"]
    x = {"x": np.random.default_rng(1).normal(size=(2, 3, *[12] * (rank - 2))).astype(np.float32)}
    expected, got = (
        ort.InferenceSession(each.SerializeToString()).run(None, x)[0] for each in (proto, ir.to_proto(model))
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_every_operator_is_an_integer(quantized) -> None:
    result = quantized(pre_activation(), images(24), full_integer=True)
    assert result.operators() == ["Relu", "Conv", "Conv"]
    assert result.snr_db(images(16, 5)) > 30


def of_vectors(*, head: bool):
    """Columns of a table, normalised, or the result of a dense layer's activation."""
    rng = np.random.default_rng(0)
    wide = 6 if head else 16
    draw = {"scale": rng.uniform(0.1, 4, wide), "shift": rng.normal(size=wide), "mean": rng.normal(size=wide)}
    draw |= {"variance": rng.uniform(0.1, 9, wide), "w": rng.normal(size=(wide, 5)), "v": rng.normal(size=(6, 16))}
    first = [] if head else [helper.make_node("Gemm", ["x", "v"], ["d"]), helper.make_node("Relu", ["d"], ["a"])]
    nodes = [
        *first,
        helper.make_node(
            "BatchNormalization", ["x" if head else "a", "scale", "shift", "mean", "variance"], ["b"], "norm"
        ),
        helper.make_node("Gemm", ["b", "w"], ["y"], "dense"),
    ]
    constants = {name: value.astype(np.float32) for name, value in draw.items() if name != "v" or not head}
    return model_of(nodes, constants, {"x": ["N", 6]}, {"y": ["N", 5]})


@pytest.mark.parametrize("head", [True, False])
def test_those_of_vectors_are_integers_where_all_is(quantized, head: bool) -> None:
    data = np.random.default_rng(1).normal(size=(40, 6)).astype("f4")
    result = quantized(of_vectors(head=head), data, full_integer=True)
    assert "BatchNormalization" not in result.operators()
    assert result.snr_db(data) > 28
    assert "BatchNormalization" in quantized(of_vectors(head=head), data).operators()


def test_a_bias_of_two_axes_has_one_scale(quantized) -> None:
    rng = np.random.default_rng(0)
    constants = {"scale": rng.uniform(0.5, 2, (4, 6)).astype("f4"), "bias": rng.normal(size=(4, 6)).astype("f4")}
    norm = helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], "norm", axis=1)
    data = rng.normal(size=(24, 4, 6)).astype("f4")
    result = quantized(model_of([norm], constants, {"x": [1, 4, 6]}, {"y": [1, 4, 6]}), data, target="qnn")
    assert result.snr_db(data) > 30


def test_groups_of_channels_are_integers(quantized) -> None:
    rng = np.random.default_rng(0)
    constants = {"scale": rng.uniform(0.5, 2, 4).astype("f4"), "bias": rng.normal(size=4).astype("f4")}
    norm = helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["n"], "norm", num_groups=2)
    proto = model_of(
        [norm, helper.make_node("Relu", ["n"], ["y"])],
        constants,
        {"x": ["N", 4, 6, 6]},
        {"y": ["N", 4, 6, 6]},
        opset=21,
    )
    data = rng.normal(size=(24, 4, 6, 6)).astype("f4")
    result = quantized(proto, data, full_integer=True)
    assert "GroupNormalization" not in result.operators()
    assert result.snr_db(data) > 30


@pytest.mark.parametrize(
    ("operator", "constants", "attributes"),
    [
        ("LayerNormalization", {"g": (6,), "b": (6,)}, {}),
        ("LayerNormalization", {"g": (4, 6)}, {"axis": 1, "epsilon": 0.5}),
        ("InstanceNormalization", {"g": (4,), "b": (4,)}, {}),
        ("GroupNormalization", {"g": (4,), "b": (4,)}, {"num_groups": 2}),
        ("RMSNormalization", {"g": (6,)}, {"axis": -1}),
    ],
)
@pytest.mark.parametrize(("profile", "is_in_parts"), [("tflite", True), ("onnxruntime", False)])
def test_parts_compute_the_same(tmp_path, operator, constants, attributes, profile, is_in_parts) -> None:
    rng = np.random.default_rng(0)
    stored = {name: rng.normal(size=shape).astype("f4") for name, shape in constants.items()}
    node = helper.make_node(operator, ["x", *stored], ["y"], "norm", **attributes)
    before = artifact_of(model_of([node], stored, {"x": [2, 4, 6]}, {"y": [2, 4, 6]}, opset=23), tmp_path)
    model = load_model(before.path)
    norms_in_parts(model, TARGETS[profile].profile(ExportOptions(source="x", precision="int8", full_integer=True)))
    after = save_model(model, tmp_path / "parts.onnx", "test")
    assert (operator not in {each.op_type for each in ir.load(after.path).graph}) == is_in_parts
    x = {"x": rng.normal(3, 2, (2, 4, 6)).astype("f4")}
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        np.testing.assert_allclose(other.run(x)["y"], one.run(x)["y"], rtol=1e-5, atol=1e-5)


WHOLE = {
    "its mean is an output": (helper.make_node("LayerNormalization", ["x", "g"], ["y", "mean"], "norm"), False),
    "its scale is computed": (helper.make_node("LayerNormalization", ["x", "x"], ["y"], "norm"), False),
    "it has a kernel of its own": (helper.make_node("LayerNormalization", ["x", "g"], ["y"], "norm"), True),
}


@pytest.mark.parametrize("why", WHOLE)
def test_other_normalizations_stay_whole(why: str) -> None:
    node, own = WHOLE[why]
    shapes = {name: [2, 4, 1 if name == "mean" else 6] for name in node.output}
    proto = model_of([node], {"g": np.ones(6, "f4")}, {"x": [2, 4, 6]}, shapes, opset=23)
    model = canonicalize(ir.from_proto(proto))
    chosen = TARGETS["tflite"].profile(ExportOptions(source="x", precision="int8", full_integer=True))
    more = {"LayerNormalization": chosen.operators["Relu"]} if own else {}
    norms_in_parts(model, replace(chosen, operators={**chosen.operators, **more}))
    assert "LayerNormalization" in {each.op_type for each in model.graph}
