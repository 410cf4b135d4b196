"""Scales moved between layers: the float model computes the same, the integer one loses less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.artifact import Array
from convertkit.data.held_out import held_out_positions
from convertkit.onnx.edit import array_of
from convertkit.onnx.load import load_model
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.search.equalized import equalized_weights
from convertkit.quantization.weights.equalize import equalize, measure
from convertkit.quantization.weights.sites import find_sites
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime.profile import profile as ort_profile
from tests.quantization.models import artifact_of, images, model_of

DATA = images(24)
FEEDS = [{"x": image[None]} for image in DATA]
SPREAD = np.exp(np.random.default_rng(7).normal(0, 1.5, 12)).astype(np.float32)


def layers(between: str, groups: int = 1) -> onnx.ModelProto:
    """Two convolutions; the channels between them differ by orders of magnitude."""
    rng = np.random.default_rng(0)
    first = rng.normal(0, 0.3, (12, 3, 3, 3)) * SPREAD[:, None, None, None]
    second = rng.normal(0, 0.3, (12, 12 // groups, 3, 3))
    second = second / (SPREAD[None, :, None, None] if groups == 1 else SPREAD[:, None, None, None])
    attributes = {"kernel_shape": [2, 2]} if between.endswith("Pool") else {}
    limits = ["low", "high"] if between == "Clip" else []
    constants = {"w1": first, "b1": rng.normal(0, 0.1, 12) * SPREAD, "w2": second, "low": 0.0, "high": 6.0}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "first"),
        helper.make_node(between, ["a", *limits], ["b"], "between", **attributes),
        helper.make_node("Conv", ["b", "w2"], ["y"], "second", group=groups),
    ]
    size = 8 if not attributes else 7
    floats = {name: np.asarray(value, np.float32) for name, value in constants.items()}
    return model_of(nodes, floats, {"x": [1, 3, 12, 12]}, {"y": [1, 12, size, size]})


def normalized() -> onnx.ModelProto:
    """A normalization whose scales have outliers, as in language models, and two products behind it."""
    rng = np.random.default_rng(0)
    constants = {
        "gain": SPREAD,
        "shift": 0.1 * SPREAD,
        "w1": rng.normal(0, 0.3, (12, 24)) / SPREAD[:, None],
        "w2": rng.normal(0, 0.3, (12, 16)) / SPREAD[:, None],
    }
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gain", "shift"], ["n"], "norm", axis=-1),
        helper.make_node("MatMul", ["n", "w1"], ["y"], "one"),
        helper.make_node("MatMul", ["n", "w2"], ["z"], "two"),
    ]
    floats = {name: np.asarray(value, np.float32) for name, value in constants.items()}
    return model_of(nodes, floats, {"x": [1, 3, 12, 12]}, {"y": [1, 3, 12, 24], "z": [1, 3, 12, 16]})


def averaged(kind: str) -> onnx.ModelProto:
    """A convolution, the mean over positions in one of three spellings, and the product that classifies."""
    rng = np.random.default_rng(0)
    constants = {
        "w1": rng.normal(0, 0.3, (12, 3, 3, 3)) * SPREAD[:, None, None, None],
        "b1": rng.normal(0, 0.1, 12) * SPREAD,
        "w2": rng.normal(0, 0.3, (10, 12)) / SPREAD,
    }
    stored = {name: np.asarray(value, np.float32) for name, value in constants.items()}
    stored |= {"axes": np.array([2, 3]), "rows": np.array([1, -1])}
    means = {
        "pooled flat": [("GlobalAveragePool", ["b"], "c", {}), ("Flatten", ["c"], "d", {})],
        "mean": [("ReduceMean", ["b", "axes"], "d", {"keepdims": 0})],
        "mean, reshaped": [("ReduceMean", ["b", "axes"], "c", {}), ("Reshape", ["c", "rows"], "d", {})],
    }
    nodes = [helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "first"), helper.make_node("Relu", ["a"], ["b"], "r")]
    nodes += [helper.make_node(op, reads, [made], made, **how) for op, reads, made, how in means[kind]]
    nodes.append(helper.make_node("Gemm", ["d", "w2"], ["y"], "last", transB=1))
    return model_of(nodes, stored, {"x": [1, 3, 12, 12]}, {"y": [1, 10]})


def separable(width: int = 16) -> onnx.ModelProto:
    """Four layers as in a MobileNet, whose channels lie up to ten powers of two apart behind each of them."""
    rng = np.random.default_rng(0)
    before = np.ones(3)
    constants, nodes, value = {}, [], "x"
    for place, (count, groups, size) in enumerate(((width, 1, 3), (width, width, 3), (width, 1, 1), (8, 1, 1))):
        factors = 2.0 ** rng.integers(-5, 6, count) if place < 3 else np.ones(count)
        inner = len(before) // groups
        weight = rng.normal(0, (inner * size * size) ** -0.5, (count, inner, size, size))
        read = before.reshape(-1, 1, 1, 1) if groups > 1 else before.reshape(1, -1, 1, 1)
        constants |= {f"w{place}": weight * factors.reshape(-1, 1, 1, 1) / read}
        constants |= {f"b{place}": rng.normal(0, 0.3, count) * factors}
        nodes.append(
            helper.make_node("Conv", [value, f"w{place}", f"b{place}"], [f"c{place}"], f"l{place}", group=groups)
        )
        value, before = f"c{place}", factors
        if place < 3:
            nodes.append(helper.make_node("Relu", [value], [f"r{place}"], f"r{place}"))
            value = f"r{place}"
    floats = {name: np.asarray(array, np.float32) for name, array in constants.items()}
    return model_of(nodes, floats, {"x": [1, 3, 12, 12]}, {value: [1, 8, 8, 8]})


def outputs(model: ir.Model) -> Array:
    names = [str(value.name) for value in model.graph.outputs]
    return np.concatenate([answer[name].ravel() for answer in run_all(open_session(model), names, FEEDS, {})
                           for name in names])  # fmt: skip


MODELS = {
    "Relu": layers("Relu"),
    "LeakyRelu": layers("LeakyRelu"),
    "depthwise": layers("Relu", groups=12),
    "grouped": layers("Relu", groups=3),
    "pooled": layers("MaxPool"),
    "normalized": normalized(),
    **{kind: averaged(kind) for kind in ("pooled flat", "mean", "mean, reshaped")},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_float_model_stays(tmp_path: Path, name: str) -> None:
    model = load_model(artifact_of(MODELS[name], tmp_path).path)
    prepare(model)
    before = outputs(model)
    sites = find_sites(model.graph)
    assert len(sites) == 1
    readers = frozenset(sites[0].readers)
    assert equalize(model.graph, sites, measure(model, sites, FEEDS, {}), readers, symmetric=False)
    np.testing.assert_allclose(outputs(model), before, atol=1e-5 * np.abs(before).max())


@pytest.mark.parametrize("between", ["Clip", "Sigmoid", "Tanh"])
def test_what_does_not_commute_with_scales_is_left(tmp_path: Path, between: str) -> None:
    model = load_model(artifact_of(layers(between), tmp_path).path)
    prepare(model)
    assert find_sites(model.graph) == ()


def test_a_mean_over_other_axes_does_not_let_scales_through(tmp_path: Path) -> None:
    """Two examples, channels and rows: behind this mean, rows stand where the channels are behind one over places."""
    rng = np.random.default_rng(0)
    stored = {"w": rng.normal(0, 1, (2, 3, 1, 1)), "v": rng.normal(0, 1, (5, 2))}
    constants = {name: value.astype(np.float32) for name, value in stored.items()} | {"axes": np.array([0, 3])}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first"),
        helper.make_node("ReduceMean", ["a", "axes"], ["m"], "mean", keepdims=0),
        helper.make_node("Gemm", ["m", "v"], ["y"], "last", transB=1),
    ]
    model = load_model(artifact_of(model_of(nodes, constants, {"x": [2, 3, 2, 4]}, {"y": [2, 5]}), tmp_path).path)
    prepare(model)
    assert find_sites(model.graph) == ()


def test_an_output_of_the_graph_keeps_its_scale(tmp_path: Path) -> None:
    proto = layers("Relu")
    proto.graph.output.append(helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [1, 12, 10, 10]))
    model = load_model(artifact_of(proto, tmp_path).path)
    prepare(model)
    assert find_sites(model.graph) == ()


@pytest.mark.parametrize(("name", "technique"), [("Relu", "cross-layer equalization"), ("normalized", "SmoothQuant")])
def test_its_gain_and_that_it_is_chosen(quantized, without_passes, name: str, technique: str) -> None:
    result = quantized(MODELS[name], DATA, without_costs=True)
    assert set(result.stage.diagnosis["equalized"].values()) == {technique}
    plain = without_passes(MODELS[name], DATA, "equalize", "loop")
    assert 3 + plain.snr_db(images(32, 5)) < result.snr_db(images(32, 5)) < 60


def test_quiet_rows_count_as_loud_ones_do(tmp_path: Path) -> None:
    """What reads rows decades apart makes up for it: behind two layers that were scaled, channels are of one size."""
    widest = {}
    for alike in (False, True):
        model = load_model(artifact_of(separable(), tmp_path).path)
        prepare(model)
        sites = find_sites(model.graph)
        readers = frozenset(node for site in sites for node in site.readers)
        equalize(model.graph, sites, measure(model, sites, FEEDS, {}), readers, symmetric=False, alike=alike)
        after = measure(model, find_sites(model.graph), FEEDS, {})
        widest[alike] = max(float(each.high.max() / np.median(each.high[each.high > 0])) for each in after)
    assert widest[True] < 4 < 10 < widest[False]


def test_channels_powers_of_two_apart_cost_integers_little(quantized, without_passes) -> None:
    result = quantized(separable(), DATA, without_costs=True)
    assert set(result.stage.diagnosis["equalized"]) == {"l0", "l1", "l2"}
    assert 30 < result.snr_db(images(32, 5)) < 60
    plain = without_passes(separable(), DATA, "equalize", "loop")
    assert not [node for node in plain.graph.node if node.op_type == "QuantizeLinear"], "so much that all stays float"


def test_stored_weights_are_equalized_where_no_operator_computes_in_integers(quantized) -> None:
    result = quantized(separable(96), DATA, target="onnxruntime")
    assert result.stage.diagnosis["integer_macs_share"] == 0
    assert result.stage.diagnosis["effective"] == "weights-only"
    told = set(result.stage.diagnosis["equalized"])
    assert told == {"l1", "l2"}, "activations are not rounded, and a depthwise one has a scale for each channel"
    assert result.snr_db(images(32, 5)) > 35


@pytest.mark.parametrize(("precision", "rungs"), [("w8", ["int8"]), ("w4", ["int4", "some int8"])])
@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_weights_alone_are_equalized(quantized, target: str, precision: str, rungs: list[str]) -> None:
    """A scale for each row of a 1 x 1 convolution loses what quiet inputs get, so that layers would stay float."""
    result = quantized(separable(96), DATA, precision, target)
    assert set(result.stage.diagnosis["equalized"]) == {"l1", "l2"}, "a depthwise one has a scale for each channel"
    assert [each["rung"] for each in result.stage.diagnosis["rungs"]] == rungs
    assert result.snr_db(images(32, 5)) > 24


@pytest.mark.parametrize("precision", ["w8", "w4"])
def test_weights_alone_whose_channels_are_alike_stay(quantized, precision: str) -> None:
    rng = np.random.default_rng(0)
    constants = {f"w{place}": rng.normal(0, 0.3, (12, 12, 3, 3)).astype(np.float32) for place in range(2)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "between"),
        helper.make_node("Conv", ["b", "w1"], ["y"], "second"),
    ]
    data = np.random.default_rng(1).normal(0, 1, (24, 12, 8, 8)).astype(np.float32)
    result = quantized(model_of(nodes, constants, {"x": [1, 12, 8, 8]}, {"y": [1, 12, 4, 4]}), data, precision)
    assert result.stage.diagnosis["equalized"] == {}


@pytest.mark.parametrize("gains", [True, False])
def test_scales_stay_moved_only_where_what_is_stored_keeps_more(gains: bool) -> None:
    """The expected noise of both falls; what the stored model answers decides."""
    model = ir.from_proto(onnx.shape_inference.infer_shapes(separable(96)))
    prepare(model)
    weight = array_of(model.graph.initializers["w2"])

    def store(copy: ir.Model) -> None:
        moved = not any(np.array_equal(array_of(each), weight) for each in copy.graph.initializers.values())
        for value in copy.graph.initializers.values():
            array = array_of(value)
            if moved != gains and array is not None and array.ndim > 1:
                value.const_value = ir.tensor(array * np.float32(1.5))

    scaled, moved = equalized_weights(model, ort_profile(ExportOptions("x", precision="w8")), FEEDS, {}, store)
    assert bool(moved) == gains
    assert (scaled is model) != gains


@pytest.mark.parametrize("loud", ["nowhere", "where it is measured", "where it is judged"])
def test_a_channel_that_other_samples_fill_is_not_widened(quantized, loud: str) -> None:
    """A quiet channel that the second layer needs a hundred times as much as the other: in some samples it is loud."""
    constants = {"w1": np.eye(2), "w2": np.random.default_rng(0).normal(0, 1, (6, 2)) * [100, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "between"),
        helper.make_node("Conv", ["b", "w2"], ["y"], "second"),
    ]
    floats = {name: np.asarray(value, np.float32)[:, :, None, None] for name, value in constants.items()}
    data = np.random.default_rng(1).uniform(-0.2, 1, (24, 2, 8, 8)).astype(np.float32)
    judged = np.isin(np.arange(24), held_out_positions(24))
    quiet = {"nowhere": judged | True, "where it is measured": judged, "where it is judged": ~judged}[loud]
    data[quiet, 0] *= 0.01
    result = quantized(model_of(nodes, floats, {"x": [1, 2, 8, 8]}, {"y": [1, 6, 8, 8]}), data, without_costs=True)
    assert bool(result.stage.diagnosis["equalized"]) == (loud == "nowhere")


def test_where_it_does_not_gain_it_is_not_done(quantized) -> None:
    rng = np.random.default_rng(0)
    constants = {"w1": rng.normal(0, 0.3, (12, 3, 3, 3)), "w2": rng.normal(0, 0.3, (12, 12, 3, 3))}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "between"),
        helper.make_node("Conv", ["b", "w2"], ["y"], "second"),
    ]
    floats = {name: np.asarray(value, np.float32) for name, value in constants.items()}
    model = model_of(nodes, floats, {"x": [1, 3, 12, 12]}, {"y": [1, 12, 8, 8]})
    assert quantized(model, DATA).stage.diagnosis["equalized"] == {}


@pytest.mark.filterwarnings("error")
def test_channels_that_are_loud_where_no_reader_looks_are_left() -> None:
    """The first six are loud and read with zeros, the others silent and read."""
    rng = np.random.default_rng(0)
    loud = np.repeat([1.0, 0.0], 6)[:, None, None, None]
    constants = {
        "a": (rng.normal(0, 1, (12, 3, 3, 3)) * loud).astype("f4"),
        "b": (rng.normal(0, 1, (12, 12, 3, 3)) * (1 - loud).reshape(1, 12, 1, 1)).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], "one"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "b"], ["y"], "two"),
    ]
    model = ir.from_proto(model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 12, 8, 8]}))
    sites = find_sites(model.graph)
    assert len(sites) == 1
    integer = frozenset(model.graph)
    assert equalize(model.graph, sites, measure(model, sites, FEEDS, {}), integer, symmetric=False) == ()
