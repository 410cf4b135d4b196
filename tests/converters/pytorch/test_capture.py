"""Models captured in training mode, or that draw random numbers, are refused with the line that does it."""

from __future__ import annotations

from pathlib import Path

import capture_models
import pytest

import convertkit
from convertkit.errors import Unsupported

pytestmark = pytest.mark.filterwarnings("ignore")

TRAINED = "captured in training mode"
CALLED = "the model calls this with training=True"
DRAWN = "draws random numbers"
EVAL = "model.eval() before torch.jit.trace or torch.export.export"


def _captured(name: str, form: str, folder: Path, *, training: bool) -> str:
    import torch

    module = getattr(capture_models, name)().train(training)
    path = folder / ("model.pt2" if form == "pt2" else "model.pt")
    if form == "pt2":
        torch.export.save(torch.export.export(module, module.example_inputs), path)
    elif form == "traced":
        torch.jit.trace(module, module.example_inputs, check_trace=False).save(path)
    else:
        return f"capture_models:{name}"
    return str(path)


@pytest.mark.parametrize(
    ("name", "form", "training", "operator", "reason", "way"),
    [
        ("Normed", "traced", True, "aten::batch_norm", TRAINED, EVAL),
        ("Normed", "pt2", True, "aten::batch_norm", TRAINED, EVAL),
        ("Dropped", "traced", True, "aten::dropout", TRAINED, EVAL),
        ("Dropped", "pt2", True, "aten::dropout", TRAINED, EVAL),
        ("AlwaysDropped", "traced", False, "aten::dropout", TRAINED, "training=self.training"),
        ("AlwaysDropped", "factory", False, "aten::dropout", CALLED, "training=self.training"),
        ("Mixed", "traced", False, "aten::randn_like", DRAWN, "the random tensor as an input of forward"),
        ("Noisy", "pt2", False, "aten::randn_like", DRAWN, "the random tensor as an input of forward"),
        ("Noisy", "factory", False, "aten::randn_like", DRAWN, "the random tensor as an input of forward"),
    ],
)
def test_the_line_is_named(
    tmp_path: Path, name: str, form: str, training: bool, operator: str, reason: str, way: str
) -> None:
    source = _captured(name, form, tmp_path, training=training)
    with pytest.raises(Unsupported) as refusal:
        convertkit.export(source, "onnxruntime", output=tmp_path / "out")
    assert (refusal.value.subject, reason in refusal.value.reason) == (operator, True)
    assert refusal.value.location.startswith("capture_models.py:")
    assert any(way in each for each in refusal.value.ways_out)


@pytest.mark.parametrize("name", ["Untracked", "Undropped"])
@pytest.mark.parametrize("form", ["traced", "pt2"])
def test_what_looks_like_training_and_is_none_converts(tmp_path: Path, name: str, form: str) -> None:
    source = _captured(name, form, tmp_path, training=False)
    assert convertkit.export(source, "onnxruntime", output=tmp_path / "out").report["passed"]


def test_a_script_leaves_its_training_mode_behind(tmp_path: Path) -> None:
    import torch

    torch.jit.script(capture_models.Normed().train()).save(tmp_path / "model.pt")
    flags = ["x:2,3,8,8"]
    assert convertkit.export(tmp_path / "model.pt", "onnxruntime", input=flags, output=tmp_path / "out").report[
        "passed"
    ]
