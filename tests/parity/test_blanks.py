"""Models that say nothing but no of usual numbers are verified on numbers of which they say something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import convertkit
from convertkit.errors import NotProven

_SAYS_SOMETHING = {
    "IsNaN": ("bool", "y = IsNaN(x)"),
    "IsInf": ("bool", "y = IsInf(x)"),
    "negative infinity alone": ("bool", "y = IsInf<detect_positive = 0>(x)"),
    "behind a move": ("bool", "t = Transpose(x) n = IsNaN(t) y = Not(n) z = Not(y)"),
    "a threshold": ("float", "y = ThresholdedRelu<alpha = 4.5>(x)"),
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


def test_what_is_zero_for_every_number_is_not(tmp_path: Path) -> None:
    with pytest.raises(NotProven, match="all but zero"):
        _export("float", "m = Neg(x) a = Relu(x) b = Relu(m) y = Mul(a, b)", tmp_path)
