"""Models that say nothing but no of usual numbers are verified on numbers of which they say something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import convertkit
from convertkit.errors import NotProven
from convertkit.parity.blanks import without_blanks
from convertkit.parity.values import Recording
from convertkit.stage import Runner

_SAYS_SOMETHING = {
    "IsNaN": ("bool", "y = IsNaN(x)"),
    "IsInf": ("bool", "y = IsInf(x)"),
    "negative infinity alone": ("bool", "y = IsInf<detect_positive = 0>(x)"),
    "behind a move": ("bool", "t = Transpose(x) n = IsNaN(t) y = Not(n) z = Not(y)"),
}


def _export(kind: str, body: str, folder: Path) -> convertkit.Result:
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[3,3] x) => ({kind}[3,3] {"z" if "z =" in body else "y"}) '
        f"{{ {body} }}"
    )
    onnx.save(proto, folder / "model.onnx")
    return convertkit.export(folder / "model.onnx", "tflite", output=folder / "made", no_cache=True)


@pytest.mark.parametrize("name", _SAYS_SOMETHING)
def test_it_is_verified(name: str, tmp_path: Path) -> None:
    kind, body = _SAYS_SOMETHING[name]
    result = _export(kind, body, tmp_path)
    x = np.array([[np.nan, np.inf, -np.inf], [1, 5, -5], [0, 8, 2]], np.float32)
    assert result.verified
    assert np.any(result.run(x)[result.interface.outputs[0].name])


def test_what_makes_another_output_no_number_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verified on NaN, that output would prove nothing."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[3,3] x) => (bool[3,3] y, float[3,3] z) '
        "{ y = IsNaN(x) z = Neg(x) }"
    )
    onnx.save(proto, tmp_path / "model.onnx")
    seen = []

    def watched(recording: Recording, runner: Runner) -> Recording:
        seen.append((recording, without_blanks(recording, runner)))
        return seen[-1][1]

    monkeypatch.setattr("convertkit.steps.recording.without_blanks", watched)
    convertkit.export(tmp_path / "model.onnx", "tflite", output=tmp_path / "made", no_cache=True)
    assert seen
    assert all(before is after for before, after in seen)


def test_what_is_zero_for_every_number_is_not(tmp_path: Path) -> None:
    with pytest.raises(NotProven, match="all but zero"):
        _export("float", "m = Neg(x) a = Relu(x) b = Relu(m) y = Mul(a, b)", tmp_path)
