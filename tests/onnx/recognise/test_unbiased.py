"""Biases that the mean of an instance normalisation takes away are not computed."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.artifact import Artifact
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.recognise.unbiased import UNBIASED
from convertkit.onnx.specs import interface
from convertkit.onnx.twin import Twin

NORM = "y = InstanceNormalization({x}, scale, shift)"
ADDED = {
    "a convolution's": "t = Conv<pads = [1, 1, 1, 1]>(x, w, b)",
    "a transposed convolution's": "t = ConvTranspose<pads = [1, 1, 1, 1]>(x, w, b)",
    "a sum's": "s = Sigmoid(x) t = Add(s, plane)",
    "a sum's, first": "s = Sigmoid(x) t = Add(plane, s)",
    "a difference's": "s = Sigmoid(x) t = Sub(s, plane)",
    "two, one behind the other": "c = Conv<pads = [1, 1, 1, 1]>(x, w, b) s = Add(c, plane) t = Sub(s, one)",
    "one number": "s = Sigmoid(x) t = Add(s, one)",
}
STAYS = {
    "another reader": "c = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) z = ReduceMax<keepdims = 0>(r) t = Add(c, z)",
    "infinite": "t = Conv<pads = [1, 1, 1, 1]>(x, w, infinite)",
    "varies within a channel": "s = Sigmoid(x) t = Add(s, row)",
    "taken from": "s = Sigmoid(x) t = Sub(plane, s)",
}


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"w": (3, 3, 3, 3), "b": (3,), "plane": (3, 1, 1), "one": (), "scale": (3,), "shift": (3,), "row": (6,)}
    found = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**found, "infinite": np.array([0, np.inf, 0], np.float32)}


def parsed(body: str) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[N,3,5,6] x) => (float[N,3,5,6] y) '
    model = onnx.parser.parse_model(f"{head} {{ {body} {NORM.format(x='t')} }}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in arrays().items())
    return model


def canonical(model: onnx.ModelProto) -> onnx.ModelProto:
    return ir.to_proto(canonicalize(ir.from_proto(model)))


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def has_bias(model: onnx.ModelProto) -> bool:
    """Whether a convolution has a bias, or a sum in front of the normalisation reads a constant or a computed plane."""
    sums = [each for each in model.graph.node if each.op_type in ("Add", "Sub")]
    shifts = {each.output[0] for each in model.graph.node if each.op_type == "Slice"}
    biased = any("Conv" in each.op_type and len(each.input) > 2 for each in model.graph.node)
    return biased or any(not shifts & set(each.input) for each in sums)


@pytest.mark.parametrize("body", ADDED)
def test_what_the_mean_takes_away_is_not_added(body):
    model = parsed(ADDED[body])
    made = canonical(model)
    assert not has_bias(made)
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(run(made, x), run(model, x), atol=3e-6)


@pytest.mark.parametrize("body", STAYS)
def test_what_the_mean_does_not_take_away_stays(body):
    assert has_bias(canonical(parsed(STAYS[body])))


def test_a_constant_channel_is_exactly_the_shift():
    result = run(canonical(parsed(ADDED["a convolution's"])), np.zeros((1, 3, 5, 6), np.float32))
    assert (result == arrays()["shift"].reshape(1, 3, 1, 1)).all()


def test_the_source_may_round_as_its_biases_do(tmp_path):
    proto, path = canonical(parsed(ADDED["a convolution's"])), tmp_path / "model.onnx"
    assert any(prop.key == UNBIASED for node in proto.graph.node for prop in node.metadata_props)
    onnx.save(proto, path)
    with Twin(Artifact(path, "onnx", *interface(ir.from_proto(proto)), sha256="")) as twin:
        truth = twin.run({"x": np.zeros((1, 3, 5, 6), np.float32)})
    np.testing.assert_allclose(truth.values["y"], arrays()["shift"].reshape(1, 3, 1, 1) + np.zeros((1, 3, 5, 6)))
    own = 2.0**-24 * np.abs(arrays()["b"]) / np.sqrt(1e-5) * np.abs(arrays()["scale"])
    for channel, spread in enumerate(truth.spread["y"].max(axis=(0, 2, 3))):
        assert own[channel] / 5 < spread < 20 * own[channel]
