"""``convertkit diff`` shows what differs, and nothing where nothing does."""

import json

import jsonschema
import numpy as np
import pytest
from onnx import numpy_helper

import convertkit
from convertkit.summary import schema
from tests import onnx_models
from tests.command_line import check_refusal, here
from tests.looking.nets import image_net


def by_what(changes):
    return {each.what: (each.first, each.second) for each in changes}


def test_nothing_differs(net):
    found = convertkit.diff(net, net)
    assert found.same
    assert "no difference found" in found.headline
    assert not any((found.interface, found.sizes, found.operators, found.precision, found.layers, found.metadata))


def test_two_formats(net, delivered):
    found = convertkit.diff(net, delivered["tflite"].path)
    assert not found.same
    assert by_what(found.interface) == {"input x": ("float32 [N, 3, 8, 8]", "float32 [N, 8, 8, 3]")}
    assert by_what(found.sizes)["format"] == ("onnx", "tflite")
    assert by_what(found.operators)["Conv"] == ("2", "")
    assert by_what(found.operators)["CONV_2D"] == ("", "2")
    assert "parameters" not in by_what(found.sizes)
    assert found.numerics.passed
    assert found.slower is None


def test_float_and_integers(delivered):
    found = convertkit.diff(delivered["tflite"].path, delivered["int8"].path)
    assert by_what(found.precision)["int8"][0] == ""
    assert found.numerics.report.tolerance.lossy
    first, second = by_what(found.sizes)["bytes"]
    assert first != second


def changed(tmp_path, change):
    made = image_net()
    change(made)
    return onnx_models.write(tmp_path, made, "changed.onnx")


def test_a_weight(net, tmp_path):
    """The same graph with other numbers differs in what it computes alone."""

    def change(made):
        stored = next(each for each in made.graph.initializer if each.name == "w3")
        stored.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(stored) * np.float32(1.01), "w3"))

    found = convertkit.diff(net, changed(tmp_path, change))
    assert not found.same
    assert not any((found.interface, found.operators, found.precision, found.layers))
    assert not found.numerics.passed


def test_an_operator_and_metadata(net, tmp_path):
    def change(made):
        made.graph.node[3].op_type = "HardSigmoid"
        made.producer_name = "somebody"
        made.metadata_props.add(key="author", value="me")

    found = convertkit.diff(net, changed(tmp_path, change), numerics=False)
    assert by_what(found.layers) == {"s2": ("Sigmoid float32", "HardSigmoid float32")}
    assert by_what(found.metadata) == {"producer": ("", "somebody"), "author": ("", "me")}
    assert found.numerics is None


def test_interfaces_that_do_not_fit(net, root):
    found = convertkit.diff(net, root / "fixtures" / "brackets" / "model.onnx")
    assert found.numerics is None
    assert any("not compared" in note for note in found.notes)
    assert by_what(found.interface)["input ids"] == ("", "int64 [N, LENGTH]")
    assert found.layers == (), "graphs that share no names have no layers in common"


def test_time(net, delivered):
    slower = convertkit.diff(net, delivered["onnxruntime"].path, numerics=False, time=True).slower
    assert 0 < slower.low <= slower.median <= slower.high


def test_command(net, delivered, tmp_path):
    said = here("diff", net, delivered["tflite"].path, "--json")
    told = json.loads(said.out)
    jsonschema.validate(told, schema(), cls=jsonschema.Draft202012Validator)
    assert said.code == 0
    assert told["diff"]["numerics"]["report"]["diffs"]
    alone = json.loads(here("diff", net, delivered["tflite"].path, "--no-numerics", "--json").out)
    assert alone["diff"]["numerics"] is None
    assert "CONV_2D" in here("diff", net, delivered["tflite"].path).out
    check_refusal(here("diff", net, tmp_path / "nowhere.onnx"), 1, "nowhere.onnx")
    check_refusal(here("diff", net), 2, "Missing argument")
    check_refusal(here("diff", net, net, "--signature", "x"), 2, "does nothing for either")


def test_a_notebook_gets_tables(net, delivered):
    found = convertkit.diff(net, delivered["tflite"].path)
    assert found._repr_html_().count("<table>") >= 5
    assert len(repr(found)) < 500


@pytest.mark.parametrize("opset", [17, 19])
def test_opsets(net, tmp_path, opset):
    def change(made):
        made.opset_import[0].version = opset

    found = convertkit.diff(net, changed(tmp_path, change))
    assert by_what(found.metadata) == {"opset": ("ai.onnx 18", f"ai.onnx {opset}")}
    assert found.numerics.passed
