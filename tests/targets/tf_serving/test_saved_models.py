"""SavedModels for TensorFlow Serving: operators, the package, what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import MissingFramework, SourceError, Unsupported
from convertkit.targets.tf_serving.call import Call
from convertkit.targets.tf_serving.file import Graph, Operator, Steps, Tensor, check_steps
from convertkit.targets.tf_serving.foretold import foretell
from convertkit.targets.tf_serving.handlers import CONSTANTS, HANDLERS
from convertkit.targets.tf_serving.package import rest_response
from convertkit.targets.tf_serving.runner import SavedModelRunner, only_model
from tests.command_line import here

sys.path.insert(0, str(Path(__file__).resolve().parent))

import served_suite
import suite

WEIGHTS = np.random.default_rng(0).normal(0, 0.4, (6, 3, 3, 3)).astype(np.float32)
FEED = {"x": np.random.default_rng(1).normal(0, 1, (2, 3, 8, 8)).astype(np.float32)}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "stem", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["y/probabilities:0"], "flatten"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y/probabilities:0", TensorProto.FLOAT, ["N", 6])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("served") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def served(source):
    return convertkit.export(str(source), "tf-serving", output=source.parent / "served", progress=False)


def test_a_package_holds_a_model_and_its_requests(served):
    folder = only_model(served.path / "models")
    assert folder.relative_to(served.path).as_posix() == "models/net/1"
    assert (folder / "assets.extra" / "tf_serving_warmup_requests").stat().st_size > 3 * 8 * 8 * 4
    asked, answered = (
        json.loads((served.path / "golden" / f"{name}.json").read_text()) for name in ("request", "response")
    )
    given = np.asarray(asked["inputs"]["x"], np.float32)
    assert given.shape == (1, 8, 8, 3)
    with SavedModelRunner(served.artifact) as runner:
        (wanted,) = runner.run({"x": given.transpose(0, 3, 1, 2)}).values()
    assert np.allclose(answered["outputs"], wanted, atol=1e-6)


def transposes(package: Path) -> int:
    """How many the SavedModel executes, those of the functions that it calls among them."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    saved = SavedModel.FromString((only_model(package / "models") / "saved_model.pb").read_bytes())
    graphs = [each.graph_def for each in saved.meta_graphs]
    functions = [node for graph in graphs for each in graph.library.function for node in each.node_def]
    return sum(node.op == "Transpose" for node in [*functions, *(node for graph in graphs for node in graph.node)])


def test_images_are_not_transposed_between_kernels(served, source):
    """Channels last is what the kernels take, so that nothing is moved; the source's order costs one at its input."""
    assert transposes(served.path) == 0
    kept = convertkit.export(
        str(source), "tf-serving", output=source.parent / "kept", progress=False, input_layout="nchw"
    )
    assert transposes(kept.path) == 1


def test_names_are_the_sources_and_the_batch_is_dynamic(served):
    with SavedModelRunner(served.artifact) as runner:
        for batch in (1, 2):
            found = runner.run({"x": FEED["x"][:batch]})
            assert list(found) == ["y/probabilities:0"]
            assert found["y/probabilities:0"].shape == (batch, 6)


def test_what_was_verified_ran_out_of_the_package(served):
    """Another weight in the file alone: the runner computes something else."""
    file = only_model(served.path / "models") / "saved_model.pb"
    kept, bias = file.read_bytes(), WEIGHTS.transpose(2, 3, 1, 0)
    assert bias.tobytes() in kept
    with SavedModelRunner(served.artifact) as runner:
        (before,) = runner.run(FEED).values()
    try:
        file.write_bytes(kept.replace(bias.tobytes(), (2 * bias).tobytes()))
        with SavedModelRunner(served.artifact) as runner:
            (after,) = runner.run(FEED).values()
        assert np.allclose(after, 2 * before, atol=1e-5)
    finally:
        file.write_bytes(kept)
    with pytest.raises(SourceError, match="holds 0 SavedModels"):
        only_model(served.path / "golden")


def test_two_runs_give_the_same_bytes(source, served):
    again = convertkit.export(str(source), "tf-serving", output=source.parent / "again", progress=False)
    names = [file.relative_to(served.path) for file in served.path.rglob("*") if file.is_file()]
    names = [name for name in names if name.name not in ("report.json", "report.html", "manifest.json")]
    assert len(names) > 5
    for name in names:
        assert (again.path / name).read_bytes() == (served.path / name).read_bytes(), name


def test_force_replaces_what_an_export_wrote(source, served, tmp_path):
    """A folder is in no manifest: an empty one was nobody's, and --force refused its own package."""
    assert not [folder for folder in served.path.rglob("*") if folder.is_dir() and not any(folder.iterdir())]
    copied = tmp_path / "served"
    shutil.copytree(served.path, copied)
    again = convertkit.export(str(source), "tf-serving", output=copied, force=True, progress=False)
    assert (again.path / "manifest.json").read_text() == (served.path / "manifest.json").read_text()


def test_integers_are_refused_before_any_work(source):
    said = here("export", str(source), "-t", "tf-serving", "--int8", "-o", source.parent / "int8")
    assert said.code == 2
    assert "target tf-serving does not deliver int8" in said.complaint
    assert not (source.parent / "int8").exists()


def test_pixels_are_the_numbers_that_they_are(tmp_path):
    """TFLite's file says that by a scale of 1, which is not quantization."""
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["f"], "cast", to=TensorProto.FLOAT), helper.make_node("Sqrt", ["f"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["N", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "tf-serving", output=tmp_path / "out")
    pixels = np.array([[0, 1, 127, 128, 255]], np.uint8)
    np.testing.assert_allclose(made.run({"x": pixels})["y"], np.sqrt(pixels.astype(np.float32)), rtol=1e-6)


def _at_the_border(tmp_path, nodes, x, y, stored):
    """The package of a graph from ``x`` to ``y``, each a type and a shape."""
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", *x)], [helper.make_tensor_value_info("y", *y)],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    return convertkit.export(tmp_path / "m.onnx", "tf-serving", output=tmp_path / "out", progress=False)


@pytest.mark.parametrize(("dtype", "point"), [(np.uint8, 3), (np.int8, -5), (np.int16, 0)])
def test_reals_become_integers_at_an_output(tmp_path, dtype, point):
    """Halves to even, what lies beyond the type's bounds at these."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = _at_the_border(
        tmp_path, [helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["y"])],
        (TensorProto.FLOAT, ["N", 7]), (kind, ["N", 7]), {"scale": np.float32(0.5), "point": dtype(point)},
    )  # fmt: skip
    x = np.array([[0.25, 0.75, -0.25, -1.25, 3.0, 1e6, -1e6]], np.float32)
    bounds = np.iinfo(dtype)
    wanted = np.clip(np.rint(x / np.float32(0.5)) + point, bounds.min, bounds.max).astype(dtype)
    np.testing.assert_array_equal(made.run({"x": x})["y"], wanted)


@pytest.mark.parametrize(("dtype", "point"), [(np.uint8, 131), (np.int8, 7)])
def test_integers_stand_for_reals_at_an_input(tmp_path, dtype, point):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = _at_the_border(
        tmp_path,
        [helper.make_node("DequantizeLinear", ["x", "scale", "point"], ["r"]), helper.make_node("Exp", ["r"], ["y"])],
        (kind, ["N", 4]), (TensorProto.FLOAT, ["N", 4]), {"scale": np.float32(0.01), "point": dtype(point)},
    )  # fmt: skip
    bounds = np.iinfo(dtype)
    x = np.array([[bounds.min, point, point + 1, bounds.max]], dtype)
    wanted = np.exp((x.astype(np.float32) - point) * np.float32(0.01))
    np.testing.assert_allclose(made.run({"x": x})["y"], wanted, rtol=1e-6)


def test_an_operator_of_integers_is_refused(tmp_path):
    """TFLite's compiler makes an integer product of it."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "point"], ["r"]),
        helper.make_node("DequantizeLinear", ["w", "scale"], ["v"]),
        helper.make_node("MatMul", ["r", "v"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "scale", "point"], ["y"]),
    ]
    stored = {"scale": np.float32(0.1), "point": np.int8(3), "w": np.arange(-6, 6, dtype=np.int8).reshape(3, 4)}
    with pytest.raises(Unsupported, match="it is quantized, and a SavedModel computes in float"):
        _at_the_border(tmp_path, nodes, (TensorProto.INT8, ["N", 3]), (TensorProto.INT8, ["N", 4]), stored)


def test_integers_of_another_scale_are_refused():
    """TFLite's QUANTIZE computes those in whole numbers, and rounds in its own way."""
    halves, wholes = Steps((0.5,), (0,), 0), Steps((1.0,), (2,), 0)
    tensors = (Tensor("x", "int8", (2,), None, halves), Tensor("y", "int8", (2,), None, wholes))
    changed = Graph(tensors, (Operator("QUANTIZE", (0,), (1,)),), (0,), (1,))
    with pytest.raises(Unsupported, match="tensor y: it is quantized"):
        check_steps(changed)
    check_steps(replace(changed, tensors=(tensors[0], replace(tensors[1], steps=replace(halves, points=(2,))))))


def test_without_tensorflow_the_extra_is_named(source, monkeypatch):
    monkeypatch.setattr("convertkit.targets.tf_serving.find_spec", lambda name: None)
    with pytest.raises(MissingFramework, match=r"convertkit-ml\[tf-serving\]"):
        convertkit.export(str(source), "tf-serving", output=source.parent / "missing", progress=False)
    assert not (source.parent / "missing").exists()


def test_a_single_answer_stands_without_its_name():
    one, two = {"y": np.ones((1, 2))}, {"y": np.ones(1), "z": np.zeros(1)}
    assert json.loads(rest_response(one)) == {"outputs": [[1.0, 1.0]]}
    assert json.loads(rest_response(two)) == {"outputs": {"y": [1.0], "z": [0.0]}}


def _call(asked):
    """An operator whose constants tell who asks for them, in a TensorFlow that takes everything."""
    tf, value = MagicMock(unsafe=True), MagicMock(shape=(1, 1, 1, 1))
    value.__ge__.return_value = value
    tf.TensorShape.return_value = MagicMock(unsafe=True)  # else its ``assert_is_compatible_with`` is refused as a typo
    for made in (tf.constant, tf.transpose, tf.reshape):
        made.return_value.shape = (1, 1, 1, 1)
    given = [lambda: value] * 5

    class Asked(Call):
        def constant(self, place):
            asked.add(place)
            return np.zeros(1, np.int32)

    outputs = [Tensor(f"y{place}", "float32", (1, 1, 1, 1), None) for place in range(5)]
    return Asked(tf, given, [None] * 5, MagicMock(), outputs, MagicMock())


@pytest.mark.parametrize("code", sorted(HANDLERS))
def test_the_constants_that_a_handler_asks_for_are_listed(code):
    asked = set()
    options = {"fusedActivationFunction": 0, "padding": 0, "depthMultiplier": 1, "newShape": [1], "squeezeDims": [0]}
    call = replace(_call(asked), options=defaultdict(lambda: 1, options))
    HANDLERS[code](call)
    assert asked == set(CONSTANTS.get(code, ()))


def test_a_computed_input_that_has_to_be_stored_is_foretold():
    tensors = (
        Tensor("x", "float32", (2, 3), None),
        Tensor("axes", "int32", (1,), None),
        Tensor("y", "float32", (2,), None),
    )
    computed = Graph(tensors, (Operator("SUM", (0, 1), (2,)),), (0, 1), (2,))
    with pytest.raises(Unsupported, match="SUM: its input 1 is not a constant"):
        foretell([computed])
    stored = (tensors[0], replace(tensors[1], value=np.zeros(1, np.int32)), tensors[2])
    foretell([replace(computed, tensors=stored)])
    for operator, said in (
        (Operator("SVDF", (0,), (2,)), "SVDF is not written for TensorFlow"),
        (Operator("ADD", (0, 0), (2,), {"fusedActivationFunction": 5}), "fused activation"),
    ):
        with pytest.raises(Unsupported, match=said):
            foretell([replace(computed, tensors=stored, operators=(operator,))])


_EVERY = 40


def test_operators_compute_what_the_suite_says():
    """Each fortieth case of ONNX's node suite; all of them are run by night."""
    cases = suite.eligible()[::_EVERY]
    found = {case.name: result for case, result in served_suite.run(cases)}
    assert {name: result for name, result in found.items() if result["status"] not in ("right", "refused")} == {}
    assert sum(result["status"] == "right" for result in found.values()) > 0.9 * len(cases)
    assert len({code for result in found.values() for code in result["codes"]}) > 30


@pytest.mark.nightly
def test_all_operators_compute_what_the_suite_says():
    found = {case.name: result for case, result in served_suite.run(suite.eligible())}
    assert {name: result for name, result in found.items() if result["status"] not in ("right", "refused")} == {}
    assert sum(result["status"] == "right" for result in found.values()) > 0.9 * len(found)
