"""Whole channels go everywhere at once, and what stays computes what a mask would compute."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

import convertkit
from convertkit import plugins
from convertkit.data.feeds import load_feeds
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.quantization import prune
from convertkit.quantization.graph.units import constant, find_units
from convertkit.quantization.place.costs import unit_cost
from convertkit.quantization.pruning import removal
from convertkit.quantization.pruning.priced import Prices
from convertkit.quantization.pruning.rules import follow
from convertkit.quantization.pruning.scores import Order
from convertkit.quantization.pruning.surgery import Surgeon
from convertkit.quantization.pruning.widths import Curve, narrowed, quickened
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from tests.quantization.models import artifact_of, images, model_of, small_cnn

RNG = np.random.default_rng(0)


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: (RNG.normal(0, 0.3, shape) + 0.1).astype("f4") for name, shape in shapes.items()}


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, output.split(), output.replace(" ", "_"), **attributes)


STEM = node("Conv", "x w", "a", pads=[1, 1, 1, 1])
HEAD = [node("GlobalAveragePool", "t", "g"), node("Flatten", "g", "f"), node("Gemm", "f h", "y", transB=1)]
INTS = {"three": [3, 3], "begin": [1], "end": [3], "axis": [2], "spatial": [2, 3], "gone": [-1, -2], "one": [1],
        "edge": [0, 0, 1, 1, 0, 0, 1, 1], "flat": [-1, 288], "halves": [4, 4], "uneven": [3, 5]}  # fmt: skip
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
    "grouped": ([node("Conv", "a g2", "t", group=2)], {"g2": (6, 4, 1, 1)}, 6),
    "depthwise that widens": ([node("Conv", "a v d", "t", group=8)], {"v": (16, 1, 3, 3), "d": (16,)}, 16),
    "parts of the height": ([node("Split", "a three", "p q", axis=2), node("Max", "p q", "r"),
                             node("Slice", "r begin end axis", "s"), node("Conv", "s v", "t")], {"v": (6, 8, 1, 1)}, 6),
    "blocks": ([node("SpaceToDepth", "a", "b", blocksize=2), node("Conv", "b v", "c"),
                node("DepthToSpace", "c", "d", blocksize=2, mode="CRD"), node("Conv", "d u", "t")],
               {"v": (16, 32, 1, 1), "u": (6, 4, 1, 1)}, 6),
    "softmax of places": ([node("Softmax", "a", "b", axis=3), node("ReduceMean", "b spatial", "c", keepdims=0),
                           node("Unsqueeze", "c gone", "d"), node("Conv", "d v", "t")], {"v": (6, 8, 1, 1)}, 6),
    "a half and what is made of it": (
        [node("Split", "a", "p q", axis=1, num_outputs=2), node("Conv", "q v", "b"), node("Add", "b q", "r"),
         node("Concat", "p q r", "t", axis=1)], {"v": (4, 4, 1, 1)}, 12,
    ),
    "gated by the other half": (
        [node("Split", "a halves", "p q", axis=1), node("Sigmoid", "q", "s"), node("Mul", "p s", "t")], {}, 4,
    ),
    "one convolution meets two": (
        [node("Conv", "a v", "b"), node("Conv", "a u", "c"), node("Concat", "b c", "d", axis=1),
         node("Add", "a d", "e"),
         node("Add", "d e", "t")], {"v": (5, 8, 1, 1), "u": (3, 8, 1, 1)}, 8,
    ),
    "two meet one in another order": (
        [node("Conv", "a v", "b"), node("Conv", "a u", "c"), node("Concat", "b c", "d", axis=1),
         node("Concat", "c b", "k", axis=1), node("Add", "d a", "e"), node("Add", "k e", "t")],
        {"v": (4, 8, 1, 1), "u": (4, 8, 1, 1)}, 8,
    ),
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


HEADS = {"wq": (12, 12), "wk": (12, 12), "wv": (12, 12), "wo": (12, 6)}
SPLIT_QKV = [node("MatMul", "x w3", "p"), node("Reshape", "p to5", "r"),
             node("Transpose", "r", "s", perm=[2, 0, 3, 1, 4]),
             node("Split", "s", "q1 k1 v1", axis=0, num_outputs=3), node("Squeeze", "q1 zero", "q"),
             node("Squeeze", "k1 zero", "k2"), node("Transpose", "k2", "k", perm=[0, 1, 3, 2]),
             node("Squeeze", "v1 zero", "v")]  # fmt: skip
ATTENTION = [node("MatMul", "q k", "s1"), node("Mul", "s1 half", "s2"), node("Softmax", "s2", "s3", axis=-1),
             node("MatMul", "s3 v", "c"), node("Transpose", "c", "c1", perm=[0, 2, 1, 3]),
             node("Reshape", "c1 to3", "c2"), node("MatMul", "c2 wo", "o"),
             node("ReduceMean", "o middle", "y", keepdims=0)]  # fmt: skip
APART = [each for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])) for each in (
    node("MatMul", f"x w{name}", f"{name}1"), node("Reshape", f"{name}1 to4", f"{name}2", allowzero=1),
    node("Transpose", f"{name}2", name, perm=perm))]  # fmt: skip
SEQUENCES = {
    "heads": ([*APART, *ATTENTION], {key: HEADS[key] for key in ("wq", "wk", "wv", "wo")}, [1, 5, 12], {4}),
    "heads of one matrix": ([*SPLIT_QKV, *ATTENTION], {"w3": (12, 36), "wo": (12, 6)}, [1, 5, 12], {4}),
    "lstm": ([node("LSTM", "x w r b - - - p", "h", hidden_size=6), node("Squeeze", "h one", "s"),
              node("MatMul", "s o", "u"), node("ReduceMean", "u zero", "y", keepdims=0)],
             {"w": (1, 24, 3), "r": (1, 24, 6), "b": (1, 48), "p": (1, 18), "o": (6, 4)}, [5, 1, 3], {6}),
    "gru both ways": ([node("MatMul", "x i", "j"),
                       node("GRU", "j w r b", "h last", hidden_size=6, direction="bidirectional"),
                       node("Transpose", "h", "t", perm=[0, 2, 1, 3]), node("Reshape", "t to12", "s"),
                       node("MatMul", "s o", "u"), node("ReduceMean", "u zero", "y", keepdims=0)],
                      {"i": (3, 5), "w": (2, 18, 5), "r": (2, 18, 6), "b": (2, 36), "o": (12, 4)}, [5, 1, 3], {5, 6}),
    "a table of rows": ([node("Cast", "x", "n", to=7), node("Gather", "table n", "e"), node("Relu", "e", "r"),
                         node("MatMul", "r wide", "m"), node("Gelu", "m", "t"), node("MatMul", "t narrow", "u"),
                         node("ReduceMean", "u middle", "y", keepdims=0)],
                        {"table": (9, 10), "wide": (10, 7), "narrow": (7, 4)}, [1, 6], {10, 7}),
}  # fmt: skip
"""Nodes, weights, the shape of the input, and how many units the groups have."""
PLACES = {"to4": [1, 5, 4, 3], "to5": [0, 0, 3, 4, 3], "to3": [0, 0, -1], "to12": [0, 0, 12], "zero": [0], "one": [1],
          "middle": [1]}  # fmt: skip


def sequence(name: str) -> onnx.ModelProto:
    nodes, shapes, entry, _ = SEQUENCES[name]
    constants = weights(**shapes) | {key: np.array(value) for key, value in PLACES.items()}
    constants["half"] = np.array(0.5, "f4")
    used = {each for made in nodes for each in made.input}
    return model_of(nodes, {key: value for key, value in constants.items() if key in used}, {"x": entry},
                    {"y": None}, opset=20)  # fmt: skip


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


PROTOS = {name: case(name) for name in CASES} | {"flattened": flattened()}
PROTOS |= {name: sequence(name) for name in SEQUENCES}


@pytest.mark.parametrize("name", PROTOS)
def test_removing_is_masking(name: str) -> None:
    model = opened(PROTOS[name])
    channels = follow(model.graph)
    groups = channels.prunable()
    assert groups, "nothing can go, so nothing is tested"
    if name in SEQUENCES:
        assert {group.units for group in groups} == SEQUENCES[name][3]
    keep = {group: np.sort(RNG.choice(group.units, (group.units + 1) // 2, replace=False)) for group in groups}
    x = np.abs(RNG.normal(0, 2, tuple(model.graph.inputs[0].shape))).astype("f4")
    expected = run(masked(model, channels, keep), x)
    before = sum(value.const_value.size for value in model.graph.initializers.values())
    channels.shrink(keep)
    drop_unused(model.graph)
    proto = ir.to_proto(model)
    del proto.graph.value_info[:]
    onnx.checker.check_model(proto, full_check=True)
    assert sum(value.const_value.size for value in model.graph.initializers.values()) < 0.8 * before
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "last",
    [
        [node("Softmax", "a", "b", axis=1), node("Conv", "b v", "y")],
        [node("Split", "a uneven", "p b", axis=1), node("Conv", "b five", "y")],
        [node("ReduceMean", "a one", "b"), node("Conv", "b u", "y")],
        [node("Reshape", "a other", "b"), node("Conv", "b z", "y")],
        [node("ConvTranspose", "a k", "b", group=2), node("Conv", "b v", "y")],
        [node("Identity", "a", "y")],
        [node("Conv", "x q", "b", pads=[1, 1, 1, 1]), node("MatMul", "b m", "y")],
    ],
    ids=["softmax", "parts of other sizes", "mean", "reshape", "grouped", "output", "product along the width"],
)
def test_channels_that_something_looks_at_stay(last: list[onnx.NodeProto]) -> None:
    constants = {**weights(w=(8, 3, 3, 3), v=(4, 8, 1, 1), u=(4, 1, 1, 1), z=(4, 6, 1, 1), k=(8, 4, 1, 1),
                           q=(6, 3, 3, 3), m=(6, 4), five=(4, 5, 1, 1)), "uneven": np.array([3, 5]),
                 "one": np.array([1]), "other": np.array([1, 6, 8, 6])}  # fmt: skip
    used = {each for made in (STEM, *last) for each in made.input}
    proto = model_of([STEM, *last], {k: v for k, v in constants.items() if k in used}, {"x": [1, 3, 6, 6]}, {"y": []})
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert not follow(opened(proto).graph).prunable()


@pytest.mark.parametrize("name", ["squeeze-excite", "depthwise", "flattened", "heads of one matrix"])
def test_prices_are_those_of_the_smaller_model(name: str) -> None:
    model = opened(PROTOS[name])
    channels, profile = follow(model.graph), plugins.target("tflite").profile(ExportOptions("x"))
    orders = [Order(RNG.permutation(group.units), np.arange(float(group.units))) for group in channels.prunable()]
    prices = Prices(model, orders, profile, integers=False, feed=None, state={})
    counts = tuple(max(1, len(order.units) // 2) for order in orders)
    keep = {group: order.kept(n) for group, order, n in zip(channels.prunable(), orders, counts, strict=True)}
    whole = sum(unit_cost(unit, profile)[1] for unit in find_units(model.graph, profile))
    assert prices.total(tuple(len(order.units) for order in orders)) == pytest.approx(whole)
    channels.shrink(keep)
    drop_unused(model.graph)
    smaller = sum(unit_cost(unit, profile)[1] for unit in find_units(model.graph, profile))
    assert prices.total(counts) == pytest.approx(smaller)
    assert smaller < whole


def test_of_two_channels_that_are_the_same_one_stays() -> None:
    constants = weights(w=(8, 3, 3, 3), v=(6, 8, 1, 1), h=(4, 6))
    constants["w"][1] = constants["w"][0]
    constants["v"][:, :2] = 0.8
    proto = model_of([STEM, node("Conv", "a v", "t"), *HEAD], constants, {"x": [1, 3, 6, 6]}, {"y": [1, 4]})
    model = opened(proto)
    surgeon = Surgeon(model, [{"x": RNG.normal(0, 1, (1, 3, 6, 6)).astype("f4")} for _ in range(16)], {}, 0)
    order = surgeon.orders()[0]
    places = sorted(order.units.tolist().index(twin) for twin in (0, 1))
    assert places[0] <= 3  # the other makes up for it
    assert places[1] == 7  # and must not go then


class Tiles:
    """Two groups whose time goes by whole tiles of 8 channels."""

    def of_group(self, place: int, counts: tuple[int, ...]) -> float:
        return -(-counts[place] // 8) * (3.0 if place else 1.0)

    def total(self, counts: tuple[int, ...]) -> float:
        return sum(self.of_group(place, counts) for place in range(len(counts)))

    def neighbours(self, place: int) -> frozenset[int]:
        return frozenset([place])


def test_a_wanted_time_is_reached_by_whole_tiles_where_they_cost_least() -> None:
    flat, steep = Curve(np.arange(32) * 0.01), Curve(np.arange(32) * 0.05)
    counts = quickened([flat, steep], Tiles(), 0.8)
    assert counts == (8, 24)  # 10 of 16: the first group gives all that it may, then the second one tile
    assert all(count % 8 == 0 for count in quickened([flat, steep], Tiles(), 0.5))


def test_a_share_of_all_channels_goes_where_little_is_lost() -> None:
    counts = narrowed([Curve(np.arange(32) * 0.01), Curve(np.arange(32) ** 2 * 1.0)], Tiles(), (32, 32), 0.25)
    assert 46 <= sum(counts) <= 48
    assert counts[0] < counts[1]


def test_weights_alone_take_no_more_than_twice_the_share_of_a_group() -> None:
    curves = [Curve(np.arange(32) * 0.001, measured=False), Curve(np.arange(32) * 1.0, measured=False)]
    assert narrowed(curves, Tiles(), (32, 32), 0.25) == (16, 32)
    measured = [Curve(curve.noise) for curve in curves]
    assert narrowed(measured, Tiles(), (32, 32), 0.35)[0] < 12


def stage_of(feeds, **choices: object):
    options = ExportOptions("x", **choices)  # type: ignore[arg-type]
    return prune.stage(BuildContext(options, plugins.target("tflite"), calibration=feeds))


def pruned(tmp_path, share: float, data: np.ndarray | None):
    source = artifact_of(small_cnn(), tmp_path)
    feeds = None if data is None else load_feeds(data, source.inputs)
    stage = stage_of(feeds, prune_channels=str(share))
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
    with pytest.raises(Unsupported, match="no channel that could go"):
        stage_of(None, prune_channels="0.5").run(source, tmp_path)


def test_a_time_that_channels_cannot_reach_is_refused_with_what_they_can(tmp_path) -> None:
    source = artifact_of(small_cnn(), tmp_path)
    with pytest.raises(Unsupported, match=r"--target-latency 0.01: the cost table says 0\.\d+ of the time"):
        stage_of(load_feeds(images(24), source.inputs), target_latency=0.01).run(source, tmp_path)


def test_auto_keeps_what_the_gate_allows(tmp_path) -> None:
    source = artifact_of(small_cnn(), tmp_path)
    feeds = load_feeds(images(40), source.inputs)
    stage = stage_of(feeds, prune_channels="auto", calib="given", eval="given", max_drop=60.0)
    stage.run(source, tmp_path)
    assert stage.diagnosis["channels"] >= 0.25


def test_auto_is_refused_where_nothing_is_allowed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(removal, "is_enough", lambda quality, options: False)
    source = artifact_of(small_cnn(), tmp_path)
    stage = stage_of(load_feeds(images(24), source.inputs), prune_channels="auto", calib="given")
    with pytest.raises(Unsupported, match="--prune-channels auto: even 5% of the channels cost too much"):
        stage.run(source, tmp_path)


def test_the_digits_shrink_within_their_gate(digits, tmp_path) -> None:
    flags = {"calib": str(digits.calib), "eval": str(digits.test), "max_drop": 1.0}
    result = convertkit.export(str(digits.model), "tflite", output=str(tmp_path / "out"), prune_channels=0.3, **flags)
    assert result.artifact.size_bytes < 0.55 * 451_680
    assert result.report["evaluation"]["passed"]
