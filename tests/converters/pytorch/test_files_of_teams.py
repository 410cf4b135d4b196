"""Weights as teams keep them: in shards, deep in a checkpoint, for a factory with arguments, in integer kernels."""

from __future__ import annotations

import argparse
import collections
import json
import sys
import zipfile
from pathlib import Path

import grid_models
import numpy as np
import odd_models
import pytest
import torch

import convertkit
from convertkit.converters.pytorch.describe.inputs import leaves_of
from convertkit.converters.pytorch.load.load import load
from convertkit.converters.pytorch.load.weights import stored_weights
from convertkit.converters.pytorch.model.programs import program_examples
from convertkit.converters.pytorch.read.safety import check
from convertkit.converters.pytorch.read.sniff import Found, examine
from convertkit.errors import SourceError, Unsupported, Untrusted, UsageError

pytestmark = pytest.mark.filterwarnings("ignore")
WEIGHTS = {"layers.0.weight": torch.ones(2, 3), "layers.0.bias": torch.zeros(2), "head.weight": torch.full((1, 2), 3.0)}


def _sharded(folder: Path, suffix: str) -> Path:
    """Two files and their index, as Hugging Face's writers name them."""
    from safetensors.torch import save_file

    stem = "model" if suffix == "safetensors" else "pytorch_model"
    names = [f"{stem}-0000{place}-of-00002.{suffix}" for place in (1, 2)]
    parts = [dict(list(WEIGHTS.items())[:2]), dict(list(WEIGHTS.items())[2:])]
    for name, part in zip(names, parts, strict=True):
        save_file(part, folder / name) if suffix == "safetensors" else torch.save(part, folder / name)
    index = folder / f"{stem}.{suffix}.index.json"
    places = {key: name for name, part in zip(names, parts, strict=True) for key in part}
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
@pytest.mark.parametrize("as_folder", [False, True])
def test_shards_are_one_set_of_weights(tmp_path: Path, suffix: str, as_folder: bool) -> None:
    index = _sharded(tmp_path, suffix)
    source = tmp_path if as_folder else index
    assert examine(source) == Found("sharded")
    check(source, Found("sharded"), trust_pickle=False)
    assert stored_weights(str(source), "sharded").keys() == WEIGHTS.keys()


def test_a_folder_with_one_file_of_weights_is_that_file(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "pytorch_model.bin")
    assert examine(tmp_path) == Found("sharded")
    assert stored_weights(str(tmp_path), "sharded").keys() == WEIGHTS.keys()


def test_a_shard_that_is_missing_or_elsewhere_is_refused_by_name(tmp_path: Path) -> None:
    index = _sharded(tmp_path, "bin")
    (tmp_path / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(SourceError, match=r"names pytorch_model-00002-of-00002\.bin, which is not there; all 2 shards"):
        examine(index)
    index.write_text(json.dumps({"weight_map": {"w": "../outside.bin"}}))
    with pytest.raises(SourceError, match="does not lie beside its index"):
        examine(index)


def test_a_shard_that_runs_code_is_refused(tmp_path: Path) -> None:
    index = _sharded(tmp_path, "bin")
    torch.save(torch.nn.Linear(2, 3), tmp_path / "pytorch_model-00002-of-00002.bin")
    with pytest.raises(Untrusted, match="runs code when it is loaded"):
        check(index, Found("sharded"), trust_pickle=False)


def test_other_json_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Net"]}')
    assert examine(tmp_path / "config.json") is None
    assert examine(tmp_path) is None


def test_weights_are_found_wherever_a_checkpoint_has_them(tmp_path: Path) -> None:
    torch.save({"run": {"best": WEIGHTS, "step": 3}}, tmp_path / "deep.pth")
    assert stored_weights(str(tmp_path / "deep.pth"), "state-dict").keys() == WEIGHTS.keys()


def test_a_checkpoint_without_weights_says_what_it_has(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "losses": [0.1]}, tmp_path / "log.pth")
    with pytest.raises(SourceError, match="holds no state_dict: its keys are epoch, losses"):
        stored_weights(str(tmp_path / "log.pth"), "state-dict")


class Settings:
    """An object of somebody's class, whose code must not run; in a checkpoint a list and a mapping are of such, too."""

    def __init__(self) -> None:
        self.rate = 0.1

    def __setstate__(self, state: object) -> None:
        raise AssertionError("the file's class was used")


class Configuration(dict[str, object]):
    """A mapping of somebody's class."""


class Head(torch.nn.Module):
    """Holds what a state_dict leaves out, too: a buffer that is not kept, and parameters that are None."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 2, bias=False), torch.nn.BatchNorm1d(2)])
        self.register_buffer("scratch", torch.ones(2), persistent=False)
        self.register_buffer("scale", torch.full((2,), 3.0))

    def __setstate__(self, state: object) -> None:
        raise AssertionError("the file's class was used")


def _own(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(module.state_dict())


CHECKPOINTS = {
    "settings": lambda head: {"model": _own(head), "args": argparse.Namespace(rate=0.1), "best": np.float64(0.5)},
    "classes": lambda head: {"state_dict": _own(head), "settings": Settings(), "hyper_parameters": Configuration(a=1)},
    "mapping of a class": lambda head: Configuration(epoch=3, model=Configuration(_own(head))),
    "module": lambda head: head,
    "module in a checkpoint": lambda head: {"epoch": 3, "model": head, "ema": None, "optimizer": {"lr": 0.1}},
    "paths and lists": lambda head: {"weights": _own(head), "log": collections.defaultdict(list), "out": Path("/x")},
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("form", CHECKPOINTS)
def test_tensors_are_read_beside_objects_that_nothing_makes(tmp_path: Path, form: str, legacy: bool) -> None:
    head = Head()
    torch.save(CHECKPOINTS[form](head), tmp_path / "best.ckpt", _use_new_zipfile_serialization=not legacy)
    found = stored_weights(str(tmp_path / "best.ckpt"), "state-dict")
    assert found.keys() == head.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in head.state_dict().items())


def test_a_whole_module_gives_its_tensors_to_a_factory(tmp_path: Path) -> None:
    """Without --trust; a factory makes the module, and the note says what of the file was left alone."""
    torch.manual_seed(3)
    module = grid_models.MLP().eval()
    torch.save(module, tmp_path / "module.pt")
    result = convertkit.export(tmp_path / "module.pt", "onnxruntime", model="grid_models:MLP", output=tmp_path / "out")
    assert any("the tensors alone were read" in note for note in result.report["notes"])
    x = np.random.default_rng(0).standard_normal((3, *result.artifact.inputs[0].shape[1:])).astype(np.float32)
    (answer,) = result.run({result.artifact.inputs[0].name: x}).values()
    np.testing.assert_allclose(answer, module(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_trusted_file_without_a_module_names_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    torch.save({"weights": WEIGHTS, "settings": Configuration(a=1)}, tmp_path / "best.ckpt")
    with pytest.raises(SourceError, match=r"holds dict, no module\n.*--model pkg\.mod:factory"):
        load(str(tmp_path / "best.ckpt"), "pickled-module", None)


def needs_width(width: int, *, depth: int = 1) -> torch.nn.Module:
    return torch.nn.Linear(width, depth)


def test_a_factory_with_arguments_is_told_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")  # loading sets it, for a process of its own; undone here
    with pytest.raises(UsageError, match=r"needs width, .*\n.*def made\(\): return needs_width\(width=…\)"):
        load("test_files_of_teams:needs_width", "torch-factory", None)


def test_torch_s_own_integer_kernels_are_refused_by_name(tmp_path: Path) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4))
    quantized = torch.ao.quantization.quantize_dynamic(layers, {torch.nn.Linear})
    torch.jit.script(quantized).save(tmp_path / "dynamic.pt")
    assert examine(tmp_path / "dynamic.pt") == Found("torchscript")
    with pytest.raises(Unsupported, match="torch's own integer kernels") as caught:
        convertkit.export(tmp_path / "dynamic.pt", "onnxruntime", input=["input:N,4"], output=tmp_path / "out")
    assert caught.value.subject == "quantized::linear_dynamic"
    assert "--int8" in caught.value.ways_out[0]


@pytest.mark.parametrize("form", ["factory", "program"])
def test_what_was_left_out_of_an_example_is_no_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A program was exported with None and a number among its arguments, and takes nothing else there."""
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")  # as above
    module = odd_models.LeftOut().eval()
    x, _, weight = module.example_inputs
    if form == "program":
        torch.export.save(torch.export.export(module, (x, None, weight, 3)), tmp_path / "model.pt2")
        subject, top = load(str(tmp_path / "model.pt2"), "pt2", None), 3
    else:
        subject, top = load("odd_models:LeftOut", "torch-factory", None), 2
    leaves = leaves_of(subject, program_examples(subject), ())
    assert [leaf.name for leaf in leaves] == ["x", "weight"]
    feed = {"x": torch.rand(2, 5, 8), "weight": torch.rand(2, 5)}
    found = subject.compute(leaves, {name: value.numpy() for name, value in feed.items()})
    np.testing.assert_allclose(found["output"], module(feed["x"], None, feed["weight"], top).detach(), rtol=1e-6)


class Members(torch.nn.Module):
    """An ensemble whose members are computed side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.rand(5, 3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answers: torch.Tensor = torch.vmap(lambda weight: x @ weight)(self.weights)
        return answers.mean(0)


def test_a_program_that_maps_over_members_is_no_hostile_one(tmp_path: Path) -> None:
    """torch keeps the calls that begin and end the mapping."""
    torch.export.save(torch.export.export(Members(), (torch.rand(2, 3),)), tmp_path / "model.pt2")
    assert b"predispatch" in _model_of(tmp_path / "model.pt2")
    check(tmp_path / "model.pt2", Found("pt2"), trust_pickle=False)


def _model_of(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("models/model.json"))
        return archive.read(name)
