"""Functions of one value on Qualcomm's NPU: whole in the binary, and near the quantized graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import Unsupported

SHAPE = (1, 3, 10, 7)
UNARY = ("Softplus", "Selu", "ThresholdedRelu", "Sign", "Sin", "Cos", "Atan", "LogSoftmax", "LpNormalization", "LRN")
ATTRIBUTES = {"LRN": {"size": 3}, "LpNormalization": {"axis": 1}}


def delivered(nodes, folder, constants=(), positive=False):
    """The report of the last step's only output."""
    pytest.importorskip("onnxruntime_qnn")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "one", ports[:1], ports[1:], list(constants))
    opset = helper.make_opsetid("", 21)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), folder / "m.onnx")
    drawn = np.random.default_rng(3).normal(0, 1, (30, *SHAPE[1:])).astype(np.float32)
    samples = {"x": np.abs(drawn) + np.float32(0.2) if positive else drawn}
    out = folder / "out"
    made = convertkit.export(folder / "m.onnx", "qnn", calib=samples, output=out, int8=True, full_integer=True)
    assert [node.op_type for node in onnx.load(made.artifact.path).graph.node] == ["EPContext"]
    (tensor,) = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    return tensor


def test_functions_in_a_row_run_on_the_npu(tmp_path):
    two = numpy_helper.from_array(np.float32(2), "two")
    nodes = [
        helper.make_node("Softplus", ["x"], ["a"]),
        helper.make_node("Log", ["a"], ["b"]),
        helper.make_node("Pow", ["b", "two"], ["c"]),
        helper.make_node("Mean", ["a", "c"], ["y"]),
    ]
    assert float(delivered(nodes, tmp_path, [two])["snr_db"]) > 30


@pytest.mark.parametrize("counts", [0, 1])
def test_an_average_whose_number_is_rounded_up(counts, tmp_path):
    """As it stands the HTP computes another pool, -4 dB; without padding there is nothing to count."""
    given = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": counts}
    wide = numpy_helper.from_array(np.array([1, 3, 10, 7]), "sizes")
    nodes = [
        helper.make_node("AveragePool", ["x"], ["a"], **given),
        helper.make_node("Resize", ["a", "", "", "sizes"], ["y"], mode="nearest"),
    ]
    assert float(delivered(nodes, tmp_path, [wide])["snr_db"]) > 30


def test_an_average_that_is_rounded_up_beside_padding_that_counts_is_refused(tmp_path):
    given = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 0], "ceil_mode": 1, "count_include_pad": 1}
    wide = numpy_helper.from_array(np.array([1, 3, 10, 7]), "sizes")
    nodes = [
        helper.make_node("AveragePool", ["x"], ["a"], name="pool", **given),
        helper.make_node("Resize", ["a", "", "", "sizes"], ["y"], mode="nearest"),
    ]
    with pytest.raises(Unsupported, match=r"pool \(AveragePool\): ceil_mode beside padding that counts"):
        delivered(nodes, tmp_path, [wide])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", UNARY)
def test_a_function_of_any_value(kind, tmp_path):
    found = delivered([helper.make_node(kind, ["x"], ["y"], **ATTRIBUTES.get(kind, {}))], tmp_path)
    assert found["snr_db"] == "inf" or float(found["snr_db"]) > 30


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["Log", "Reciprocal", "Sqrt"])
def test_a_function_of_positive_values(kind, tmp_path):
    assert float(delivered([helper.make_node(kind, ["x"], ["y"])], tmp_path, positive=True)["snr_db"]) > 30


def test_a_choice_by_flags(tmp_path):
    """As the mask of padding in front of a Softmax is."""
    flags = numpy_helper.from_array(np.arange(7) % 3 > 0, "flags")
    mark = numpy_helper.from_array(np.float32(-np.inf), "mark")
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["scores"], "scores"),
        helper.make_node("Where", ["flags", "scores", "mark"], ["kept"], "mask"),
        helper.make_node("Softmax", ["kept"], ["y"], "softmax", axis=-1),
    ]
    assert float(delivered(nodes, tmp_path, [flags, mark])["snr_db"]) > 30
