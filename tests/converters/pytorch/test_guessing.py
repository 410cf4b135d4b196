"""An exporter begins before the model has run: a right guess of the interface is kept, any other is thrown away."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit.artifact import Array
from convertkit.converters.pytorch.model.check_inputs import check_feed, check_feeds
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.parity.feeds import proof_feeds
from convertkit.stage import Feed
from convertkit.workers.process import Worker

_MODELS = """
import sys, torch

class Plain(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2

class Fixed(torch.nn.Module):
    def forward(self, x):
        return x.view(1, 4) * 2

class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen.add_(1)
        return x + self.seen

class Named(torch.nn.Module):
    def forward(self, x):
        return {"twice": x * 2, "half": x / 2}

folder = sys.argv[1]
example = torch.rand(1, 4)
for kind in (Plain, Fixed, Counting, Named):
    torch.jit.trace(kind(), example, strict=False).save(f"{folder}/{kind.__name__.lower()}.pt")
torch.export.save(torch.export.export(Plain(), (example,)), f"{folder}/program.pt2")
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, "-W", "ignore", "-c", _MODELS, str(folder)], check=True)
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the worker is asked for, in order."""
    methods: list[str] = []
    begin = Worker._begin

    def logged(self, calls, *, isolated, keeps_last=False):
        methods.extend(call.method for call in calls)
        return begin(self, calls, isolated=isolated, keeps_last=keeps_last)

    monkeypatch.setattr(Worker, "_begin", logged)
    return methods


@pytest.mark.parametrize("name", ["plain.pt", "program.pt2"])
def test_a_right_guess_is_the_only_attempt(name: str, models: Path, asked: list[str], tmp_path: Path) -> None:
    result = convertkit.export(models / name, "onnxruntime", output=tmp_path / "out")
    assert asked == ["open", "guess", "attempt_guess", "describe"], (
        "all that the proof needs was computed beside the attempt"
    )
    attempts = result.report["steps"][0]["options"]["attempts"]
    assert [each["outcome"] for each in attempts] == ["accepted"]


@pytest.mark.parametrize("name", ["fixed.pt", "counting.pt", "named.pt"])
def test_an_interface_that_a_run_settles_is_tried_again(
    name: str, models: Path, asked: list[str], tmp_path: Path
) -> None:
    result = convertkit.export(models / name, "onnxruntime", output=tmp_path / "out")
    assert asked[:2] == ["open", "guess"]
    assert "describe" in asked
    assert "attempt" in asked
    given = {spec.name: spec.shape for spec in result.artifact.inputs}
    assert (given["x"][0] == 1) == (name == "fixed.pt") or name == "counting.pt"
    assert ("state.seen" in given) == (name == "counting.pt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["pt", "pt2"])
def test_nothing_is_tried_ahead_of_a_model_that_keeps_state(form: str, asked: list[str], tmp_path: Path) -> None:
    import state_models
    import torch

    module, source = state_models.Broadcast().eval(), tmp_path / f"model.{form}"
    if form == "pt":
        torch.jit.script(module).save(source)
    else:
        torch.export.save(torch.export.export(module, module.example_inputs), source)
    convertkit.export(source, "onnxruntime", output=tmp_path / "out", input=["x:1,4"])
    assert asked[:3] == ["open", "guess", "describe"]


def test_an_archive_is_read_without_sympy(models: Path) -> None:
    """It takes a quarter of a second, and only programs need it."""
    opened = (
        "import sys; from convertkit.converters.pytorch.service import TorchService\n"
        f"TorchService().open({{'kind': 'torchscript', 'path': {str(models / 'plain.pt')!r}, 'model': None}}, {{}})\n"
        "assert 'torch' in sys.modules and 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", opened], check=True)


def test_feeds_of_a_check_have_both_signs_all_magnitudes_and_every_size() -> None:
    sizes = ({"N": 1}, {"N": 2}, {"N": 5})
    feeds = check_feeds([Leaf("x", "x", ("N", 3), "float32")], sizes, seed=0)
    assert [feed["x"].shape[0] for feed in feeds] == [1, 1, 1, 1, 2, 5]
    lows, highs = ([float(find(feed["x"])) for feed in feeds] for find in (np.min, np.max))
    assert min(highs) < 0, "values of a distribution that has positive ones alone, with the other sign"
    assert min(map(abs, lows)) < 0.01
    assert max(map(abs, lows)) > 4
    alone = check_feed([Leaf("x", "x", (5, 3), "float32")], {}, seed=0, turn=5)
    np.testing.assert_array_equal(alone["x"], feeds[5]["x"], "what a run has computed is not computed again")


@pytest.mark.parametrize("seed", [0, 7])
def test_roads_are_chosen_on_other_feeds_than_they_are_proven_on(seed: int) -> None:
    leaf = Leaf("x", "x", (3, 4), "float32")
    chosen, proven = check_feeds([leaf], ({},), seed), proof_feeds([leaf.spec()], None, seed)

    def patterns(feeds: Sequence[Feed]) -> list[Array]:
        return [each["x"] / np.abs(each["x"]).max() for each in feeds]

    pairs = itertools.product(patterns(chosen), patterns(proven))
    assert not any(np.allclose(np.abs(one), np.abs(other)) for one, other in pairs)
