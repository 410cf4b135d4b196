"""Pruning: the pattern that was asked for, shares by what layers bear, and weights that make up for the zeros."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.data.feeds import load_feeds
from convertkit.errors import Unsupported, UsageError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.progress import Silent
from convertkit.quantization import prune
from convertkit.quantization.graph.replay import open_session
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.budgets import DENSITIES, Curve, by_magnitude, shares
from convertkit.quantization.pruning.inputs import measure_inputs
from convertkit.quantization.pruning.patterns import Pattern, largest, neighbours, pattern
from convertkit.quantization.pruning.products import find_products
from convertkit.quantization.pruning.reconstruct import Effort, Layer, toward_original
from convertkit.quantization.pruning.sparsify import Sparsifier
from convertkit.quantization.pruning.surgery import explicit_biases
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from tests.quantization.models import artifact_of, images, model_of, small_cnn

RNG = np.random.default_rng(0)
ROWS = RNG.normal(0, 1, (1, 12, 48))
MIXED = RNG.normal(0, 1, (4000, 12)) @ RNG.normal(0, 1, (12, 48)) + 0.3 * RNG.normal(0, 1, (4000, 48))
SECOND = (MIXED.T @ MIXED / len(MIXED))[None]


def by_size(scores: np.ndarray, density: float) -> np.ndarray:
    return largest(scores, round(density * scores.size))


def test_two_of_four_channels_stay_at_every_tap() -> None:
    scores = RNG.random((2, 3, 8 * 9))
    kept = neighbours(scores, Pattern(0.5, 2, 4), taps=9).reshape(2, 3, 2, 4, 9)
    assert (kept.sum(axis=3) == 2).all()
    blocks = scores.reshape(2, 3, 2, 4, 9)
    assert (np.where(kept, blocks, 2).min(axis=3) > np.where(kept, -1, blocks).max(axis=3)).all()


@pytest.mark.parametrize(("share", "gain"), [(0.5, 0.85), (0.8, 0.2), (0.9, 0.35)])
def test_the_support_is_better_than_the_largest_weights(share: float, gain: float) -> None:
    layer = Layer(ROWS, SECOND)
    found = layer.sparse(1 - share, by_size, Effort())
    largest_fitted = layer.fitted(by_size(np.abs(layer.rows), 1 - share), 200)
    assert (found != 0).mean() == pytest.approx(1 - share, abs=0.002)
    assert layer.error(found) < gain * layer.error(largest_fitted)


def test_the_fit_is_the_least_squares_one() -> None:
    layer = Layer(ROWS, SECOND)
    mask = by_size(np.abs(layer.rows), 0.4)
    found = layer.fitted(mask, 300)
    for row, kept, rows in zip(found[0], mask[0], layer.rows[0], strict=True):
        inner = layer.second[0][np.ix_(kept, kept)]
        assert np.allclose(row[kept], np.linalg.solve(inner, (rows @ layer.second[0])[kept]), atol=1e-2)
        assert not row[~kept].any()


def test_changed_inputs_are_made_up_for() -> None:
    changed = MIXED @ (np.eye(48) + 0.05 * RNG.normal(0, 1, (48, 48)))
    second, cross = (changed.T @ changed / 4000)[None], (MIXED.T @ changed / 4000)[None]
    better = toward_original(ROWS, second, cross, 1e-4)

    def error(rows: np.ndarray) -> float:
        return float(np.square(changed @ rows[0].T - MIXED @ ROWS[0].T).mean())

    assert error(better) < 0.01 * error(ROWS)


def all_kinds() -> onnx.ModelProto:
    """Plain, grouped, depthwise, strided and transposed convolutions, a matrix product, a Gemm, an LSTM."""
    rng = np.random.default_rng(3)

    def weight(*shape: int) -> np.ndarray:
        return (rng.normal(0, 1, shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "w1": weight(8, 3, 3, 3), "b1": weight(8), "w2": weight(8, 4, 3, 3), "w3": weight(8, 1, 3, 3),
        "w4": weight(8, 4, 2, 2), "w5": weight(8, 6), "w7": weight(5, 20),
        "lw": weight(2, 40, 6), "lr": weight(2, 40, 10), "lb": weight(2, 80), "flat": np.array([0, -1]),
        "seq": np.array([3, 1, 6]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "plain", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Conv", ["a", "w2"], ["b"], "grouped", group=2, pads=[0, 1, 2, 1]),
        helper.make_node("Conv", ["b", "w3"], ["c"], "depthwise", group=8, dilations=[2, 2]),
        helper.make_node("ConvTranspose", ["c", "w4"], ["d"], "transposed", group=2, strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "w5"], ["g"], "product"),
        helper.make_node("Concat", ["g", "g", "g"], ["h"], axis=0),
        helper.make_node("Reshape", ["h", "seq"], ["i"]),
        helper.make_node(
            "LSTM", ["i", "lw", "lr", "lb"], ["j", "k"], "lstm", hidden_size=10, direction="bidirectional"
        ),
        helper.make_node("Transpose", ["k"], ["l"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["l", "flat"], ["m"]),
        helper.make_node("Gemm", ["m", "w7"], ["y"], "dense", transB=1),
    ]
    return model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 5]})


def prepared(proto: onnx.ModelProto) -> ir.Model:
    model = canonicalize(ir.from_proto(proto))
    prepare(model)
    explicit_biases(model.graph)
    return model


def test_weights_of_every_kind_are_read_and_written_back() -> None:
    model = prepared(all_kinds())
    feed = {"x": images(1)[:, :, :12, :12]}
    before = open_session(model).run(None, feed)
    products = find_products(model.graph)
    assert [product.name for product in products] == [
        "plain", "grouped", "depthwise", "transposed", "product", "lstm.W", "lstm.R", "dense"
    ]  # fmt: skip
    for product in products:
        product.store(product.rows)
    assert np.array_equal(open_session(model).run(None, feed)[0], before[0])


@pytest.mark.parametrize("width", [1200, 20])
def test_rows_times_columns_is_what_the_node_computes(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convertkit.quantization.pruning.products.MOST_COLUMNS", width)
    model = prepared(all_kinds())
    products = {product.name: product for product in find_products(model.graph)}
    feed = {"x": images(1)[:, :, :12, :12]}
    for name in ("plain", "grouped", "depthwise", "product", "dense"):
        if name not in products:
            continue
        product, copy = products[name], model.clone()
        made = {str(value.name): value for node in copy.graph for value in node.outputs}
        copy.graph.outputs.extend(
            made[str(value.name)] for value in (product.value, product.node.outputs[0]) if str(value.name) in made
        )
        session = open_session(copy)
        answers = dict(zip([value.name for value in session.get_outputs()], session.run(None, feed), strict=True))
        columns = product.columns({**feed, **answers}[str(product.value.name)], 10**6, np.random.default_rng(0))
        computed = np.einsum("grc,gpc->gpr", product.rows, columns)
        if product.blocks > 1:
            computed = computed.sum(axis=0, keepdims=True)
        bias = product.node.inputs[2].const_value.numpy() if len(product.node.inputs) > 2 else 0.0
        got = answers[str(product.node.outputs[0].name)]
        got = np.moveaxis(got, 1, -1).reshape(-1, got.shape[1]) if got.ndim == 4 else got.reshape(-1, got.shape[-1])
        assert np.allclose(computed.transpose(1, 0, 2).reshape(got.shape) + bias, got, atol=1e-4), name


def test_moments_of_two_models_are_of_the_same_places() -> None:
    model = prepared(all_kinds())
    product = find_products(model.graph)[1]
    feeds = [{"x": image[None, :, :12, :12]} for image in images(9)]
    (found,) = measure_inputs([model, model.clone()], [product], feeds, {}, 0).values()
    second, cross = found.moments(centred=True)
    assert np.allclose(second, cross, atol=1e-5)
    assert np.allclose(np.linalg.eigvalsh(second[0])[0], 0, atol=1e-3) or np.linalg.eigvalsh(second[0])[0] > 0


def test_sensitive_layers_lose_less() -> None:
    first, second, *_ = find_products(prepared(small_cnn()).graph)
    noise = np.array([(1 - density) ** 4 for density in DENSITIES])
    chosen = shares({first: Curve(tuple(0.5 * noise)), second: Curve(tuple(0.001 * noise))}, 0.5)
    assert chosen[first] < 0.7 * chosen[second]
    zeros = sum(share * product.size for product, share in chosen.items())
    assert zeros == pytest.approx(0.5 * (first.size + second.size), abs=1)


def test_large_models_are_measured_at_fewer_densities(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared(small_cnn())
    feeds = [{"x": image[None]} for image in images(16)]
    full = Sparsifier(model.clone(), feeds, {}, 0, Silent()).curves()
    monkeypatch.setattr("convertkit.quantization.pruning.sparsify._SEARCH", 0)
    tried: list[int] = []
    path = Layer.path

    def counted(layer: Layer, densities: list[float], *rest: object) -> list[np.ndarray]:
        tried.append(len(densities))
        return path(layer, densities, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Layer, "path", counted)
    quick = Sparsifier(model.clone(), feeds, {}, 0, Silent()).curves()
    assert set(tried) == {7}
    for one, other in zip(full.values(), quick.values(), strict=True):
        ratio = np.log(np.divide(other.noise, one.noise))
        assert np.abs(ratio).max() < np.log(3)
    wanted, got = (list(shares(each, 0.6).values()) for each in (full, quick))
    assert np.abs(np.subtract(wanted, got)).max() < 0.15


def test_without_data_all_layers_are_ranked_together() -> None:
    first, second, *_ = find_products(prepared(small_cnn()).graph)
    rows = {first: first.rows, second: 1000 * second.rows}
    kept = by_magnitude(rows, 0.6)
    assert sum(int((~mask).sum()) for mask in kept.values()) == int(0.6 * (first.size + second.size))
    assert 0.2 < (~kept[second]).mean() < 0.9, "a layer of large weights is not spared"


def stage(text: str, feeds: object, **choices: object):
    return prune.stage(BuildContext(ExportOptions("x", prune=text, **choices), None, calibration=feeds))  # type: ignore[arg-type]


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_stage(tmp_path: Path, calibrated: bool) -> None:
    source = artifact_of(small_cnn(), tmp_path)
    feeds = load_feeds(images(24), source.inputs) if calibrated else None
    made = stage("0.6", feeds)
    result = made.run(source, tmp_path)
    assert made.diagnosis["zeros"] == pytest.approx(0.6, abs=0.01)
    weights = [v.const_value.numpy() for v in load_model(result.path).graph.initializers.values()]
    large = [array for array in weights if array.ndim > 1]
    assert sum(int((array == 0).sum()) for array in large) == pytest.approx(0.6 * sum(map(np.size, large)), rel=0.02)
    with OnnxRunner(result) as runner:
        assert np.isfinite(runner.run({"x": images(1)})["y"]).all()


def level(source, result, samples: np.ndarray) -> float:
    with OnnxRunner(source) as one, OnnxRunner(result) as other:
        pairs = [(one.run({"x": each[None]})["y"], other.run({"x": each[None]})["y"]) for each in samples]
    before, after = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return float(10 * np.log10(np.square(before - before.mean(0)).sum() / np.square(after - before).sum()))


@pytest.mark.parametrize("text", ["0.5", "2:4"])
@pytest.mark.parametrize("model", [small_cnn, all_kinds])
def test_data_gains(tmp_path: Path, model, text: str) -> None:
    source = artifact_of(model(), tmp_path)
    size = source.inputs[0].shape[2]
    samples = images(80)[:, :, :size, :size]
    feeds = load_feeds(samples[:64], source.inputs)
    (tmp_path / "plain").mkdir()
    plain = stage(text, None).run(source, tmp_path / "plain")
    fitted = stage(text, feeds).run(source, tmp_path)
    assert level(source, fitted, samples[64:]) > level(source, plain, samples[64:]) + 3


def test_as_much_as_the_gate_allows(tmp_path: Path) -> None:
    source = artifact_of(small_cnn(), tmp_path)
    feeds = load_feeds(images(40), source.inputs)
    strict, loose = (stage("auto", feeds, max_drop=points) for points in (0.5, 40.0))
    for each in (strict, loose):
        each.run(source, tmp_path)
    assert 0.3 <= strict.diagnosis["zeros"] < loose.diagnosis["zeros"]
    assert strict.diagnosis["held_out"]["expected_drop"] <= 0.5


def test_nothing_to_prune_is_refused(tmp_path: Path) -> None:
    proto = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, {"x": [1, 4]}, {"y": [1, 4]})
    with pytest.raises(Unsupported, match="finds no float32 weight"):
        stage("0.5", None).run(artifact_of(proto, tmp_path), tmp_path)


def test_a_float16_model_is_told_where_to_prune(tmp_path: Path) -> None:
    weight = {"w": np.ones((4, 4), np.float16)}
    proto = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], weight, {"x": [1, 4]}, {"y": [1, 4]})
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    with pytest.raises(Unsupported, match="finds no float32 weight") as refused:
        stage("0.5", None).run(artifact_of(proto, tmp_path), tmp_path)
    assert "the float32 model, and --fp16" in refused.value.ways_out[0]


def test_channels_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv")]
    proto = model_of(nodes, {"w": np.ones((4, 3, 1, 1), np.float32)}, {"x": [1, 3, 4, 4]}, {"y": [1, 4, 4, 4]})
    with pytest.raises(Unsupported, match="no layer sums over a multiple of 4 channels"):
        stage("2:4", None).run(artifact_of(proto, tmp_path), tmp_path)


@pytest.mark.parametrize("text", ["1.5", "4:2", "half", "0"])
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a share between 0 and 1, auto, or N:M"):
        pattern(text)


def test_both_ways_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        prune.stage(BuildContext(ExportOptions("x", prune="0.5", prune_channels="0.3"), None))  # type: ignore[arg-type]


def test_auto_needs_data() -> None:
    with pytest.raises(UsageError, match="give it --calib"):
        stage("auto", None)


def test_one_command_prunes_trains_and_tells(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    onnx.save(small_cnn(), tmp_path / "cnn.onnx")
    made = convertkit.export(
        tmp_path / "cnn.onnx", prune=0.5, recover=0.02, calib=images(48), w8=True, output=tmp_path / "out"
    )
    notes = made.report["notes"]
    assert any("of the weights of 4 layers are zero" in note for note in notes)
    assert sum("training" in note for note in notes) == 2, "behind each of both steps"
    assert "agreement with float" in (tmp_path / "out" / "report.html").read_text()
