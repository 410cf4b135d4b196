"""Kinds of PyTorch files told apart by content alone, over what torch's writers make in all their forms."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from convertkit.converters.pytorch import converter
from convertkit.converters.pytorch.files.sniff import examine

pytestmark = pytest.mark.filterwarnings("ignore")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def _saved(value: Callable[[], object], **options: object) -> Callable[[Path], None]:
    return lambda path: torch.save(value(), path, **options)


def _half(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.half() for name, value in state.items()}


def _pt2(path: Path, dynamic: bool = False) -> None:
    dims = ({0: torch.export.Dim.AUTO},) if dynamic else None
    torch.export.save(torch.export.export(Net(), (torch.zeros(2, 4),), dynamic_shapes=dims), path)


def _old_pt2(path: Path) -> None:
    """The layout of torch 2.1 to 2.7: JSON files at the top of a zip, no archive_format."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("serialized_exported_program.json", "serialized_state_dict.json", "version"):
            archive.writestr(name, "{}")


def _safetensors(path: Path, metadata: bool = False) -> None:
    from safetensors.torch import save_file

    save_file(Net().state_dict(), path, {"format": "pt"} if metadata else None)


def _traced() -> object:
    return torch.jit.trace(Net(), torch.zeros(2, 4))


def _script(path: Path) -> None:
    torch.jit.script(Net()).save(path)


def _frozen(path: Path) -> None:
    torch.jit.freeze(torch.jit.script(Net().eval())).save(path)


def _lite(path: Path) -> None:
    torch.jit.script(Net())._save_for_lite_interpreter(str(path))


def _extra(path: Path) -> None:
    torch.jit.save(torch.jit.script(Net()), path, _extra_files={"labels.txt": "a"})


LEGACY = {"_use_new_zipfile_serialization": False}
STATE: dict[str, Callable[[], object]] = {
    "plain": lambda: Net().state_dict(),
    "half": lambda: _half(Net().state_dict()),
    "bfloat16": lambda: {"w": torch.zeros(3, dtype=torch.bfloat16)},
    "integers": lambda: {"w": torch.zeros(3, dtype=torch.int8), "n": torch.tensor(3)},
    "parameters": lambda: OrderedDict(Net().named_parameters()),
    "checkpoint": lambda: {"model": Net().state_dict(), "epoch": 3, "optimizer": {"lr": 0.1}},
    "lightning": lambda: {"state_dict": Net().state_dict(), "hyper_parameters": {"width": 4}},
    "optimizer": lambda: {"model": Net().state_dict(), "o": torch.optim.Adam(Net().parameters()).state_dict()},
    "tensor": lambda: torch.zeros(3),
    "list": lambda: [torch.zeros(3), torch.ones(2)],
    "sizes": lambda: {"w": torch.zeros(3), "shape": torch.zeros(3, 2).shape, "kind": torch.float32},
}
SAMPLES: list[tuple[str, str, Callable[[Path], None]]] = [
    *(("state-dict", f"zip-{name}", _saved(make)) for name, make in STATE.items()),
    *(("state-dict", f"legacy-{name}", _saved(make, **LEGACY)) for name, make in STATE.items()),
    ("pickled-module", "zip-module", _saved(Net)),
    ("pickled-module", "legacy-module", _saved(Net, **LEGACY)),
    ("pickled-module", "zip-layer", _saved(lambda: torch.nn.Linear(2, 3))),
    ("pickled-module", "zip-module-in-checkpoint", _saved(lambda: {"model": Net(), "epoch": 1})),
    ("pickled-module", "protocol-4", _saved(Net, pickle_protocol=4)),
    ("pickled-module", "zip-function", _saved(lambda: {"w": torch.zeros(2), "activation": torch.nn.functional.relu})),
    ("torchscript", "traced", lambda path: _traced().save(path)),
    ("torchscript", "traced-jit-save", lambda path: torch.jit.save(_traced(), path)),
    ("torchscript", "scripted", _script),
    ("torchscript", "frozen", _frozen),
    ("torchscript", "lite", _lite),
    ("torchscript", "extra-files", _extra),
    ("torchscript", "half", lambda path: torch.jit.script(Net().half()).save(path)),
    (
        "torchscript",
        "nested",
        lambda path: torch.jit.script(torch.nn.Sequential(Net(), torch.nn.Linear(3, 2))).save(path),
    ),
    ("pt2", "static", _pt2),
    ("pt2", "dynamic", lambda path: _pt2(path, dynamic=True)),
    ("pt2", "torch-2.1", _old_pt2),
    ("safetensors", "plain", _safetensors),
    ("safetensors", "metadata", lambda path: _safetensors(path, metadata=True)),
]


def test_there_are_enough_samples() -> None:
    assert len(SAMPLES) >= 40


@pytest.mark.parametrize(("kind", "name", "write"), SAMPLES, ids=[name for _, name, _ in SAMPLES])
def test_kind(kind: str, name: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "model.bin"  # the suffix says nothing
    write(path)
    found = examine(path)
    assert found is not None
    assert found.kind == kind


def _npz(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, x=np.zeros(3))


def _keras(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", b"\x89HDF")


OTHERS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("no model"),
    "json": lambda path: path.write_text(json.dumps({"a": 1})),
    "npz": _npz,
    "keras": _keras,
    "hdf5": lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64)),
    "tflite": lambda path: path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(64)),
    "png": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64)),
    "zip": lambda path: zipfile.ZipFile(path, "w").close(),
    "length-and-brace": lambda path: path.write_bytes(struct.pack("<Q", 8) + b"{notjson"),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_left_to_others(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    OTHERS[name](path)
    assert examine(path) is None
    assert converter.sniff(str(path)) is None


def test_missing_file() -> None:
    assert converter.sniff("no/such/file.pt") is None


@pytest.mark.parametrize("share", [place / 21 for place in range(1, 21)])
def test_truncated_archives_are_recognised_as_damaged(share: float, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.pt", tmp_path / "cut.pt"
    torch.jit.script(Net()).save(whole)
    data = whole.read_bytes()
    cut.write_bytes(data[: int(len(data) * share)])
    found = examine(cut)
    assert found is not None
    assert found.kind == "damaged"


def test_bare_pickles_are_never_data(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps({"a": np.zeros(3)}))
    found = examine(path)
    assert found is not None
    assert found.kind == "pickled-module"
