"""``convertkit inspect`` tells what is in a model, of every format that is read or written here."""

import json

import jsonschema
import numpy as np
import onnx
import pytest

import convertkit
from convertkit.errors import SourceError, UsageError
from convertkit.summary import schema
from tests import onnx_models
from tests.command_line import check_refusal, here
from tests.looking.nets import image_net

PARAMETERS = 6 * 27 + 6 + 8 * 54 + 8 + 32 + 4
MACS = 64 * 6 * 27 + 16 * 8 * 54 + 32


def test_an_onnx_file(net):
    found = convertkit.inspect(net)
    assert (found.format, found.size_bytes, found.graph) == ("onnx", net.stat().st_size, "the file")
    assert (found.parameters, found.macs) == (PARAMETERS, MACS)
    assert [each.kind for each in found.operators][:3] == ["Conv", "Relu", "Conv"]
    assert found.metadata["opset"] == "ai.onnx 18"
    assert found.made is None
    assert found.timed is None
    assert [spec.name for spec in (*found.inputs, *found.outputs)] == ["x", "y"]


def test_weights_beside_the_file_count(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save_model(image_net(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    found = convertkit.inspect(path)
    assert found.size_bytes == path.stat().st_size + (tmp_path / "weights.bin").stat().st_size
    assert found.parameters == PARAMETERS


@pytest.mark.parametrize("name", ["onnxruntime", "tflite", "int8"])
def test_what_was_delivered(delivered, name):
    result = delivered[name]
    for place in (result.path, result.artifact.path):
        found = convertkit.inspect(place)
        assert found.made["target"] == result.target
        assert found.made["precision"] == result.precision
        assert found.made["source"] == "net.onnx (onnx)"
        assert (found.macs, found.graph) == (MACS, "the file")
        assert found.inputs[0].source_shape == ("N", 3, 8, 8)
    precisions = {each.precision for each in found.operators}
    assert ("int8" in precisions) == (name == "int8")


def test_a_tflite_file_alone(delivered, tmp_path):
    """Without the manifest it is a file like any other's."""
    place = tmp_path / "alone.tflite"
    place.write_bytes(delivered["tflite"].artifact.path.read_bytes())
    found = convertkit.inspect(place)
    assert found.made is None
    assert (found.format, found.macs) == ("tflite", MACS)
    assert found.inputs[0].shape[1:] == (8, 8, 3)
    assert found.parameters == PARAMETERS


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("digits/model.pt", "torchscript"),
        ("flax-digits/model.stablehlo", "jax-export"),
        pytest.param("keywords/model.pt2", "pt2", marks=pytest.mark.nightly),
        pytest.param("keras-digits/model.keras", "keras", marks=pytest.mark.nightly),
        pytest.param("detector/saved_model", "savedmodel", marks=pytest.mark.nightly),
    ],
)
def test_models_of_frameworks(root, source, kind):
    found = convertkit.inspect(root / "fixtures" / source)
    assert (found.format, found.graph) == (kind, "its ONNX")
    assert found.parameters > 1000
    assert found.macs > 1000
    assert found.inputs
    assert found.outputs


def test_time_by_node(net, delivered):
    timed = convertkit.inspect(net, time=True).timed
    assert timed.ms > 0
    assert "Gemm" in {node.kind for node in timed.nodes}
    of_tflite = convertkit.inspect(delivered["tflite"].path, time=True).timed
    assert of_tflite.ms > 0
    assert of_tflite.nodes == (), "LiteRT tells no times by node"


def test_time_of_a_framework_is_refused(root):
    with pytest.raises(UsageError, match="ONNX, TFLite and OpenVINO files"):
        convertkit.inspect(root / "fixtures" / "digits" / "model.pt", time=True)


def test_operators_that_nobody_knows_are_listed(tmp_path):
    made = onnx_models.model(
        [onnx.helper.make_node("Nobody", ["x"], ["y"], domain="com.example")], {"x": ["N", 5]}, {"y": ["N", 5]}
    )
    made.opset_import.add(domain="com.example", version=1)
    found = convertkit.inspect(onnx_models.write(tmp_path, made))
    assert [each.kind for each in found.operators] == ["Nobody"]


def test_json_and_text(net):
    said = here("inspect", net, "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    jsonschema.validate(told, schema(), cls=jsonschema.Draft202012Validator)
    assert told["command"] == "inspect"
    assert told["inspect"]["parameters"] == PARAMETERS
    shown = here("inspect", net)
    assert shown.code == 0
    assert "GlobalAveragePool" in shown.out


def test_a_notebook_gets_tables(net):
    found = convertkit.inspect(net)
    assert len(repr(found)) < 200
    assert found._repr_html_().count("<table>") >= 4
    assert "<script" not in found._repr_html_()


def test_names_are_escaped(tmp_path):
    made = onnx_models.model([onnx.helper.make_node("Relu", ["<script>x"], ["y"])], {"<script>x": ["N"]}, {"y": ["N"]})
    assert "<script>" not in convertkit.inspect(onnx_models.write(tmp_path, made))._repr_html_()


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "is empty"), (b"hello", "not a model"), (b"\x08\x07\x12\x04", "")]
)
def test_broken_files(tmp_path, content, words):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    check_refusal(here("inspect", path), 1, words)


def test_a_flag_that_does_nothing(net, delivered):
    check_refusal(here("inspect", net, "--signature", "a"), 2, "--signature does nothing")
    check_refusal(here("inspect", delivered["tflite"].path, "--trust", "pickle"), 2, "--trust does nothing")
    check_refusal(here("inspect", "nowhere.onnx"), 1, "nowhere.onnx")


def test_a_tampered_artifact_is_told(delivered, tmp_path):
    place = tmp_path / "out"
    place.mkdir()
    for file in delivered["onnxruntime"].path.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    model = place / "model.onnx"
    model.write_bytes(model.read_bytes() + b"\0")
    with pytest.raises(SourceError, match="sha256 has changed"):
        convertkit.inspect(place)


def test_a_manifest_of_another_tool_is_none_of_ours(net, tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "an app"}')
    (tmp_path / "net.onnx").write_bytes(net.read_bytes())
    assert convertkit.inspect(tmp_path / "net.onnx").parameters == PARAMETERS


def test_generated_inputs_fit_tables(root):
    """Token ids beyond the table, or longer than the positions, would end the run."""
    found = convertkit.inspect(root / "fixtures" / "brackets" / "model.onnx", time=True)
    assert found.timed.rounds >= 5
    assert np.isfinite(found.timed.ms)
