"""Places that count from the end, and Softplus of large numbers, in the forms that phones' runtimes compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.targets.mnn.forms import write_forms
from tests import installed

RNG = np.random.default_rng(6)
X = RNG.standard_normal((3, 5, 4)).astype(np.float32)
UPDATES = RNG.standard_normal((3, 2, 4)).astype(np.float32)
ELEMENTS = np.array([[[-1, 0, -5, 4], [2, -2, 1, -3]]] * 3)
CASES = {
    "GatherElements": (ELEMENTS, {"axis": 1}),
    "ScatterElements": (ELEMENTS, {"axis": -2}),
    "GatherND": (np.array([[-1, -5], [0, 4], [-3, 2]]), {}),
    "GatherND by batch": (np.array([[-1], [0], [-5]]), {"batch_dims": 1}),
}
TYPED = [(name, np.int64) for name in CASES] + [(name, np.int32) for name in CASES if not name.startswith("GatherND")]
"""ONNX has int64 places for GatherND."""
INT64, INT32 = TensorProto.INT64, TensorProto.INT32


def model_of(
    name: str, kind: int = INT64, sizes: tuple[int | str, ...] = X.shape, stored: np.ndarray | None = None
) -> onnx.ModelProto:
    """``x`` at places ``i``, which are an input unless they are stored."""
    op, (places, attributes) = name.split(maxsplit=1)[0], CASES[name]
    inputs = {"x": (TensorProto.FLOAT, sizes), "i": (kind, places.shape)}
    if op == "ScatterElements":
        inputs["u"] = TensorProto.FLOAT, UPDATES.shape
    names, constants = list(inputs), []
    if stored is not None:
        constants, inputs = [numpy_helper.from_array(stored, "i")], {key: inputs[key] for key in inputs if key != "i"}
    ports = [helper.make_tensor_value_info(key, *each) for key, each in inputs.items()]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], "node", **attributes)], "g", ports,
        [helper.make_empty_tensor_value_info("y")], constants,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def feed_of(name: str, dtype: type[np.signedinteger] = np.int64) -> dict[str, np.ndarray]:
    feed = {"x": X, "i": CASES[name][0].astype(dtype)}
    return {**feed, "u": UPDATES} if name == "ScatterElements" else feed


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> np.ndarray:
    (made,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    return np.asarray(made)


@pytest.mark.parametrize(("name", "dtype"), TYPED)
@pytest.mark.parametrize("sizes", [X.shape, (3, "N", "M")], ids=["known", "open"])
def test_places_are_counted_from_the_start(name, dtype, sizes):
    """A runtime that does not look at the sign gets none below 0."""
    proto = model_of(name, INT64 if dtype is np.int64 else INT32, sizes)
    model = ir.from_proto(proto)
    write_forms(model)
    after = ir.to_proto(model)
    places = next(node for node in after.graph.node if node.name == "node").input[1]
    feed = feed_of(name, dtype)
    assert np.array_equal(run(after, feed), run(proto, feed))
    after.graph.output.append(helper.make_empty_tensor_value_info(places))
    _, counted = onnxruntime.InferenceSession(after.SerializeToString()).run(None, feed)
    assert (counted >= 0).all()


def test_stored_places_from_0_on_are_left():
    model = ir.from_proto(model_of("GatherElements", stored=np.abs(ELEMENTS)))
    write_forms(model)
    assert [node.op_type for node in model.graph] == ["GatherElements"]


def test_places_of_an_unknown_number_are_refused():
    proto = model_of("GatherND")
    proto.graph.input[1].type.tensor_type.shape.dim[1].ClearField("dim_value")
    with pytest.raises(Unsupported, match=r"^node \(GatherND\): how many places"):
        write_forms(ir.from_proto(proto))


@pytest.mark.parametrize("name", CASES)
def test_mnn_counts_them(tmp_path, name):
    installed.needs("MNN")
    onnx.save(model_of(name), tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "mnn", output=tmp_path / "out")
    feed = feed_of(name)
    assert np.array_equal(made.run(feed)["y"], run(model_of(name), feed))


@pytest.mark.parametrize(("target", "module"), [("mnn", "MNN"), ("ncnn", "ncnn")])
def test_softplus_of_large_numbers(tmp_path: Path, target: str, module: str) -> None:
    """MNN's own is 87 from there on, ncnn's infinite from 89."""
    installed.needs(module)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Softplus", ["x"], ["y"])], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", target, output=tmp_path / "out")
    feed = {"x": np.array([[-200, -20, -1, 0, 1, 88, 200, 1e30]], np.float32)}
    assert np.allclose(made.run(feed)["y"], run(model, feed), rtol=1e-5, atol=1e-7)
