"""State that the batch is in stays dynamic where it can, and says why where it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import state_models

import convertkit
from convertkit import plugins
from convertkit.state import initial_state, started, state_sizes

pytestmark = pytest.mark.filterwarnings("ignore")
TARGETS = ("onnxruntime", "tflite")
FOLLOWING = {
    "Broadcast": {"state.h": ("N", 3)},
    "Ring": {"state.past": ("N", 2, 3)},
    "Cache": {"state.keys": ("N", 8, 4), "state.values": ("N", 8, 4), "state.position": ()},
    "Recurrent": {"state.h": (1, "N", 3), "state.c": (1, "N", 3)},
    "Renewed": {"state.h": ("N", 3)},
    "Averaged": {"state.mean": (4,)},
}


def _module(name: str, batch: int):
    """The module whose buffers are made for ``batch``."""
    module = getattr(state_models, name)().eval().requires_grad_(False)
    for buffer in module.sized:
        setattr(module, buffer, getattr(module, buffer).repeat_interleave(batch, 0))
    if name == "Recurrent":
        module.h, module.c = (each.repeat_interleave(batch, 1) for each in (module.h, module.c))
    return module


def _departure(artifact, name: str, batch: int, calls: int = 4) -> float:
    """The largest difference from the module over a sequence of calls that begins afresh."""
    import torch

    module = _module(name, batch)
    rng = np.random.default_rng(batch)
    shapes = {spec.name: spec.source_shape for spec in artifact.inputs}
    state, worst = None, 0.0
    with plugins.runner(artifact) as runner, torch.no_grad():
        for _ in range(calls):
            shape = (batch, *module.example_inputs[0].shape[1:])
            x = rng.standard_normal(shape).astype(np.float32)
            if state is None:
                state = started(initial_state(artifact), shapes, state_sizes(shapes, {"x": x}))
            outputs = runner.run({"x": x, **state})
            state = {key.removeprefix("next_"): value for key, value in outputs.items() if key.startswith("next_")}
            expected = module(torch.from_numpy(x)).numpy()
            assert outputs["output"].shape == expected.shape
            worst = max(worst, float(np.abs(outputs["output"] - expected).max()))
    return worst


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FOLLOWING)
def test_state_follows_the_batch(tmp_path: Path, name: str, target: str) -> None:
    result = convertkit.export(f"state_models:{name}", target, output=tmp_path / "out")
    found = {spec.name: spec.source_shape for spec in result.artifact.inputs}
    assert found == {"x": ("N", *getattr(state_models, name).example_inputs[0].shape[1:]), **FOLLOWING[name]}
    assert "the batch is dynamic, as dimension N" in " ".join(result.report["notes"])
    assert ("computed from the inputs' sizes: batch = N" in " ".join(result.report["notes"])) == (name == "Renewed")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {key: tuple(each["shape"]) for key, each in manifest["initial_state"].items()} == FOLLOWING[name]
    for batch in (1, 2, 7):
        assert _departure(result.artifact, name, batch) < 1e-5


@pytest.mark.parametrize("name", ["Ring", "Cache", "Recurrent"])
def test_buffers_of_an_exported_program_follow_the_batch(tmp_path: Path, name: str) -> None:
    import torch

    module = _module(name, 1)
    torch.export.save(torch.export.export(module, module.example_inputs), tmp_path / "model.pt2")
    result = convertkit.export(tmp_path / "model.pt2", "onnxruntime", output=tmp_path / "out")
    found = {spec.name: spec.source_shape for spec in result.artifact.inputs}
    assert found == {"x": ("N", *module.example_inputs[0].shape[1:]), **FOLLOWING[name]}
    for batch in (1, 2, 7):
        assert _departure(result.artifact, name, batch) < 1e-5


def _inputs(name: str, folder: Path) -> tuple[dict[str, tuple], str]:
    result = convertkit.export(f"state_models:{name}", "onnxruntime", output=folder / "out")
    return {spec.name: tuple(spec.shape) for spec in result.artifact.inputs}, " ".join(result.report["notes"])


def test_of_a_time_first_input_the_second_axis_is_the_batch(tmp_path: Path) -> None:
    shapes, notes = _inputs("TimeFirst", tmp_path)
    assert shapes == {"x": (5, "N", 4), "state.h": (1, "N", 3), "state.c": (1, "N", 3)}
    assert "the batch is dynamic, as dimension N" in notes


def test_a_free_length_is_not_called_a_batch(tmp_path: Path) -> None:
    shapes, notes = _inputs("Stream", tmp_path)
    assert shapes == {"x": ("T", 4), "state.h": (3,)}
    assert "the length is dynamic, as dimension T; --static T=1 fixes it" in notes
    assert "batch" not in notes


def test_state_follows_the_batch_that_the_user_names(tmp_path: Path) -> None:
    import torch

    source = tmp_path / "ring.pt"
    torch.jit.script(state_models.Ring().eval()).save(source)
    result = convertkit.export(source, "onnxruntime", input=["x:B,2,5"], output=tmp_path / "out")
    assert [spec.shape for spec in result.artifact.inputs] == [("B", 2, 5), ("B", 2, 3)]
    for batch in (1, 3):
        assert _departure(result.artifact, "Ring", batch) < 1e-5


def test_start_values_have_the_size_that_is_fixed_later(tmp_path: Path) -> None:
    result = convertkit.export("state_models:Broadcast", "onnxruntime", static={"N": 3}, output=tmp_path / "out")
    assert [spec.shape for spec in result.artifact.inputs] == [(3, 4), (3, 3)]
    (start,) = initial_state(result.artifact).values()
    np.testing.assert_array_equal(start, np.repeat(state_models.Broadcast().h.numpy(), 3, 0))


def test_start_values_of_single_samples_keep_the_batch_and_are_named(tmp_path: Path) -> None:
    result = convertkit.export("state_models:Individual", "onnxruntime", output=tmp_path / "out")
    assert [spec.shape for spec in result.artifact.inputs] == [(2, 3), (2, 3)]
    (start,) = initial_state(result.artifact).values()
    np.testing.assert_array_equal(start, state_models.Individual().h.numpy())
    notes = " ".join(result.report["notes"])
    assert "the batch is fixed at 2: the state 'h' does not follow another one: 'h' starts with other values" in notes
