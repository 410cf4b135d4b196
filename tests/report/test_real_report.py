"""What an export writes fulfils the published schema, and its page shows it."""

import json
import subprocess
import sys

import jsonschema
import pytest

import convertkit
from convertkit.report.schema import schema


@pytest.fixture(scope="module")
def folder(root, tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    subprocess.run([sys.executable, "-P", root / "tests/contracts/core_alone.py", place], check=True)
    return place / "out"


def test_report_fulfils_the_schema(folder):
    jsonschema.validate(json.loads((folder / "report.json").read_text()), schema())


def test_page_shows_the_export(folder):
    page = (folder / "report.html").read_text()
    assert "mlp.onnx → onnxruntime, float32" in page
    assert "http" not in page


def test_quantized_report_fulfils_the_schema(digits, tmp_path):
    """The quantizer's diagnosis is part of the published schema, and the page shows its worst tensors."""
    result = convertkit.export(digits.model, "tflite", int8=True, calib=digits.calib, output=tmp_path / "out")
    report = json.loads((result.path / "report.json").read_text())
    jsonschema.validate(report, schema())
    (diagnosis,) = [step["diagnosis"] for step in report["steps"] if "worst" in (step.get("diagnosis") or {})]
    page = (result.path / "report.html").read_text()
    assert "The tensors that lose most" in page
    assert all(name in page for name in diagnosis["worst"])
