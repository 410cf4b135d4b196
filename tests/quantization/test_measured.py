"""A model that delivers labels only is measured at the scores they are taken from."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.quantization.search.measured import readings
from tests import onnx_models
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


def test_the_best_scores_are_read_where_they_are_chosen_from() -> None:
    """In their order the scores are the same whichever class has which: TopK itself tells little."""
    proto = small_cnn()
    count = numpy_helper.from_array(np.array([2]), "count")
    proto.graph.initializer.append(count)
    proto.graph.node.extend([
        helper.make_node("Softmax", ["y"], ["p"], "squash", axis=1),
        helper.make_node("TopK", ["p", "count"], ["best", "places"], "choose", axis=1),
    ])  # fmt: skip
    del proto.graph.output[:]
    for name, kind in (("best", TensorProto.FLOAT), ("places", TensorProto.INT64)):
        proto.graph.output.append(helper.make_tensor_value_info(name, kind, None))
    (reading,) = readings(_typed(proto).graph)
    assert (reading.name, reading.node, reading.place, reading.leaves) == ("p", "squash", 0, False)


def test_detections_are_read_at_boxes_and_scores(tmp_path) -> None:
    """Rows change places behind a suppression, so that row against row tells nothing."""
    identity = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["w"], ["z"])]
    source = onnx_models.write(
        tmp_path, onnx_models.model(identity, {"x": [1, 9, 4], "w": [1, 9, 3]}, {"y": [1, 9, 4], "z": [1, 9, 3]})
    )
    words = "nms:5,iou:0.5,score:0.1,xyxy,boxes:y,scores:z"
    made = convertkit.export(source, postprocess=words, output=tmp_path / "out", allow_unverified=True)
    found = readings(_typed(onnx.load(made.artifact.path)).graph)
    kinds = {node.name: node.op_type for node in onnx.load(made.artifact.path).graph.node}
    assert not any(reading.leaves for reading in found)
    assert {kinds[reading.node] for reading in found} <= {
        "ArgMax",
        "GatherND",
        "NonMaxSuppression",
        "ReduceMax",
        "Where",
        "Unsqueeze",
    }
    assert {reading.name for reading in found} >= {"y/candidates", "z/candidates"}


def test_a_choice_inside_of_the_model_is_a_part_of_it() -> None:
    """A router's TopK is computed on: what leaves the model is measured, not the router."""
    constants = {"w": np.ones((2, 3), np.float32), "count": np.array([2])}
    nodes = [
        helper.make_node("TopK", ["x", "count"], ["best", "places"], "route"),
        helper.make_node("MatMul", ["best", "w"], ["y"], "product"),
    ]
    model = _typed(model_of(nodes, constants, {"x": ["N", 5]}, {"y": ["N", 3]}))
    (reading,) = readings(model.graph)
    assert (reading.name, reading.leaves) == ("y", True)


def test_no_floats_at_all_are_refused() -> None:
    node = helper.make_node("Shape", ["x"], ["y"])
    model = _typed(model_of([node], {}, {"x": ["N", 3]}, {"y": [2]}))
    model.graph.outputs[0].dtype = ir.DataType.INT64
    with pytest.raises(Unsupported, match="no output is computed from floating point numbers"):
        readings(model.graph)


def _typed(proto) -> ir.Model:

    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))
