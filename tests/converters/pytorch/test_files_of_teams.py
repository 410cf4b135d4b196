"""Weights as teams keep them: in shards, deep in a checkpoint, for a factory with arguments, in integer kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import convertkit
from convertkit.converters.pytorch.files.safety import check
from convertkit.converters.pytorch.files.sniff import Found, examine
from convertkit.converters.pytorch.loading.load import load
from convertkit.converters.pytorch.loading.weights import stored_weights
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
