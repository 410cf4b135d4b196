"""A killed calibration goes on where it was, and ends with the very same statistics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from convertkit.artifact import Array
from convertkit.onnx.load import load_model
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.calibrate.resume import EVERY, Checkpoint, checkpoint
from tests.quantization.models import artifact_of, images, small_cnn

NAMES = ["x", "r1", "s", "y"]
COUNT = 2 * EVERY + 40
DATA = images(COUNT)


class Killed(Exception):
    """Stands for a signal."""


def feeds(count: int = COUNT, seen: list[int] | None = None) -> Iterator[dict[str, Array]]:
    for index, image in enumerate(DATA):
        if index == count:
            raise Killed
        if seen is not None:
            seen.append(index)
        yield {"x": image[None]}


def described(found: dict[str, Statistics]) -> list[object]:
    """Everything that statistics hold, as something that can be compared."""
    plain = [(name, s.low, s.high, s.mean_low, s.mean_high, s.samples) for name, s in found.items()]
    histograms = [(s.histogram.exponent, s.histogram.zeros, *s.histogram.counts) for s in found.values()]
    return [*plain, *histograms]


@pytest.fixture
def model(tmp_path: Path) -> ir.Model:
    return load_model(artifact_of(small_cnn(), tmp_path).path)


@pytest.mark.parametrize("stop", [EVERY - 1, EVERY + 30, 2 * EVERY + 17])
def test_the_same_as_without_a_break(model: ir.Model, tmp_path: Path, stop: int) -> None:
    place = Checkpoint(tmp_path / "state.npz")
    with pytest.raises(Killed):
        observe(model, NAMES, feeds(stop), {}, place)
    done, _ = place.load(NAMES)
    assert done == stop // EVERY * EVERY
    resumed = observe(model, NAMES, feeds(), {}, place)
    assert described(resumed) == described(observe(model, NAMES, feeds(), {}))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", None])
def test_a_torn_state_starts_again(model: ir.Model, tmp_path: Path, content: bytes | None) -> None:
    place = Checkpoint(tmp_path / "state.npz")
    if content is None:
        place.save(EVERY, {"x": Statistics()})  # of other tensors
    else:
        place.path.write_bytes(content)
    assert place.load(NAMES)[0] == 0
    assert described(observe(model, NAMES, feeds(), {}, place)) == described(observe(model, NAMES, feeds(), {}))


def test_the_place_depends_on_model_and_data(model: ir.Model) -> None:
    first = checkpoint(model, NAMES, "data", "part")
    assert first == checkpoint(model, NAMES, "data", "part")
    others = [checkpoint(model, NAMES, "other", "part"), checkpoint(model, NAMES[1:], "data", "part")]
    weight = model.graph.initializers["w1"]
    weight.const_value = ir.tensor(weight.const_value.numpy() + np.float32(1), name="w1")
    others.append(checkpoint(model, NAMES, "data", "part"))
    assert len({first, *others}) == 4


@pytest.mark.nightly
def test_a_killed_export_goes_on_and_gives_the_same_bytes(tmp_path: Path) -> None:
    artifact_of(small_cnn(), tmp_path)
    np.savez(tmp_path / "calib.npz", x=images(6000))
    cache = tmp_path / "cache"

    def command(output: str) -> list[str]:
        arguments = [
            str(tmp_path / "float.onnx"),
            "--target",
            "tflite",
            "--int8",
            "--calib",
            str(tmp_path / "calib.npz"),
        ]
        return [sys.executable, "-m", "convertkit", "export", *arguments, "-o", str(tmp_path / output)]

    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(command("killed"), env=environment)
    while process.poll() is None and not [*cache.rglob("*.npz")]:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [*cache.rglob("*.npz")]
    for output in ("killed", "whole"):
        subprocess.run(command(output), env=environment, check=True)
        assert not [*cache.rglob("*.npz")]
    assert (tmp_path / "killed/model.tflite").read_bytes() == (tmp_path / "whole/model.tflite").read_bytes()
