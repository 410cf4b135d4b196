"""What a PyTorch export says it is doing before there is an ONNX model."""

from __future__ import annotations

import pytest
import torch

import convertkit
from convertkit.converters.pytorch.routes import attempts, conversion
from convertkit.job import export_all
from convertkit.progress import Silent
from tests.command_line import here

LOADING = "importing torch and loading {}"
RUNNING = "running the model to find its inputs and outputs"
AFTER = ["simplifying the exported model", "checking the exported model on varied inputs"]
LOOP = """
import torch

class Halved(torch.nn.Module):
    example_input_array = torch.ones(2, 3)

    def forward(self, x):
        while bool(x.abs().max() > 1):
            x = x / 2
        return x

def make():
    return Halved()
"""


TASKS = ("opening", "converting", "pytorch-to-onnx", "planning onnxruntime")
"""What the export itself says before and beside it."""


class Heard(Silent):
    """Keeps what the converter says, up to the first task behind it."""

    def __init__(self):
        self.opening = []
        self._converted = False

    def status(self, title):
        self._converted |= title.startswith("running ") and title != RUNNING
        if not self._converted and title not in TASKS:
            self.opening.append(title)


def heard(source, folder):
    progress = Heard()
    export_all(convertkit.ExportOptions(str(source), ("onnxruntime",), output=str(folder)), progress)
    return progress.opening


def test_an_archive(digits, tmp_path):
    exporting = "exporting with the TorchScript exporter"
    assert heard(digits.model, tmp_path / "out") == [
        LOADING.format("model.pt"),
        RUNNING,
        exporting,
        *AFTER,
    ]


def test_a_module_whose_first_route_fails(tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    source = f"{tmp_path}/loop.py:make"
    assert heard(source, tmp_path / "out") == [
        LOADING.format("loop.py:make"),
        RUNNING,
        "exporting with torch.export",
        "exporting with torch.jit.script",
        *AFTER,
    ]


@pytest.mark.parametrize("routes", [*conversion.ROUTES.values(), *conversion.FOR_STATE.values()], ids=" ".join)
def test_each_route_has_words(routes):
    for route in routes:
        assert attempts.doing(route, dynamic=False) == f"{attempts.doing(route, dynamic=True)} (fixed sizes)"


def test_a_program_that_torch_itself_does_not_take_back_is_refused(tmp_path):
    """A region without gradients that returns nothing is saved by torch, and refused when torch reads it."""

    class Watched(torch.nn.Module):
        def forward(self, x):
            with torch.no_grad():
                x.sum()
            return x * 2

    torch.export.save(torch.export.export(Watched(), (torch.randn(2, 3),), strict=False), tmp_path / "watched.pt2")
    said = here("export", tmp_path / "watched.pt2", "--output", tmp_path / "out")
    assert said.code == 1
    assert "torch has saved this exported program, and does not take it back" in said.complaint
    assert "without torch.no_grad() in its forward" in said.complaint
    assert not (tmp_path / "out").exists()
