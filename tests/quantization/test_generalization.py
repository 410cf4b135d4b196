"""The sentence that more calibration samples would help: where few were fitted to, and not where many were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from convertkit import plugins
from convertkit.data.feeds import load_feeds
from convertkit.quantization import prune
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from tests.quantization.models import artifact_of, images, small_cnn

FEW, MANY = 24, 400


@pytest.fixture(autouse=True)
def layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are fitted one by one, which takes a second."""
    monkeypatch.setattr("convertkit.quantization.pruning.joint._BUDGET", 0.0)


def diagnosis(folder: Path, samples: np.ndarray, recover: float | None = None, **choices: str) -> dict[str, list[str]]:
    source = artifact_of(small_cnn(), folder)
    feeds = load_feeds(samples, source.inputs)
    options = ExportOptions("x", recover=recover, **choices)  # type: ignore[arg-type]
    stage = prune.stage(BuildContext(options, plugins.target("onnxruntime"), calibration=feeds))
    assert stage is not None
    stage.run(source, folder)
    return dict(stage.diagnosis)


@pytest.mark.parametrize("choices", [{"prune": "0.6"}, {"prune": "2:4"}, {"prune_channels": "0.3"}])
def test_few_samples_are_told_and_many_are_not(tmp_path: Path, choices: dict[str, str]) -> None:
    few = diagnosis(tmp_path, images(FEW), **choices)
    kept, more = few["notes"]
    assert "kept are" in kept
    told = "those that weights were fitted to keep "
    assert more.startswith(f"more calibration samples would help: {told}")
    assert few["ways_out"][0].startswith(f"--calib with more samples: {told}")
    many = diagnosis(tmp_path, images(MANY), **choices)
    assert len(many["notes"]) == 1
    assert many["ways_out"] == []


def test_of_few_samples_none_is_called_held_out(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, images(6), prune="0.6")
    kept, more = found["notes"]
    assert kept.endswith("on 6 samples that weights were fitted to")
    assert more.endswith("of 6 none is held out, so that nothing tells what new ones keep")
    assert found["held_out"]["seen"] is True  # type: ignore[call-overload]


def test_what_is_answered_well_enough_is_not_told(tmp_path: Path) -> None:
    assert len(diagnosis(tmp_path, images(FEW), prune="0.1")["notes"]) == 1


def test_training_tells_it_of_what_it_delivers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = diagnosis(tmp_path, images(FEW), recover=0.01, prune="0.6")
    assert "training" in found["notes"][-2]
    assert ["more calibration" in note for note in found["notes"]] == [False, False, True], "once, of what is delivered"
    assert len(found["ways_out"]) == 1
