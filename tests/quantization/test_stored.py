"""Weights that ``--int8`` stores for operators that stay float are rounded by data, as those of ``--w8`` are."""

import re
from pathlib import Path

import pytest

import convertkit

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"


def kept(result: convertkit.Result) -> float:
    return float(result.report["quality"]["snr_db"])


@pytest.mark.parametrize("cpu", ["any", "vnni"])
def test_digits_keep_what_w8_keeps(tmp_path: Path, cpu: str) -> None:
    """Integers do not pay in ONNX Runtime there, so weights are all that becomes integer."""
    ways = {"--int8": {"int8": True, "target_options": {"onnxruntime": {"cpu": cpu}}}, "--w8": {"w8": True}}
    found = {}
    for name, given in ways.items():
        out = tmp_path / name.strip("-")
        found[name] = convertkit.export(
            DIGITS / "model.pt", "onnxruntime", calib=DIGITS / "calib.npz", output=out, **given
        )
    assert any(re.match("weights are int8, all else is float", note) for note in found["--int8"].report["notes"])
    assert kept(found["--int8"]) > kept(found["--w8"]) - 1
