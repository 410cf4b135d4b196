"""The zoo with a dynamic batch: batch 8, 1, 3 and back through one interpreter, and no shapes computed at run time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import Case

MAKE_ZOO = Path(__file__).parents[3] / "bench" / "make_zoo.py"
BATCHES = (8, 1, 3, 1, 8, 3)
SHAPES = {
    "vit_tiny": 1,  # the class token is repeated for each image
    "unet": 2,  # TRANSPOSE_CONV asks for its output's sizes, each of two
}
"""How many SHAPE operators are left; none where a model is not named."""

SMALL = ("gpt_block",)
LARGE = (
    *("mobilenetv2", "mobilenetv3s", "resnet18", "efficientnet_b0", "convnext_t"),
    *("vit_tiny", "bert_small", "unet", "yolo_head", "lstm", "gru"),
)


def check(name: str, folder: Path) -> None:
    command = [sys.executable, str(MAKE_ZOO), str(folder), name, "--dynamic"]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    model = canonicalize(load_model(folder / f"{name}.onnx"))
    proto = ir.to_proto(model)
    assert isinstance(proto, onnx.ModelProto)
    case = Case(proto, compile_model(model, Options()))
    assert case.operators["SHAPE"] == SHAPES.get(name, 0)
    assert not {"STRIDED_SLICE", "PACK", "FILL", "RANGE"} & set(case.operators) - _steps(name)
    with np.load(folder / f"{name}.eval.npz") as stored:
        samples = dict(stored)
    case.agree(*({key: value[:batch] for key, value in samples.items()} for batch in BATCHES), tolerance=1e-5)


def _steps(name: str) -> set[str]:
    """Outputs of written-out steps are packed."""
    return {"PACK"} if name in ("lstm", "gru") else set()


@pytest.mark.parametrize("name", SMALL)
def test_one_file_for_every_batch(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_one_large_file_for_every_batch(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
