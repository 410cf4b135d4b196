"""Boxes of hundreds of pixels beside scores of 1 in one output: the scores are not rounded to steps of the boxes."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.joins import uneven_joins
from convertkit.quantization.report import UNEVEN
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import detector, images, model_of

RNG = np.random.default_rng(3)


def moved() -> onnx.ModelProto:
    """The head of two levels whose rows are joined and turned behind it, as detectors deliver them."""
    head = detector(sharpness=0.3)
    head.graph.node[-1].output[0] = "joined"
    head.graph.node.extend(
        [
            helper.make_node("Reshape", ["joined", "rows"], ["flat"], "flatten"),
            helper.make_node("Concat", ["flat", "flat"], ["levels"], "levels", axis=2),
            helper.make_node("Transpose", ["levels"], ["y"], "turn", perm=[0, 2, 1]),
        ]
    )
    head.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 10, 36]), "rows"))
    head.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 72, 10]))
    return head


@pytest.mark.parametrize("target", ["tflite", "onnxruntime", "openvino"])
@pytest.mark.parametrize("model", [lambda: detector(sharpness=0.3), moved], ids=["at the end", "moved"])
def test_scores_beside_boxes_keep_their_own_digits(quantized, model, target: str):
    result = quantized(model(), images(24), target=target, without_costs=True)
    before, after = result.outputs(images(8, 5))
    axis = 1 if before.ndim == 4 else 2
    scores, got = (np.moveaxis(each, axis, 0)[4:] for each in (before, after))
    assert 10 * np.log10(np.square(scores).sum() / np.square(scores - got).sum()) > 35
    assert result.pairs()
    assert result.stage.diagnosis["float"]["join"] == UNEVEN
    assert result.stage.diagnosis["notes"] == []


INSISTS = {
    "--full-integer": {"full_integer": True},
    "--io-dtype int8": {"io_dtype": "int8"},
    "--full-integer and --io-dtype uint8": {"full_integer": True, "io_dtype": "uint8"},
}


@pytest.mark.parametrize("flags", INSISTS)
@pytest.mark.parametrize("model", [lambda: detector(sharpness=0.3), moved], ids=["at the end", "moved"])
def test_who_insists_on_integers_is_told_what_the_scores_become(quantized, model, flags: str):
    result = quantized(model(), images(24), without_costs=True, **INSISTS[flags])
    (note,) = result.stage.diagnosis["notes"]
    told = re.fullmatch(
        r"join \(Concat\) .*: scores, \S+ to 0.999, is rounded to steps of about (\d+); .* or (.*)", note
    )
    assert told is not None
    scales = [scale for name, (scale, _) in result.pairs().items() if name.startswith(("y", "joined"))]
    assert float(told[1]) == pytest.approx(max(scales), rel=0.4)
    assert told[2] == f"leave {flags} out"


def test_parts_of_like_ranges_need_no_note(quantized):
    head = detector(sharpness=0.3)
    head.graph.node[-1].input[0] = "logits"
    result = quantized(head, images(24), without_costs=True, full_integer=True)
    assert result.stage.diagnosis["notes"] == []


JOIN = helper.make_node("Concat", ["a", "b"], ["c"], "join", axis=1)
BEHIND = {
    "nothing": ([], {"join"}),
    "a move": ([helper.make_node("Transpose", ["c"], ["y"], "turn", perm=[0, 2, 1])], {"join", "turn"}),
    "a convolution": ([helper.make_node("Conv", ["c", "w"], ["y"], "conv")], set()),
}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize(("loud", "uneven"), [(500.0, True), (3.0, False)])
def test_joins_of_unlike_ranges_in_front_of_outputs_alone(behind: str, loud: float, uneven: bool):
    nodes, names = BEHIND[behind]
    output = "y" if nodes else "c"
    constants = {"w": np.ones((4, 6, 1), np.float32)} if behind == "a convolution" else {}
    proto = model_of([JOIN, *nodes], constants, {"a": [1, 3, 8], "b": [1, 3, 8]}, {output: None})
    chosen = profile(ExportOptions(source="x", precision="int8"))
    units = find_units(ir.from_proto(onnx.shape_inference.infer_shapes(proto)).graph, chosen)
    statistics = {}
    for name, most in (("a", loud), ("b", 1.0)):
        statistics[name] = Statistics()
        values = RNG.uniform(0, most, 1000).astype(np.float32)
        statistics[name].add(float(values.min()), float(values.max()), values)
    found = uneven_joins(units, statistics, chosen)
    assert found == (names if uneven else set())
