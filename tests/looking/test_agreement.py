"""``convertkit.verify``: two models of any formats compute the same, or it is told which output does not."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import convertkit
from convertkit.errors import NotProven, ParityError, SourceError, UsageError
from tests import onnx_models
from tests.looking.nets import image_net


@pytest.mark.parametrize("pair", [("net", "tflite"), ("tflite", "net"), ("onnxruntime", "tflite"), ("net", "net")])
def test_formats_agree(net, delivered, pair):
    places = {"net": net} | {name: result.path for name, result in delivered.items()}
    found = convertkit.verify(*(places[name] for name in pair))
    assert found.passed, found.headline
    assert found.failure is None
    assert found.report.tolerance.relative <= 4e-5
    assert len(found.report.edges) > 5


def test_integers_are_judged_as_their_export_was(net, delivered):
    found = convertkit.verify(net, delivered["int8"].path)
    assert found.passed
    assert found.report.tolerance.lossy
    assert found.report.worst.snr_db < 60


def test_a_tflite_file_alone_has_its_axes_elsewhere(net, delivered, tmp_path):
    place = tmp_path / "alone.tflite"
    place.write_bytes(delivered["tflite"].artifact.path.read_bytes())
    found = convertkit.verify(net, place)
    assert found.passed, found.headline
    assert any("axes in the order (0, 2, 3, 1)" in note for note in found.notes)


def changed(place, name, change):
    """The image model with one of its constants changed."""
    made = image_net()
    for stored in made.graph.initializer:
        if stored.name == name:
            stored.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(stored).copy()), name))
    return onnx_models.write(place, made, "changed.onnx")


def one_weight(array):
    array.flat[0] += np.float32(1e-3)
    return array


@pytest.mark.parametrize("name", ["w1", "b2", "w3"])
def test_a_fault_is_found(net, delivered, tmp_path, name):
    other = changed(tmp_path, name, one_weight)
    for reference in (net, delivered["tflite"].path):
        found = convertkit.verify(reference, other)
        assert not found.passed
        assert isinstance(found.failure, ParityError)
        assert "'y'" in found.headline or '"y"' in found.headline


def test_other_names_are_matched_by_order(net, tmp_path):
    made = image_net()
    for node in made.graph.node:
        node.input[:] = ["picture" if name == "x" else name for name in node.input]
    made.graph.input[0].name = "picture"
    found = convertkit.verify(net, onnx_models.write(tmp_path, made))
    assert found.passed
    assert "inputs are matched by their order: x = picture" in found.notes


def test_other_interfaces_are_refused(net, root, tmp_path):
    with pytest.raises(ParityError, match="cannot be compared"):
        convertkit.verify(net, root / "fixtures" / "brackets" / "model.onnx")
    made = image_net()
    made.graph.output.append(onnx.helper.make_tensor_value_info("f", 1, ["N", 8]))
    with pytest.raises(ParityError, match="has the outputs"):
        convertkit.verify(net, onnx_models.write(tmp_path, made))


def test_a_batch_that_is_fixed(net, tmp_path):
    made = image_net()
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    found = convertkit.verify(net, onnx_models.write(tmp_path, made))
    assert found.passed, found.headline


def test_what_says_nothing_is_not_verified(tmp_path):
    made = onnx_models.model(
        [
            onnx.helper.make_node("Abs", ["x"], ["a"]),
            onnx.helper.make_node("Mul", ["a", "w"], ["m"]),
            onnx.helper.make_node("Relu", ["m"], ["y"]),
        ],
        {"x": ["N", 5]},
        {"y": ["N", 5]},
        [numpy_helper.from_array(np.full(5, -1, np.float32), "w")],
    )
    path = onnx_models.write(tmp_path, made)
    found = convertkit.verify(path, path)
    assert not found.passed
    assert isinstance(found.failure, NotProven)


def test_real_samples(digits, tmp_path):
    convertkit.export(digits.model, "onnxruntime", output=tmp_path / "out")
    found = convertkit.verify(digits.model, tmp_path / "out", calib=str(digits.calib), calib_samples=4)
    assert found.passed
    assert found.runtimes[0].startswith("PyTorch")
    assert found.report.feeds - len(found.report.edges) == 5, "four samples and a batch of them"


def test_flags_that_do_nothing(net, delivered):
    with pytest.raises(UsageError, match="does nothing for either"):
        convertkit.verify(net, delivered["tflite"].path, signature="serve")
    with pytest.raises(SourceError):
        convertkit.verify(net, "nowhere.tflite")
