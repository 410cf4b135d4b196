"""Calibration data that cannot be right: a sentence that says why, and no artifact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import convertkit
from convertkit.artifact import Array
from convertkit.errors import ConvertKitError
from convertkit.job import export_all
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions
from tests.quantization.models import images, small_cnn

DATA = images(12)


def poisoned(value: float) -> Array:
    array = DATA.copy()
    array[3, 1, 2, 2] = value
    return array


BAD = {
    "zero": ({"x": 0 * DATA}, "one number throughout"),
    "constant": ({"x": np.full_like(DATA, 0.5)}, "one number throughout"),
    "NaN": ({"x": poisoned(np.nan)}, "x holds NaN or infinity"),
    "infinity": ({"x": poisoned(np.inf)}, "x holds NaN or infinity"),
    "layout": ({"x": DATA.transpose(0, 2, 3, 1)}, r"the data looks NHWC, store it with \.transpose\(0, 3, 1, 2\)"),
    "bytes": ({"x": DATA.astype("u1")}, "x is uint8, the model takes float32"),
    "integers": ({"x": DATA.astype("i4")}, "x is int32, the model takes float32"),
    "another name": ({"y": DATA, "z": DATA}, "holds the array 'y'; the model's inputs are 'x'"),
    "no samples": ({"x": DATA[:0]}, "holds no sample"),
    "overflow": ({"x": DATA * np.float32(1e37)}, "not finite"),
}
ODD = {
    "one sample": ({"x": DATA[:1]}, "holds one sample only"),
    "doubles": ({"x": DATA.astype("f8")}, "x is float64, the model takes float32; converted"),
}


def export(folder: Path, arrays: dict[str, Array]) -> convertkit.Result:
    onnx.save(small_cnn(), folder / "model.onnx")
    np.savez(folder / "calib.npz", **arrays)
    return convertkit.export(
        folder / "model.onnx", target="tflite", int8=True, calib=folder / "calib.npz", output=folder / "out"
    )


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_before_any_artifact(tmp_path: Path, name: str) -> None:
    arrays, reason = BAD[name]
    with pytest.raises(ConvertKitError, match=reason):
        export(tmp_path, arrays)
    assert not (tmp_path / "out").exists()
    assert not [*tmp_path.rglob("*.tflite")]


class Listener(Silent):
    """Remembers what was said, and what work was begun."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def status(self, title: str) -> None:
        self.said.append(title)

    def warn(self, warning: str) -> None:
        self.said.append(f"warning: {warning}")


@pytest.mark.parametrize("name", ODD)
def test_what_can_be_used_is_used_with_a_note(tmp_path: Path, name: str) -> None:
    arrays, note = ODD[name]
    assert any(note in text for text in export(tmp_path, arrays).report["notes"])


def test_it_is_told_before_the_work_starts(tmp_path: Path) -> None:
    onnx.save(small_cnn(), tmp_path / "model.onnx")
    listener = Listener()
    options = ExportOptions(
        source=str(tmp_path / "model.onnx"),
        targets=("tflite",),
        precision="int8",
        calib={"x": DATA[:1]},
        output=str(tmp_path / "out"),
    )
    export_all(options, listener)
    assert listener.said[0] == "opening"
    assert "holds one sample only" in listener.said[1]
    assert sum(line.startswith("warning: ") for line in listener.said) == 1
    assert len(listener.said) > 1
