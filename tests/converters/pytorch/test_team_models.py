"""Models in the manner of the families that teams have, in the forms that they are kept in, proven for both targets."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import team_models
import team_operators

import convertkit

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.nightly]

MODELS = {
    name: each
    for module in (team_models, team_operators)
    for name, each in vars(module).items()
    if inspect.isclass(each) and issubclass(each, team_models.Seeded) and each is not team_models.Seeded
}
NO_FILE = frozenset({"HF"})
"""torch.jit.trace and torch.export take no dataclasses that nobody has registered."""
CASES = [
    (name, form) for name in MODELS for form in ("factory", "traced", "pt2") if form == "factory" or name not in NO_FILE
]


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_team_s_model_is_proven(tmp_path: Path, name: str, form: str, target: str) -> None:
    import torch

    module = MODELS[name]().eval().requires_grad_(False)
    shapes = dict(zip(inspect.signature(module.forward).parameters, module.example_inputs, strict=False))
    flags = [f"{given}:{','.join(map(str, shapes[given].shape))}:int64{values}" for given, values in module.ranges]
    source = f"{MODELS[name].__module__}:{name}"
    if form == "traced":
        source = str(tmp_path / "model.pt")
        torch.jit.trace(module, module.example_inputs, check_trace=False, strict=False).save(source)
    if form == "pt2":
        source = str(tmp_path / "model.pt2")
        torch.export.save(torch.export.export(module, module.example_inputs), source)
    assert convertkit.export(source, target, input=flags, output=tmp_path / "out").report["passed"]
