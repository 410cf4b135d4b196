"""Models of formats that no converter reads, told by how their files begin: what each is, and what to give instead."""

from __future__ import annotations

import re
from pathlib import Path

_START_BYTES = 4096
_AS_ONNX = "the .onnx that its own exporter writes: "
_SOURCE = "the model that it was made from"
_MODULE = "the .onnx or the PyTorch module of the same weights"

_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (
        rb'"format"\s*:\s*"layers-model"',
        "a TensorFlow.js model",
        "tensorflowjs_converter --input_format tfjs_layers_model --output_format keras, and exporting that",
    ),
    (
        rb'"format"\s*:\s*"graph-model"|\A\s*\{\s*"modelTopology"',
        "a TensorFlow.js model",
        "the SavedModel that it was made from",
    ),
    (rb'\A\s*\{\s*"learner"', "a model of XGBoost", f"{_AS_ONNX}onnxmltools.convert_xgboost"),
    (rb"\Atree\nversion=", "a model of LightGBM", f"{_AS_ONNX}onnxmltools.convert_lightgbm"),
    (rb"\A\s*(<\?xml[^>]*>\s*)?<net\s", "a model of OpenVINO", _SOURCE),
    (rb"\A7767517\s", "a model of ncnn", _SOURCE),
    (rb"\A\s*(#[^\n]*\n\s*)*\[net(work)?\]", "a model of Darknet", _MODULE),
    (
        rb"\A\s*(#[^\n]*\n\s*)*(name|input|layers?)\s*[:{][^\n]*\n(.*\n)*?\s*(layers?\s*\{|input_dim)",
        "a model of Caffe",
        _MODULE,
    ),
)
"""Pattern, what a file that has it is, and the way out; the first that fits."""

_ENDINGS = {".mlmodel": "a model of Core ML", ".mlpackage": "a model of Core ML", ".caffemodel": "weights of Caffe"}


def of_another_format(path: Path) -> str | None:
    """What ``path`` holds that convertkit does not read, with the way out; None for what is not known."""
    found = _told(path)
    if found is None:
        return None
    what, way = found
    return f"{path} is {what}, which convertkit does not read\n  try   {way}"


def _told(path: Path) -> tuple[str, str] | None:
    if path.suffix.lower() in _ENDINGS:
        return _ENDINGS[path.suffix.lower()], _SOURCE
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        start = stream.read(_START_BYTES)
    return next(((what, way) for pattern, what, way in _BEGINNINGS if re.search(pattern, start)), None)
