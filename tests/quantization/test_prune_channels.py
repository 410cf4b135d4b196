"""Whole channels go everywhere at once, and what stays computes what a mask would compute."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

import convertkit
from convertkit.data.feeds import load_feeds
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.quantization import prune
from convertkit.quantization.graph.units import constant
from convertkit.quantization.pruning.rules import follow
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from tests.quantization.models import artifact_of, images, model_of, small_cnn

RNG = np.random.default_rng(0)


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: (RNG.normal(0, 0.3, shape) + 0.1).astype("f4") for name, shape in shapes.items()}


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, [output], output, **attributes)


STEM = node("Conv", "x w", "a", pads=[1, 1, 1, 1])
HEAD = [node("GlobalAveragePool", "t", "g"), node("Flatten", "g", "f"), node("Gemm", "f h", "y", transB=1)]
INTS = {"spatial": [2, 3], "gone": [-1, -2], "edge": [0, 0, 1, 1, 0, 0, 1, 1], "flat": [-1, 288], "one": [1]}
CASES = {
    "residual": ([node("Conv", "a v", "b"), node("Add", "a b", "t")], {"v": (8, 8, 1, 1)}, 8),
    "depthwise": ([node("Conv", "a v d", "t", group=8)], {"v": (8, 1, 3, 3), "d": (8,)}, 8),
    "norm": ([node("BatchNormalization", "a n1 n2 n3 n4", "t")],
             {"n1": (8,), "n2": (8,), "n3": (8,), "n4": (8,)}, 8),
    "concat": ([node("Conv", "a v", "b"), node("Concat", "a b x", "c", axis=1), node("Relu", "c", "t")],
               {"v": (5, 8, 1, 1)}, 16),
    "squeeze-excite": ([node("GlobalAveragePool", "a", "p"), node("Conv", "p v", "q"), node("Relu", "q", "r"),
                        node("Conv", "r u", "s"), node("Sigmoid", "s", "m"), node("Mul", "a m", "t")],
                       {"v": (4, 8, 1, 1), "u": (8, 4, 1, 1)}, 8),
    "constants": ([node("Mul", "a k", "b"), node("PRelu", "b p", "t")], {"k": (1, 8, 1, 1), "p": (8, 1, 1)}, 8),
    "deconvolution": ([node("ConvTranspose", "a v", "t", strides=[2, 2])], {"v": (8, 6, 2, 2)}, 6),
    "pad and resize": ([node("Pad", "a edge", "b"), node("Resize", "b - scales", "t")], {}, 8),
    "transposed": ([node("Transpose", "a", "b", perm=[0, 2, 3, 1]), node("MatMul", "b v", "c"), node("Add", "c e", "d"),
                    node("Transpose", "d", "t", perm=[0, 3, 1, 2])], {"v": (8, 6), "e": (6,)}, 6),
    "one map for all": ([node("Conv", "a v", "m"), node("Mul", "a m", "t")], {"v": (1, 8, 1, 1)}, 8),
    "mean and squeeze": ([node("ReduceMean", "a spatial", "b"), node("Squeeze", "b gone", "c"),
                          node("MatMul", "c v", "d"), node("Reshape", "d back", "t")], {"v": (8, 8)}, 8),
}  # fmt: skip


def case(name: str) -> onnx.ModelProto:
    nodes, shapes, width = CASES[name]
    constants = weights(w=(8, 3, 3, 3), h=(4, width), **shapes)
    if "n4" in constants:
        constants["n4"] = np.abs(constants["n4"]) + 0.1
    constants |= {"scales": np.array([1, 1, 2, 2], "f4"), "back": np.array([0, 8, 1, 1])}
    constants |= {key: np.array(value) for key, value in INTS.items()}
    used = {each for made in (STEM, *nodes, *HEAD) for each in made.input}
    constants = {key: value for key, value in constants.items() if key in used}
    return model_of([STEM, *nodes, *HEAD], constants, {"x": [1, 3, 6, 6]}, {"y": [1, 4]})


def flattened() -> onnx.ModelProto:
    """A channel becomes 36 neighbours, by Reshape with a literal size."""
    nodes = [STEM, node("Reshape", "a flat", "f"), node("Gemm", "f h", "y", transB=1)]
    return model_of(nodes, {**weights(w=(8, 3, 3, 3), h=(4, 288)), "flat": np.array([1, 288])},
                    {"x": [1, 3, 6, 6]}, {"y": [1, 4]})  # fmt: skip


def run(model: ir.Model, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def opened(proto: onnx.ModelProto) -> ir.Model:
    return canonicalize(ir.from_proto(proto))


def masked(model: ir.Model, channels, keep) -> ir.Model:
    """Every product ignores the channels that go: their columns are zero."""
    copy = model.clone()
    nodes = {each.name: each for each in copy.graph}
    for cut in channels.sums():
        target = nodes[cut.node.name]
        array = np.moveaxis(constant(target.inputs[cut.index]).copy(), cut.axis, 0)
        array[np.setdiff1d(np.arange(cut.layout.size), cut.layout.kept(keep))] = 0
        zeroed = add_constant(
            copy.graph, f"{target.name}_masked", np.ascontiguousarray(np.moveaxis(array, 0, cut.axis))
        )
        target.replace_input_with(cut.index, zeroed)
    return copy


@pytest.mark.parametrize("proto", [*map(case, CASES), flattened()], ids=[*CASES, "flattened"])
def test_removing_is_masking(proto: onnx.ModelProto) -> None:
    model = opened(proto)
    channels = follow(model.graph)
    groups = channels.prunable()
    assert groups, "nothing can go, so nothing is tested"
    keep = {group: np.sort(RNG.choice(group.size, (group.size + 1) // 2, replace=False)) for group in groups}
    x = RNG.normal(0, 1, (1, 3, 6, 6)).astype("f4")
    expected = run(masked(model, channels, keep), x)
    before = sum(value.const_value.size for value in model.graph.initializers.values())
    channels.shrink(keep)
    drop_unused(model.graph)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert sum(value.const_value.size for value in model.graph.initializers.values()) < 0.8 * before
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "last",
    [
        [node("Softmax", "a", "b", axis=1), node("Conv", "b v", "y")],
        [node("ReduceMean", "a one", "b"), node("Conv", "b u", "y")],
        [node("Reshape", "a other", "b"), node("Conv", "b z", "y")],
        [node("Conv", "a k", "b", group=2), node("Conv", "b v", "y")],
        [node("Identity", "a", "y")],
        [node("Conv", "x q", "b", pads=[1, 1, 1, 1]), node("MatMul", "b m", "y")],
    ],
    ids=["softmax", "mean", "reshape", "grouped", "output", "product along the width"],
)
def test_channels_that_something_looks_at_stay(last: list[onnx.NodeProto]) -> None:
    constants = {**weights(w=(8, 3, 3, 3), v=(4, 8, 1, 1), u=(4, 1, 1, 1), z=(4, 4, 1, 1), k=(8, 4, 1, 1),
                           q=(6, 3, 3, 3), m=(6, 4)),
                 "one": np.array([1]), "other": np.array([1, 4, 2, 36])}  # fmt: skip
    used = {each for made in (STEM, *last) for each in made.input}
    proto = model_of([STEM, *last], {k: v for k, v in constants.items() if k in used}, {"x": [1, 3, 6, 6]}, {"y": []})
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert not follow(opened(proto).graph).prunable()


def pruned(tmp_path, share: float, data: np.ndarray | None):
    source = artifact_of(small_cnn(), tmp_path)
    feeds = None if data is None else load_feeds(data, source.inputs)
    stage = prune.stage(BuildContext(ExportOptions("x", prune_channels=share), None, calibration=feeds))
    return source, stage.run(source, tmp_path), stage


def noise_db(source, result) -> float:
    with OnnxRunner(source) as one, OnnxRunner(result) as other:
        both = [(one.run({"x": x[None]})["y"], other.run({"x": x[None]})["y"]) for x in images(40, seed=9)]
    a, b = (np.concatenate(each) for each in zip(*both, strict=True))
    return float(10 * np.log10(np.square(a).sum() / np.square(a - b).sum()))


def test_data_makes_up_for_much_of_the_loss(tmp_path) -> None:
    levels = [noise_db(*pruned(tmp_path, 0.25, data)[:2]) for data in (None, images(24))]
    assert levels[1] > levels[0] + 6


def test_sizes_shrink_and_are_told(tmp_path) -> None:
    _, result, stage = pruned(tmp_path, 0.25, images(24))
    (group,) = stage.diagnosis["groups"]
    assert group["channels_before"] == 16
    assert group["channels_after"] == 12
    shapes = {tuple(v.const_value.shape) for v in load_model(result.path).graph.initializers.values()}
    assert {(12, 3, 3, 3), (12, 1, 3, 3), (12, 12, 1, 1), (5, 12)} <= shapes


def test_a_model_without_such_channels_is_refused(tmp_path) -> None:
    source = artifact_of(model_of([node("Relu", "x", "y")], {}, {"x": ["N", 4]}, {"y": ["N", 4]}), tmp_path)
    stage = prune.stage(BuildContext(ExportOptions("x", prune_channels=0.5), None))  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="no channel that could go"):
        stage.run(source, tmp_path)


def test_the_digits_shrink_within_their_gate(digits, tmp_path) -> None:
    flags = {"calib": str(digits.calib), "eval": str(digits.test), "max_drop": 1.0}
    result = convertkit.export(str(digits.model), "tflite", output=str(tmp_path / "out"), prune_channels=0.3, **flags)
    assert result.artifact.size_bytes < 0.55 * 451_680
    assert result.report["evaluation"]["passed"]
