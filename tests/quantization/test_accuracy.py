"""Every technique has its own measured gain, and the loop repairs what plain int8 breaks."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.report import UNEVEN
from convertkit.quantization.weights.integers import quantize_weight
from convertkit.quantization.weights.patches import Moments, has_rows, moments, weight_rows
from convertkit.quantization.weights.rounding import compensated, descended, layer_snr_db
from convertkit.quantization.weights.tune import bias_shift
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import artifact_of, detector, images, model_of, small_cnn

DATA = images(48)


def correlated(columns: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(0, 1, (2000, columns // 4)) @ rng.normal(0, 1, (columns // 4, columns))
    return mixed + 0.3 * rng.normal(0, 1, (2000, columns)) + 0.5


def moments_of(data: np.ndarray) -> Moments:
    return Moments((data.T @ data / len(data))[None], data.mean(0)[None])


def rounding_problem() -> tuple[np.ndarray, np.ndarray, Moments, np.ndarray]:
    rows = np.random.default_rng(3).normal(0, 0.2, (1, 10, 32))
    scales = np.abs(rows).max(-1, keepdims=True) / 7
    return rows, scales, moments_of(correlated(32)), np.clip(np.rint(rows / scales), -7, 7)


def test_error_compensation_gains() -> None:
    rows, scales, found, nearest = rounding_problem()
    integers = compensated(rows, scales, found, (-7, 7))
    assert np.abs(integers).max() <= 7
    assert layer_snr_db(rows, integers * scales, found) > 4 + layer_snr_db(rows, nearest * scales, found)


def test_descent_gains_and_never_loses() -> None:
    rows, scales, found, nearest = rounding_problem()
    integers = descended(rows, nearest, scales, found, (-7, 7))
    assert np.abs(integers - nearest).max() <= 3
    assert layer_snr_db(rows, integers * scales, found) > 3 + layer_snr_db(rows, nearest * scales, found)


def learned_by_relaxation(rows: np.ndarray, scales: np.ndarray, second: np.ndarray) -> np.ndarray:
    """AdaRound as published (arXiv:2004.10568): rectified sigmoids, annealed regularisation, Adam, 3,000 steps."""
    low = np.floor(rows / scales)
    share = np.clip((rows / scales - low + 0.1) / 1.2, 1e-3, 1 - 1e-3)
    v = np.log(share / (1 - share))
    m, n = np.zeros_like(v), np.zeros_like(v)
    steps = 3000
    for step in range(1, steps + 1):
        sigmoid = 1 / (1 + np.exp(-v))
        h = np.clip(1.2 * sigmoid - 0.1, 0, 1)
        slope = np.where((h > 0) & (h < 1), 1.2 * sigmoid * (1 - sigmoid), 0.0)
        gradient = 2 * np.matmul((low + h) * scales - rows, second) * scales
        beta = 20 - 18 * step / steps
        if step > steps // 5:
            away = 2 * h - 1
            gradient -= 0.01 * 2 * beta * np.sign(away) * np.abs(away) ** (beta - 1)
        gradient *= slope
        m, n = 0.9 * m + 0.1 * gradient, 0.999 * n + 0.001 * gradient**2
        v -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(n / (1 - 0.999**step)) + 1e-8)
    return np.clip(low + (1 / (1 + np.exp(-v)) > 0.5), -7, 7)


def test_rounding_is_not_behind_learned_rounding() -> None:
    rows, scales, found, nearest = rounding_problem()
    levels = {
        "nearest": layer_snr_db(rows, nearest * scales, found),
        "learned": layer_snr_db(rows, learned_by_relaxation(rows, scales, found.second) * scales, found),
        "ours": layer_snr_db(
            rows, descended(rows, compensated(rows, scales, found, (-7, 7)), scales, found, (-7, 7)) * scales, found
        ),
    }
    assert levels["learned"] > 3 + levels["nearest"]
    assert levels["ours"] > levels["learned"] - 0.1


def test_moments_are_those_of_the_convolution(tmp_path) -> None:
    model = canonicalize(ir.from_proto(small_cnn()))
    prepare(model)
    units = [unit for unit in find_units(model.graph, profile(ExportOptions("x", precision="int8"))) if has_rows(unit)]
    assert [unit.node.name for unit in units] == ["conv1", "depthwise", "pointwise", "head"]
    feeds = [{"x": x[None]} for x in DATA]
    found = moments(model, units, feeds, {}, np.random.default_rng(0))
    means = _mean_outputs(tmp_path, [unit.node.outputs[0].name for unit in units])
    for unit in units:
        rows = weight_rows(unit)
        bias = model.graph.initializers[unit.node.inputs[2].name].const_value.numpy()
        ours = np.einsum("gij,gj->gi", rows, found[unit.name].mean).ravel() + bias
        np.testing.assert_allclose(ours, means[unit.node.outputs[0].name], atol=0.15)


def _mean_outputs(folder, names: list[str]) -> dict[str, np.ndarray]:
    from convertkit.onnx.runner import OnnxRunner

    proto = small_cnn()
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    onnx.save(proto, folder / "all.onnx")
    from dataclasses import replace

    from convertkit.artifact import TensorSpec

    artifact = artifact_of(small_cnn(), folder)
    every = replace(artifact, path=folder / "all.onnx", outputs=tuple(TensorSpec(n, (), "float32") for n in names))
    with OnnxRunner(every) as runner:
        answers = [runner.run({"x": x[None]}) for x in DATA]
    return {
        n: np.mean([a[n].reshape(a[n].shape[0], a[n].shape[1], -1).mean((0, 2)) for a in answers], axis=0)
        for n in names
    }


def test_bias_correction_restores_the_mean() -> None:
    model = canonicalize(ir.from_proto(small_cnn()))
    prepare(model)
    unit = next(
        u for u in find_units(model.graph, profile(ExportOptions("x", precision="int8"))) if u.node.name == "head"
    )
    weight = model.graph.initializers["w4"].const_value.numpy()
    coarse = quantize_weight(weight, 0, (-2, 2))
    data = np.abs(np.random.default_rng(0).normal(1, 1, (500, 16)))
    shift = bias_shift(unit, coarse, moments_of(data))
    before = (data @ (coarse.real() - weight).T).mean(0)
    assert np.abs(before).max() > 0.05
    np.testing.assert_allclose(before + shift, 0, atol=1e-5)


def test_int4_weights_gain_from_calibration(quantized) -> None:
    plain = quantized(small_cnn(), None, "w4").snr_db(images(40, 5))
    tuned = quantized(small_cnn(), DATA, "w4").snr_db(images(40, 5))
    assert tuned > plain + 1


def test_every_method_works_and_auto_is_not_worse_than_the_worst(quantized) -> None:
    test = images(40, 5)
    levels = {
        method: quantized(small_cnn(), DATA, calib_method=method).snr_db(test)
        for method in ("minmax", "moving-average", "percentile", "mse", "auto")
    }
    assert min(levels.values()) > 15
    assert levels["auto"] > max(levels.values()) - 2


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_what_breaks_a_detector_stays_float(quantized, target: str) -> None:
    """Over all cells: naive integers lose more than 20 points of accuracy, what is made less than one."""
    test = images(120, 9)

    def points(result) -> tuple[float, float]:
        before, after = (np.moveaxis(each[:, 4:], 1, -1).reshape(-1, 6) for each in result.outputs(test))
        labels = drawn(np.clip(before, 1e-7, 1 - 1e-7))
        return tuple(100 * float((each.argmax(1) == labels).mean()) for each in (before, after))

    real, naive = points(quantized(detector(sharpness=0.6), DATA, target=target, full_integer=True))
    # By the cost tables so small a model is faster in float.
    repaired = quantized(detector(sharpness=0.6), DATA, target=target, without_costs=True)
    assert real > 60
    assert naive < real - 20
    assert points(repaired)[1] >= real - 1
    kept = repaired.stage.diagnosis["float"]
    assert kept["join"] == UNEVEN
    # Beside it only what is as fast in float.
    assert {name for name, why in kept.items() if why.startswith("float wins")} <= {"stem"}


def drawn(scores: np.ndarray) -> np.ndarray:
    """Labels as often of each class as the float model believes."""
    powers = scores / (1 - scores)
    shares = np.cumsum(powers / powers.sum(1, keepdims=True), axis=1)
    return (np.random.default_rng(7).random((len(scores), 1)) > shares).sum(1)


def test_diagnosis_is_json(quantized) -> None:
    import json

    diagnosis = json.loads(json.dumps(quantized(small_cnn(), DATA, without_costs=True).stage.diagnosis))
    assert set(diagnosis) >= {"method", "tensors", "worst", "curve", "float", "layers"}
    first = diagnosis["tensors"][0]
    assert len(first["histogram"]) == 64
    assert first["range"][0] <= 0 <= first["range"][1]
    assert len(diagnosis["worst"]) <= 10


def test_max_drop_is_searched_on_calibration_data(quantized) -> None:
    result = quantized(small_cnn(), DATA, max_drop=1.0)
    assert result.stage.diagnosis["score"]["expected_drop"] <= 0.5


def test_activations_outside_the_models_domain_are_an_error(quantized) -> None:
    from convertkit.errors import FeedError

    model = model_of([helper.make_node("Log", ["x"], ["l"], "log"), helper.make_node("Add", ["l", "x"], ["y"], "add")],
                     {}, {"x": [1, 3, 12, 12]}, {"y": [1, 3, 12, 12]})  # fmt: skip
    with pytest.raises(FeedError, match="NaN or infinity"):
        quantized(model, DATA)


def marked(*, shown: bool) -> onnx.ModelProto:
    """Two convolutions around a maximum of three columns, whose ends are padded with infinity; or that alone."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(8, 3, 3, 3)), "v": rng.normal(size=(4, 8, 1, 1)), "low": np.array(-np.inf)}
    sides = np.array([0, 0, 0, 1, 0, 0, 0, 1])
    stored = {name: each.astype(np.float32) for name, each in constants.items()} | {"sides": sides}
    stored |= {f"from{place}": np.array([place]) for place in range(3)} | {
        f"to{p}": np.array([p + 10]) for p in range(3)
    }
    parts = [
        helper.make_node("Slice", ["p", f"from{place}", f"to{place}", "axis"], [f"s{place}"]) for place in range(3)
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "first"),
        helper.make_node("Pad", ["c", "sides", "low"], ["y" if shown else "p"], "pad"),
        *([] if shown else [*parts, helper.make_node("Max", ["s0", "s1", "s2"], ["m"], "largest")]),
        *([] if shown else [helper.make_node("Conv", ["m", "v"], ["y"], "second")]),
    ]
    used = {name for node in nodes for name in node.input}
    stored = {name: each for name, each in {**stored, "axis": np.array([3])}.items() if name in used}
    return model_of(nodes, stored, {"x": [1, 3, 12, 12]}, {"y": [1, 8, 10, 12] if shown else [1, 4, 10, 10]})


def test_infinities_that_only_mark_stay_float(quantized) -> None:
    result = quantized(marked(shown=False), DATA)
    assert not {"p", "m"} & set(result.pairs())
    assert all(np.isfinite(scale) for scale, _ in result.pairs().values())
    assert result.snr_db(DATA) > 30


def test_scales_move_beside_infinities(quantized) -> None:
    """Two convolutions in front, the channels of the first far apart, whose scales are tried before all else."""
    model = marked(shown=False)
    rng = np.random.default_rng(1)
    spread = np.logspace(-3, 0, 6).reshape(6, 1, 1, 1)
    weights = {"a": rng.normal(size=(6, 3, 1, 1)) * spread, "b": rng.normal(size=(3, 6, 1, 1)) / spread[:, 0]}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items())
    front = [
        helper.make_node("Conv", ["x", "a"], ["n"], "narrow"),
        helper.make_node("Relu", ["n"], ["k"], "kept"),
        helper.make_node("Conv", ["k", "b"], ["z"], "back"),
    ]
    next(node for node in model.graph.node if node.name == "first").input[0] = "z"
    nodes = [*front, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    result = quantized(model, DATA)
    assert all(np.isfinite(scale) for scale, _ in result.pairs().values())
    assert result.snr_db(DATA) > 20


def test_infinities_that_the_model_gives_are_an_error(quantized) -> None:
    from convertkit.errors import FeedError

    with pytest.raises(FeedError, match="NaN or infinity"):
        quantized(marked(shown=True), DATA)
