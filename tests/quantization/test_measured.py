"""A model that delivers labels only is measured at the scores they are taken from."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from convertkit.errors import Unsupported
from convertkit.quantization.search.measured import readings
from tests.quantization.models import images, model_of, small_cnn


def labels():
    """The small CNN behind a softmax and an ArgMax."""
    proto = small_cnn()
    nodes = [
        helper.make_node("Softmax", ["y"], ["p"], "squash"),
        helper.make_node("ArgMax", ["p"], ["label"], "choose", axis=1),
    ]
    proto.graph.node.extend(nodes)
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["N", 1]))
    return proto


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_labels_alone_are_quantized(quantized, target: str) -> None:
    expected, got = quantized(labels(), images(24), target=target).outputs(images(64, 5))
    assert (expected == got).mean() > 0.9


def test_scores_are_read_in_front_of_the_softmax() -> None:
    (reading,) = readings(_typed(labels()).graph)
    assert (reading.name, reading.node, reading.place, reading.leaves) == ("p", "squash", 0, False)


def test_no_floats_at_all_are_refused() -> None:
    node = helper.make_node("Shape", ["x"], ["y"])
    model = _typed(model_of([node], {}, {"x": ["N", 3]}, {"y": [2]}))
    model.graph.outputs[0].dtype = ir.DataType.INT64
    with pytest.raises(Unsupported, match="no output is computed from floating point numbers"):
        readings(model.graph)


def _typed(proto) -> ir.Model:

    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))
