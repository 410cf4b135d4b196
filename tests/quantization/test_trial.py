"""The drop that is expected without labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import convertkit
from convertkit.quantization.search.levels import expected_drop
from convertkit.quantization.search.quality import Output
from convertkit.quantization.search.trial import Score, compare, noise_shares

LOGITS = np.random.default_rng(0).normal(0, 2, (1, 5, 4, 4))


def belief_lost(logits: np.ndarray, shift: int) -> float:
    """By brute force, pixel by pixel, in points: what choosing another class costs by the float model's softmax."""
    pixels = [logits[0, :, row, column] for row in range(4) for column in range(4)]
    losses = []
    for scores in pixels:
        beliefs = np.exp(scores) / np.exp(scores).sum()
        losses.append(beliefs.max() - beliefs[(scores.argmax() + shift) % 5])
    return 100 * float(np.mean(losses))


@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 3, 1)], ids=["NCHW", "NHWC"])
def test_every_pixel_is_a_sample_and_channels_are_its_classes(layout: tuple[int, ...]) -> None:
    moved = np.roll(LOGITS, 2, axis=1)
    drop = expected_drop([LOGITS.transpose(layout)], [moved.transpose(layout)])
    assert drop == pytest.approx(belief_lost(LOGITS, 2))
    assert drop > 10


def test_scores_that_keep_their_order_lose_nothing() -> None:
    # Along a row of pixels the order changes, among the classes of each pixel it does not.
    brighter = LOGITS + np.arange(4) * 10
    assert expected_drop([LOGITS], [brighter]) == 0


def test_a_classifier_of_one_pixel_has_classes() -> None:
    scores = LOGITS[:, :, :1, :1]
    outputs = [(Output("y", [each], [each]),) for each in (scores, -scores)]
    assert compare(*outputs).drop > 10


@pytest.mark.parametrize(
    ("levels", "good"),
    [((25.0,) * 16, True), ((19.0,) * 9 + (40.0,) * 7, False), ((9.0,) * 2 + (40.0,) * 14, False)],
    ids=["all", "most are noise", "some are lost"],
)
def test_few_samples_do_not_make_up_for_the_others(levels: tuple[float, ...], good: bool) -> None:
    assert Score(np.full((2, 16), 1e-3), 30.0, 0.0, np.array(levels)).is_good is good


def test_each_sample_counts_against_its_own_signal() -> None:
    loud, quiet = np.full((1, 8), 1.0), np.full((1, 8), 0.2)
    expected, got = [loud, quiet], [loud, quiet + 0.1]
    found = compare((Output("y", expected, expected),), (Output("y", got, got),))
    assert found.each_db[1] == pytest.approx(6.02, abs=0.01)
    assert not found.is_good


@pytest.mark.parametrize(("lost", "better"), [(0.0, True), (0.5, False)])
def test_a_sample_that_is_lost_is_not_made_up_for_by_the_others(lost: float, better: bool) -> None:
    plain = Score(np.full((2, 8), 1e-2), 20.0, 0.0, np.full(8, 20.0))
    other = np.full((2, 8), 5e-3)
    other[:, 3] += lost
    assert Score(other, 20.0, 0.0, np.full(8, 20.0)).beats(plain) is better
    assert (Score(other, 20.0, 0.0, np.full(8, 20.0)).snr_db > plain.snr_db) is better


@pytest.mark.parametrize("shape", [(), (4,), (4, 3)])
def test_noise_is_a_share_of_the_signal_whatever_the_rank(shape: tuple[int, ...]) -> None:
    """An output may be one number: it ended in an internal error."""
    expected, got = [np.full(shape, 2.0), np.full(shape, -2.0)], [np.full(shape, 2.2), np.full(shape, -2.0)]
    np.testing.assert_allclose(noise_shares(expected, got), [0.01, 0.0], atol=1e-12)


def test_a_model_whose_output_is_one_number_is_quantized(tmp_path: Path) -> None:
    shapes = {"a": [8], "b": [8], "y": []}
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["a", "b"], ["y"])], "g", ports[:2], ports[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "product.onnx")
    rng = np.random.default_rng(5)
    calib = {name: rng.normal(0, 1, (40, 8)).astype(np.float32) for name in "ab"}
    made = convertkit.export(
        tmp_path / "product.onnx", "onnxruntime", output=tmp_path / "out", int8=True, full_integer=True, calib=calib
    )
    a, b = (rng.normal(0, 1, 8).astype(np.float32) for _ in range(2))
    assert made.run({"a": a, "b": b})["y"] == pytest.approx(a @ b, abs=0.1)
