"""Opening describes, the stage converts: what each asks of the worker, and what the conversion settles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch import converter
from convertkit.converters.pytorch.describe.outputs import output_specs
from convertkit.errors import ParityError, Unsupported
from convertkit.onnx.runner import OnnxRunner
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32
from convertkit.workers.process import Worker

pytestmark = pytest.mark.filterwarnings("ignore")


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :2] * 2


class Halved(torch.nn.Module):
    """A loop that torch.export does not follow, and a script does."""

    example_inputs = (torch.ones(2, 3),)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while bool(x.abs().max() > 1):
            x = x / 2
        return x


class Drawn(torch.nn.Module):
    example_inputs = (torch.ones(2, 3),)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the worker is asked for, in order."""
    methods: list[str] = []
    begin = Worker.begin

    def logged(self, method, *args, **kwargs):
        methods.append(method)
        return begin(self, method, *args, **kwargs)

    monkeypatch.setattr(Worker, "begin", logged)
    return methods


def _opened(source: Path | str, folder: Path):
    return converter.open(str(source), ExportOptions(str(source), ("onnxruntime",)), folder / "opened", Silent())


def _archive(folder: Path) -> Path:
    torch.jit.trace(Twice(), torch.rand(1, 4)).save(folder / "twice.pt")
    return folder / "twice.pt"


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_opening_describes_and_converts_nothing(tmp_path: Path, asked: list[str]) -> None:
    with _opened(_archive(tmp_path), tmp_path) as source:
        assert asked == ["open", "describe"]
        assert [(spec.name, spec.shape) for spec in source.artifact.inputs] == [("x", ("N", 4))]
        assert [(spec.name, spec.shape, spec.dtype) for spec in source.artifact.outputs] == [
            ("output", ("N", 2), "float32")
        ]
        assert source.stage().options == {}
    assert not list(tmp_path.rglob("*.onnx"))


def test_the_stage_converts_and_leaves_its_own_files_alone(tmp_path: Path, asked: list[str]) -> None:
    with _opened(_archive(tmp_path), tmp_path) as source:
        stage, folder = source.stage(), _new(tmp_path, "made")
        made = stage.run(source.artifact, folder)
        assert asked == ["open", "describe", "prepare", "attempt", "reference"]
        assert [entry.name for entry in folder.iterdir()] == [made.path.name]
        assert (stage.options["route"], stage.tolerance) == ("torchscript-exporter", FLOAT32)
        again = source.stage().run(source.artifact, _new(tmp_path, "again"))
        assert len(asked) == 5, "converted once"
        assert (again.sha256, again.path.parent.name) == (made.sha256, "again")
        feed = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
        with source.runner() as runner, OnnxRunner(made) as artifact:
            assert np.array_equal(runner.run(feed)["output"], artifact.run(feed)["output"])
            assert np.array_equal(artifact.run(feed)["output"], feed["x"][:, :2] * 2)


def test_routes_are_tried_in_order_and_each_reason_is_kept(tmp_path: Path) -> None:
    with _opened("test_conversion:Halved", tmp_path) as source:
        stage = source.stage()
        stage.run(source.artifact, _new(tmp_path, "made"))
        first, second = stage.options["attempts"]
        assert (first["route"], second["route"], second["outcome"]) == ("torch.export", "script", "accepted")
        assert first["outcome"] not in ("", "accepted")


@pytest.mark.parametrize(("free", "route"), [(True, "program"), (False, "torch.export")])
def test_a_program_goes_as_it_is_unless_its_batch_had_to_be_freed(tmp_path: Path, free: bool, route: str) -> None:
    dims = ({0: torch.export.Dim.AUTO},) if free else None
    torch.export.save(torch.export.export(Twice(), (torch.rand(2, 4),), dynamic_shapes=dims), tmp_path / "twice.pt2")
    with _opened(tmp_path / "twice.pt2", tmp_path) as source:
        stage = source.stage()
        stage.run(source.artifact, _new(tmp_path, "made"))
        assert source.artifact.inputs[0].shape == ("N", 4)
        assert [each["route"] for each in stage.options["attempts"]] == [route]


def test_a_batch_that_no_route_keeps_is_settled_by_the_conversion(tmp_path: Path) -> None:
    with _opened("odd_models:Looped", tmp_path) as source:
        stage = source.stage()
        made = stage.run(source.artifact, _new(tmp_path, "made"))
        assert source.artifact.inputs[0].shape == ("N", 4)
        assert stage.settled is not None
        later = source.settled(stage.settled)
        assert [spec.shape for spec in later.artifact.inputs] == [spec.shape for spec in made.inputs] == [(2, 4)]
        assert later.artifact.outputs == made.outputs
        assert any("the batch is fixed: no route to ONNX keeps it dynamic (" in note for note in later.notes)
        assert not any("the batch is dynamic" in note for note in later.notes)
        assert (source.implied_sizes, later.implied_sizes) == ({"N": 2}, {})
        feed = {"x": np.arange(8, dtype=np.float32).reshape(2, 4) / 8}
        with later.runner() as runner, OnnxRunner(made) as artifact:
            expected, got = runner.run(feed), artifact.run(feed)
            assert all(np.allclose(expected[name], got[name], atol=1e-6) for name in expected)


def test_a_model_that_draws_is_refused_when_it_is_converted(tmp_path: Path) -> None:
    with (
        _opened("test_conversion:Drawn", tmp_path) as source,
        pytest.raises((Unsupported, ParityError), match="draws random numbers"),
    ):
        source.stage().run(source.artifact, _new(tmp_path, "made"))


def test_an_archive_is_read_without_sympy(tmp_path: Path) -> None:
    """It takes a quarter of a second, and only programs need it."""
    opened = (
        "import sys; from convertkit.converters.pytorch.service import TorchService\n"
        f"TorchService().open({{'kind': 'torchscript', 'path': {str(_archive(tmp_path))!r}, 'model': None}}, {{}})\n"
        "assert 'torch' in sys.modules and 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", opened], check=True)


def _zeros(**shapes: tuple[int, ...]) -> dict[str, Array]:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("first", "second", "shapes"),
    [
        (({"y": (1, 3)}, {}), None, [(1, 3)]),
        (({"y": (1, 1)}, {"N": 1}), None, [("N", 1)]),
        (({"y": (1, 5)}, {"N": 1}), ({"y": (2, 5)}, {"N": 2}), [("N", 5)]),
        (({"y": (1, 4)}, {"N": 1, "T": 4}), ({"y": (2, 6)}, {"N": 2, "T": 6}), [("N", "T")]),
        (({"y": (4,), "z": (2,)}, {"N": 2}), ({"y": (9,), "z": (2,)}, {"N": 3}), [("y_0",), (2,)]),
    ],
    ids=["fixed", "one run", "the batch", "two", "of no input's size"],
)
def test_outputs_have_the_dimensions_that_runs_at_two_sizes_show(first, second, shapes) -> None:
    runs = [None if each is None else (_zeros(**each[0]), each[1]) for each in (first, second)]
    assert [spec.shape for spec in output_specs(*runs)] == shapes
