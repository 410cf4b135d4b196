"""Pruning: the pattern that was asked for, and a smaller loss where there is calibration data."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.data.feeds import load_feeds
from convertkit.errors import UsageError
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.quantization import prune
from convertkit.quantization.pruning.zeros import pattern, sparse
from convertkit.quantization.weights.patches import Moments
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from tests.quantization.models import artifact_of, images, small_cnn

ROWS = np.random.default_rng(0).normal(0, 1, (1, 6, 32))


def test_two_of_four_stay() -> None:
    kept = sparse(ROWS, pattern("2:4"), None)
    assert ((kept != 0).reshape(1, 6, 8, 4).sum(-1) == 2).all()


@pytest.mark.parametrize("text", ["0.5", "2:4"])
def test_correction_gains(text: str) -> None:
    rng = np.random.default_rng(1)
    data = rng.normal(0, 1, (4000, 8)) @ rng.normal(0, 1, (8, 32)) + 0.3 * rng.normal(0, 1, (4000, 32))
    found = Moments((data.T @ data / len(data))[None], data.mean(0)[None])
    plain, corrected = sparse(ROWS, pattern(text), None), sparse(ROWS, pattern(text), found)
    assert (corrected == 0).sum() == (plain == 0).sum()

    def loss(rows: np.ndarray) -> float:
        return float(np.square(data @ (rows - ROWS)[0].T).mean())

    assert loss(corrected) < 0.6 * loss(plain)


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_stage(tmp_path, calibrated: bool) -> None:
    source = artifact_of(small_cnn(), tmp_path)
    feeds = load_feeds(images(24), source.inputs) if calibrated else None
    stage = prune.stage(BuildContext(ExportOptions("x", prune="0.5"), None, calibration=feeds))  # type: ignore[arg-type]
    result = stage.run(source, tmp_path)
    zeros = {layer["name"]: layer["zeros"] for layer in stage.diagnosis["layers"]}
    assert zeros.keys() == {"conv1", "pointwise", "head"}
    assert all(0.45 < share <= 0.5 for share in zeros.values())
    weights = [v.const_value.numpy() for v in load_model(result.path).graph.initializers.values()]
    assert sum(int((w == 0).sum()) for w in weights if w.ndim > 1) >= 0.45 * 600
    with OnnxRunner(result) as runner:
        assert np.isfinite(runner.run({"x": images(1)})["y"]).all()


@pytest.mark.parametrize("text", ["1.5", "4:2", "half", "0"])
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a share between 0 and 1, or N:M"):
        pattern(text)


def test_both_ways_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        prune.stage(BuildContext(ExportOptions("x", prune="0.5", prune_channels=0.3), None))  # type: ignore[arg-type]
