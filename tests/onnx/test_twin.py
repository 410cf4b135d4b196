"""The float64 twin: against formulas written by hand, against float32 ONNX Runtime, and what its spread tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy import signal, special

from convertkit.artifact import Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.specs import interface
from convertkit.onnx.twin import Truth, Twin
from convertkit.onnx.twin.noise import Noise
from tests.onnx.twin_cases import CASES, Case

RNG = np.random.default_rng(0)


def artifact(tmp_path: Path, nodes, feed, outputs=("y",), constants=None, opset=20) -> Artifact:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feed.items()
    ]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    path = tmp_path / "model.onnx"
    inferred = onnx.shape_inference.infer_shapes(model)
    for value in inferred.graph.output:
        if not value.type.WhichOneof("value"):  # of some operators the checker knows no type
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    onnx.save(inferred, path)
    specs = interface(load_model(path))
    return Artifact(path, "onnx", *specs, sha256="")


def truth_of(made: Artifact, feed) -> Truth:
    with Twin(made) as twin:
        return twin.run(feed)


def single(made: Artifact, feed):
    with OnnxRunner(made) as runner:
        return runner.run(feed)


def node(op, inputs, outputs="y", **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


X = RNG.standard_normal((2, 3, 9, 8)).astype(np.float32)
W = RNG.standard_normal((5, 3, 3, 2)).astype(np.float32)
V = RNG.standard_normal((4, 6)).astype(np.float32)
FORMULAS = {
    "conv": (
        [node("Conv", "x w", strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2])],
        {"x": X},
        {"w": W},
        lambda x, w: np.stack([
            sum(
                signal.correlate2d(np.pad(image[c], [(1, 2), (0, 1)]), np.kron(k[c], [[1, 0]])[:, :-1], "valid")
                for c in range(3)
            )[::2]
            for image in x for k in w
        ]).reshape(2, 5, 5, 7),
    ),
    "erf": ([node("Erf", "x")], {"x": V}, {}, special.erf),
    "softplus": ([node("Softplus", "x")], {"x": 30 * V}, {}, lambda x: np.logaddexp(0, x)),
    "log_softmax": ([node("LogSoftmax", "x", axis=1)], {"x": 9 * V}, {}, lambda x: special.log_softmax(x, 1)),
    "matmul": ([node("MatMul", "x w")], {"x": V}, {"w": V.T.copy()}, lambda x, w: x @ w),
    "log_sum_exp": (
        [node("ReduceLogSumExp", "x axes", keepdims=0)], {"x": 90 * V}, {"axes": np.array([1])},
        lambda x, axes: special.logsumexp(x, 1),
    ),
    "layer_norm": (
        [node("LayerNormalization", "x s", epsilon=1e-3)], {"x": V}, {"s": V[0].copy()},
        lambda x, s: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + float(np.float32(1e-3))) * s,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_values_are_those_of_the_formula_in_double(name, tmp_path):
    nodes, feed, constants, formula = FORMULAS[name]
    made = artifact(tmp_path, nodes, feed, constants=constants)
    doubles = [np.asarray(each, np.float64) for each in (*feed.values(), *constants.values())]
    np.testing.assert_allclose(truth_of(made, feed).values["y"], formula(*doubles), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_lies_around_the_twin(case: Case, tmp_path):
    """Values agree within what float32 can hold, and a few times the spread where that is not small by chance."""
    made = artifact(tmp_path, case.nodes, case.feed, case.outputs, case.constants, case.opset)
    truth, found = truth_of(made, case.feed), single(made, case.feed)
    for name, value in truth.values.items():
        assert value.dtype == (np.float64 if found[name].dtype.kind == "f" else found[name].dtype)
        assert value.shape == truth.spread[name].shape == found[name].shape
        error = np.abs(found[name].astype(np.float64) - value)
        largest = np.abs(value).max(initial=1e-30)
        assert error.max(initial=0.0) <= 1e-5 * largest
        assert (error <= 8 * truth.spread[name] + 2**-22 * largest).all()
        assert truth.spread[name].max(initial=0.0) <= 1e-5 * largest


def test_the_spread_of_a_well_conditioned_model_is_that_of_float32(tmp_path):
    made = artifact(tmp_path, [node("Tanh", "x", "t"), node("Mul", "t t")], {"x": V})
    truth = truth_of(made, {"x": V})
    relative = truth.spread["y"] / truth.values["y"]
    assert 2e-8 < np.median(relative) < 4e-7


@pytest.mark.parametrize("op", ["Tanh", "Atan", "Asin"])
def test_a_function_that_is_all_but_its_argument_is_not_rounded_to_it_everywhere(op, tmp_path):
    x = (V * 1e-6).astype(np.float32)
    made = artifact(tmp_path, [node(op, "x", "t"), node("Sub", "x t")], {"x": x})
    truth = truth_of(made, {"x": x})
    off = np.abs(single(made, {"x": x})["y"] - truth.values["y"])
    assert off.max() <= 16 * truth.spread["y"].max() <= 16 * 8 * 2.0**-24 * np.abs(x).max()
    assert truth.spread["y"].max() > 0


def test_moving_data_adds_no_spread(tmp_path):
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0]),
        node("Relu", "t", "r"),
        node("Neg", "r", "n"),
        node("Max", "n t"),
    ]
    truth = truth_of(artifact(tmp_path, nodes, {"x": V}), {"x": V})
    np.testing.assert_array_equal(truth.values["y"], np.maximum(-np.maximum(V.T, 0), V.T))
    assert not truth.spread["y"].any()


@pytest.mark.parametrize("by", [np.float32([1, 1, 0.6, 0.6]), np.array([1, 1, 15, 15])], ids=["scale", "size"])
def test_the_nearest_is_that_of_float32_whatever_the_scale(by, tmp_path):
    x = np.arange(81, dtype=np.float32).reshape(1, 1, 9, 9)
    operands = ["x", "", "s"] if by.dtype == np.float32 else ["x", "", "", "s"]
    resize = helper.make_node(
        "Resize", operands, ["y"], coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    made = artifact(tmp_path, [resize], {"x": x}, constants={"s": by})
    truth = truth_of(made, {"x": x})
    np.testing.assert_array_equal(truth.values["y"], single(made, {"x": x})["y"])
    assert not truth.spread["y"].any()


def test_exact_arithmetic_adds_no_spread_so_that_floors_do_not_flip(tmp_path):
    x = np.arange(12, dtype=np.float32)
    nodes = [node("Mul", "x half", "h"), node("Add", "h half", "s"), node("Floor", "s")]
    truth = truth_of(artifact(tmp_path, nodes, {"x": x}, constants={"half": np.float32(0.5)}), {"x": x})
    assert not truth.spread["y"].any()


def test_cancellation_shows_in_the_spread(tmp_path):
    """E[x²] - E[x]² at mean 100: float32 loses four digits, and the twin says so."""
    x = (100 + RNG.standard_normal((8, 512))).astype(np.float32)
    nodes = [
        node("Mul", "x x", "xx"),
        node("ReduceMean", "xx axes", "of_squares"),
        node("ReduceMean", "x axes", "mean"),
        node("Mul", "mean mean", "square"),
        node("Sub", "of_squares square"),
    ]
    made = artifact(tmp_path, nodes, {"x": x}, constants={"axes": np.array([1])})
    truth = truth_of(made, {"x": x})
    np.testing.assert_allclose(truth.values["y"][:, 0], x.astype(np.float64).var(1), rtol=1e-10)
    error = np.abs(single(made, {"x": x})["y"] - truth.values["y"])
    assert truth.spread["y"].max() > 1e-3
    assert (error <= 8 * truth.spread["y"].max()).all()


@pytest.mark.parametrize("op", ["ReduceSum", "MatMul", "Conv"])
def test_cancellation_inside_a_sum_shows_too(op, tmp_path):
    terms = RNG.standard_normal((4, 256)).astype(np.float32)
    x = np.concatenate([terms, -terms + np.float32(1e-4)], 1)
    ones = np.full((512, 1), 0.7, np.float32)
    cases = {
        "ReduceSum": (x, np.array([1])),
        "MatMul": (x, ones),
        "Conv": (x[:, :, None], ones.reshape(1, 512, 1)),
    }
    x, constant = cases[op]
    made = artifact(tmp_path, [node(op, "x c")], {"x": x}, constants={"c": constant})
    truth = truth_of(made, {"x": x})
    error = np.abs(single(made, {"x": x})["y"] - truth.values["y"])
    assert np.abs(truth.values["y"]).max() < 0.1
    assert error.max() <= 8 * truth.spread["y"].max()
    assert truth.spread["y"].max() > 1e-6


def test_a_deep_random_net_is_known_as_sensitive(tmp_path):
    x, nodes, constants = RNG.standard_normal((4, 32)).astype(np.float32), [], {}
    for depth in range(30):
        constants[f"w{depth}"] = (2.0 / np.sqrt(32) * RNG.standard_normal((32, 32))).astype(np.float32)
        nodes += [node("MatMul", f"t{depth} w{depth}" if depth else "x w0", f"m{depth}"),
                  node("Tanh", f"m{depth}", f"t{depth + 1}" if depth < 29 else "y")]  # fmt: skip
    made = artifact(tmp_path, nodes, {"x": x}, constants=constants)
    truth = truth_of(made, {"x": x})
    error = np.abs(single(made, {"x": x})["y"] - truth.values["y"])
    assert truth.spread["y"].max() > 1e-5
    assert error.max() <= 8 * truth.spread["y"].max()


def test_a_model_of_integers_has_a_spread(tmp_path):
    table = RNG.standard_normal((9, 16)).astype(np.float32)
    ids = np.array([[1, 5, 8]])
    nodes = [node("Gather", "table ids", "e"), node("MatMul", "e w")]
    made = artifact(
        tmp_path, nodes, {"ids": ids}, constants={"table": table, "w": RNG.standard_normal((16, 4)).astype("f")}
    )
    truth = truth_of(made, {"ids": ids})
    assert (truth.spread["y"] > 0).mean() > 0.9


@pytest.mark.parametrize("epsilon", [0.0, 1e-9])
def test_another_epsilon_is_not_explained_near_silence(epsilon, tmp_path):
    x = np.float32([[0, 0, 0, 0], [1e-6, 2e-6, -1e-6, 0], [1e-5, 1e-5, 3e-5, 0]])
    nodes = [node("Mul", "x x", "xx"), node("Add", "xx eps", "sum"), node("Log", "sum")]
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()
    right = artifact(tmp_path / "right", nodes, {"x": x}, constants={"eps": np.float32(1e-10)})
    wrong = artifact(tmp_path / "wrong", nodes, {"x": x}, constants={"eps": np.float32(epsilon)})
    truth = truth_of(right, {"x": x})
    good, bad = (np.abs(single(each, {"x": x})["y"] - truth.values["y"]) for each in (right, wrong))
    assert (good <= 8 * truth.spread["y"].max()).all()
    assert (bad > 1e3 * truth.spread["y"].max()).any()


DEVIATION = (
    node("ReduceMean", "l axes", "again"),
    node("Sub", "l again", "deviations"),
    node("Mul", "deviations deviations", "squares"),
    node("ReduceMean", "squares axes", "variance"),
    node("Sqrt", "variance", "std"),
)
"""That of ``l`` along ``axes``."""


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize(("epsilon", "least", "most"), [(1e-8, 60.0, 2e4), (1e-2, 0.0, 1e-2)])
def test_a_deviation_of_equal_elements_may_be_zero(canonical, epsilon, least, most, tmp_path):
    """PyTorch's std of a constant is 0 although its mean is rounded: their quotient is that error by the epsilon."""
    x = np.repeat(np.float32([[1e-7], [3e-4]]), 24, 1)
    nodes = [
        node("Log", "x", "l"),
        node("ReduceMean", "l axes", "mean"),
        node("Sub", "l mean", "centered"),
        *DEVIATION,
        node("Add", "std epsilon", "divisor"),
        node("Div", "centered divisor"),
    ]
    constants = {"axes": np.array([1]), "epsilon": np.float32(epsilon)}
    made = artifact(tmp_path, nodes, {"x": x}, constants=constants)
    if canonical:  # deviations are 0 there, and those of the source may be otherwise
        ir.save(canonicalize(load_model(made.path)), made.path)
        assert not single(made, {"x": x})["y"].any()
    truth = truth_of(made, {"x": x})
    assert np.abs(truth.values["y"]).max() < 1e-5
    assert least <= truth.spread["y"].max() <= most


def test_the_calmest_run_is_one_that_rounds_each_element_on_its_own(tmp_path):
    """Rounded alike, equal elements have no deviation, which is no luck of that run."""
    x = np.repeat(np.float32([[1e-7], [3e-4]]), 24, 1)
    nodes = [
        node("Log", "x", "l"),
        *DEVIATION,
        node("Div", "std epsilon"),
    ]
    constants = {"axes": np.array([1]), "epsilon": np.float32(1e-8)}
    truth = truth_of(artifact(tmp_path, nodes, {"x": x}, constants=constants), {"x": x})
    assert truth.calmest["y"] > 10


def test_a_mean_variance_normalization_of_equal_elements_is_zero_or_one(tmp_path):
    x = np.full((2, 3, 4, 5), 0.5537, np.float32)
    made = artifact(tmp_path, [node("MeanVarianceNormalization", "x")], {"x": x})
    truth = truth_of(made, {"x": x})
    assert not truth.values["y"].any()
    assert 0.1 < truth.spread["y"].max() < 10
    assert truth.calmest["y"] > 0.1, "equal elements are rounded apart in every run"
    tiny = 1e-7 * RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    truth = truth_of(made, {"x": tiny})
    np.testing.assert_allclose(truth.values["y"], single(made, {"x": tiny})["y"], rtol=0, atol=1e-5)


def test_a_norm_of_equal_elements_may_be_that_of_the_source(tmp_path):
    """Its input is shifted, so that the delivered one is 0; the source's need not be."""
    x = np.repeat(np.float32([[1.7], [300.1]]), 24, 1)
    norm = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], "norm", epsilon=1e-16)
    made = artifact(tmp_path, [norm], {"x": x}, constants={"scale": np.ones(24, np.float32)})
    ir.save(canonicalize(load_model(made.path)), made.path)
    assert not single(made, {"x": x})["y"].any()
    assert truth_of(made, {"x": x}).spread["y"].max() > 0.1


def test_a_steady_run_rounds_equal_values_alike():
    values = np.repeat(np.random.default_rng(0).standard_normal((50, 1)), 7, 1)
    rounded = Noise(1, steady=True).result(values, ir.DataType.FLOAT)
    assert (rounded == rounded[:, :1]).all()
    assert (rounded != values.astype(np.float32)).any()
    loose = Noise(1).result(values, ir.DataType.FLOAT)
    assert (loose != loose[:, :1]).any()


def test_overflow_of_the_models_type_is_an_infinite_spread(tmp_path):
    x = np.float32([10, 100])
    made = artifact(tmp_path, [node("Exp", "x", "e"), node("Log", "e")], {"x": x})
    truth = truth_of(made, {"x": x})
    np.testing.assert_allclose(truth.values["y"], [10, 100], rtol=1e-15)
    assert np.isfinite(truth.spread["y"]).tolist() == [True, False]


def test_a_tie_that_rounds_either_way_is_a_whole_step(tmp_path):
    x = (np.arange(64, dtype=np.float32) + np.float32(0.5)) * np.float32(0.1)
    constants = {"s": np.float32(0.1), "z": np.uint8(128)}
    made = artifact(tmp_path, [node("QuantizeLinear", "x s z")], {"x": x}, constants=constants)
    truth = truth_of(made, {"x": x})
    assert truth.values["y"].dtype == np.uint8
    assert set(truth.spread["y"].tolist()) == {0.0, 1.0}


def test_halves_round_as_halves(tmp_path):
    x = V.astype(np.float16)
    truth = truth_of(artifact(tmp_path, [node("Exp", "x")], {"x": x}), {"x": x})
    relative = truth.spread["y"] / truth.values["y"]
    assert 1e-4 < np.median(relative) < 2e-3


def test_the_same_numbers_every_time(tmp_path):
    made = artifact(tmp_path, [node("Exp", "x", "e"), node("MatMul", "e e")], {"x": V[:, :4].copy()})
    first, second = (truth_of(made, {"x": V[:, :4]}) for _ in range(2))
    np.testing.assert_array_equal(first.spread["y"], second.spread["y"])


def test_what_draws_random_numbers_has_no_twin(tmp_path):
    made = artifact(tmp_path, [node("RandomNormalLike", "x")], {"x": V})
    with pytest.raises(Unsupported, match="random"):
        truth_of(made, {"x": V})


TIED = {
    "TopK": (
        [node("TopK", "x k", "v y")],
        {"x": np.array([[5, 1, 3, 3 + 2e-7, 3, 3, 0, 3]], np.float32)},
        {"k": np.array([3])},
    ),
    "NonMaxSuppression": (
        [node("NonMaxSuppression", "b x most overlap", "y")],
        {"x": np.array([[[5, 3, 3 + 2e-7, 3, 3, 1]]], np.float32)},
        {
            "b": np.array([[[0, at, 1, at + 1] for at in (9, 0, 0.1, 0.2, 0.3, 7)]], np.float32),
            "most": np.array([9]),
            "overlap": np.array([0.2], np.float32),
        },
    ),
}


@pytest.mark.parametrize("op", TIED)
def test_ties_are_taken_in_other_orders(tmp_path, op):
    nodes, feed, constants = TIED[op]
    made = artifact(tmp_path, nodes, feed, constants=constants)
    with Twin(made) as twin:
        truth = twin.run(feed)
        ties = truth.ties()
        wanted = np.zeros(ties.chosen[0].shape, bool)
        wanted[4] = True
        asked, chosen = ties.prefer(wanted)
    delivered = [set(np.ravel(run["y"][..., -1] if op != "TopK" else run["y"]).tolist()) for run in ties.runs]
    tied = {2, 3, 4, 5, 7} if op == "TopK" else {1, 2, 3, 4}
    always = {0} if op == "TopK" else {0, 5}
    assert all(each >= always for each in delivered)
    assert set().union(*delivered) == tied | always
    assert np.array_equal(ties.runs[0]["y"], truth.values["y"])
    assert 4 in asked["y"]
    assert chosen[4]


def test_candidates_that_do_not_tie_stay(tmp_path):
    feed = {"x": np.array([[5, 1, 3, 3.001, 2.999, 4]], np.float32)}
    made = artifact(tmp_path, [node("TopK", "x k", "v y")], feed, constants={"k": np.array([3])})
    with Twin(made) as twin:
        assert all(np.array_equal(run["y"], [[0, 5, 3]]) for run in twin.run(feed).ties().runs)


def test_a_model_that_chooses_nothing_has_no_ties(tmp_path):
    with Twin(artifact(tmp_path, [node("Relu", "x")], {"x": V})) as twin:
        assert twin.run({"x": V}).ties() is None


@pytest.mark.parametrize("centered", [0, 1])
def test_suppression_is_that_of_onnx_runtime(tmp_path, centered):
    corners = RNG.random((2, 40, 4)).astype(np.float32)
    corners[0, :3, 2:] = corners[0, :3, :2]  # without an area
    feed = {"b": corners, "x": RNG.random((2, 3, 40)).astype(np.float32)}
    limits = {"most": np.array([7]), "overlap": np.array([0.3], np.float32), "least": np.array([0.2], np.float32)}
    nodes = [node("NonMaxSuppression", "b x most overlap least", "y", center_point_box=centered)]
    made = artifact(tmp_path, nodes, feed, constants=limits)
    assert np.array_equal(truth_of(made, feed).values["y"], single(made, feed)["y"])


def test_thorough_runs_find_integers_that_few_miss(tmp_path):
    """Values that lie about a rounding from a tie, of which each run takes some to the other side."""
    step = np.float32(0.3)
    ties = RNG.integers(0, 120, 9999) + 0.5
    x = (ties * np.float64(step)).astype(np.float32)
    off = np.abs(x / np.float64(step) / ties - 1) * 2**24
    x = x[(off > 0.6) & (off < 1.0)]
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    made = artifact(tmp_path, nodes, {"x": x}, constants={"s": step, "z": np.int8(0)})
    with Twin(made) as twin:
        few = twin.run({"x": x})
        many = few.thorough()
    assert np.array_equal(many.values["y"], few.values["y"])
    assert (many.spread["y"] >= few.spread["y"]).all()
    moved = [float(np.mean(each.spread["y"] > 0)) for each in (few, many)]
    assert 0 < moved[0] < 0.97 < 0.99 < moved[1]


def test_one_value_near_a_tie_moves_in_some_runs_alone(tmp_path):
    """All of the output hangs on it; the calmest run leaves it, that of a thousand such values turns some."""
    step, third = np.float32(0.1), np.float32(1 / 3)
    near = (np.float32(100.5 * 0.3) * (1 + np.arange(-9, 9) * 2.0**-23)).astype(np.float32)
    off = np.abs(near.astype(np.float64) * third / step - 100.5)
    x = near[[off.argmin()]]
    nodes = [
        node("Mul", "x third", "m"),
        node("QuantizeLinear", "m s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Mul", "d many", "y"),
    ]
    constants = {"third": third, "s": step, "z": np.int8(0), "many": np.ones(5, np.float32)}
    made = artifact(tmp_path, nodes, {"x": x}, constants=constants)
    with Twin(made) as twin:
        truth = twin.run({"x": x}).thorough()
    assert truth.calmest["y"] < 1e-6
    assert (truth.spread["y"] > 0.09).all()


def test_outputs_behind_the_place_of_a_largest_element_are_told(tmp_path):
    x = RNG.standard_normal((2, 5)).astype(np.float32)
    nodes = [
        helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0),
        helper.make_node("Cast", ["i"], ["y"], to=1),
        node("Relu", "x", "z"),
    ]
    with Twin(artifact(tmp_path, nodes, {"x": x}, ("y", "z"))) as twin:
        assert twin.run({"x": x}).placed == {"y"}


def test_values_near_ties_go_either_way_and_equal_ones_alike(tmp_path):
    """From 0.04 of a step on the other side of a tie, where an engine rounds what lies within 0.05; not at 0.2."""
    x = np.repeat((RNG.integers(0, 90, 400) + RNG.choice([0.46, 0.54, 0.3, 0.7], 400)).astype(np.float32), 2)
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    made = artifact(tmp_path, nodes, {"x": x}, constants={"s": np.float32(1), "z": np.int8(0)})
    with Twin(made) as twin:
        runs = [run["y"] for run in twin.run({"x": x}).near_ties(0.05)]
    near = np.abs(x - np.floor(x) - 0.5) < 0.1
    moved = np.max([np.abs(run - np.rint(x)) for run in runs], axis=0)
    assert set(moved[near]) == {0.0, 1.0}
    assert not moved[~near].any()
    assert np.mean([np.abs(run - np.rint(x))[near].mean() for run in runs]) == pytest.approx(0.1, abs=0.03)
    assert all(np.array_equal(run[::2], run[1::2]) for run in runs)


def test_integer_products_near_ties_go_either_way(tmp_path):
    """A QLinearMatMul by 1 whose results are hundredths of its operand."""
    x = np.arange(0, 250, dtype=np.uint8).reshape(-1, 1)
    stored = {"s": np.float32(1), "z": np.uint8(0), "w": np.array([[1]], np.uint8), "hundred": np.float32(100)}
    made = artifact(tmp_path, [node("QLinearMatMul", "x s z w s z hundred z")], {"x": x}, constants=stored)
    with Twin(made) as twin:
        runs = [run["y"].astype(np.float64) for run in twin.run({"x": x}).near_ties(0.05)]
    moved = np.max([np.abs(run - np.rint(x / 100.0)) for run in runs], axis=0)
    near = np.abs(x % 100 - 50.0)
    assert moved[near < 3].all()
    assert not moved[near > 5].any()
