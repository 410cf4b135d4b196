"""Kinds of PyTorch files told apart by content alone, over what torch's writers make in all their forms."""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from convertkit.converters.pytorch import converter
from convertkit.converters.pytorch.load.load import load
from convertkit.converters.pytorch.load.weights import stored_weights
from convertkit.converters.pytorch.read.safety import check
from convertkit.converters.pytorch.read.sniff import examine
from convertkit.errors import SourceError

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


def _entries(path: Path, entries: Mapping[str, bytes | str], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)


def _tensors() -> bytes:
    buffer = io.BytesIO()
    torch.save(Net().state_dict(), buffer)
    return buffer.getvalue()


def _pt2_of_2_1(path: Path) -> None:
    """torch 2.1 to 2.4: no folder, no archive_format; what is called JSON beside the program was made by torch.save."""
    named = ("serialized_exported_program.json", "serialized_state_dict.json", "version")
    _entries(path, dict(zip(named, ("{}", _tensors(), "1"), strict=True)))


def _pt2_of_2_6(path: Path) -> None:
    """torch 2.5 to 2.7."""
    beside = {f"serialized_{name}.pt": _tensors() for name in ("state_dict", "constants", "example_inputs")}
    _entries(path, {"serialized_exported_program.json": "{}", **beside, "version": "8.2"})


def _compiled_of_2_6(path: Path) -> None:
    """What AOTInductor of torch 2.6 packages: no folder around it."""
    _entries(path, {"version": "0", "archive_format": "pt2", "data/aotinductor/model/c.so": b"\x7fELF"})


def _rewritten(path: Path, change: Callable[[dict[str, bytes]], None], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    _entries(path, entries, compression)


def _big_endian(path: Path) -> None:
    """As a machine of the other byte order writes."""
    torch.save({"w": torch.arange(3, dtype=torch.int32)}, path)

    def swap(entries: dict[str, bytes]) -> None:
        root = next(iter(entries)).partition("/")[0]
        entries[f"{root}/byteorder"] = b"big"
        entries[f"{root}/data/0"] = np.arange(3, dtype=">i4").tobytes()

    _rewritten(path, swap)


def _zipped_again(path: Path) -> None:
    """Unpacked and packed by a user's tool: compressed, with entries for folders."""
    torch.save(Net().state_dict(), path)

    def with_folders(entries: dict[str, bytes]) -> None:
        held = dict(entries)
        entries.clear()
        root = next(iter(held)).partition("/")[0]
        entries.update({f"{root}/": b"", f"{root}/data/": b"", **held})

    _rewritten(path, with_folders, zipfile.ZIP_DEFLATED)


def _torchscript_of_1_0(path: Path) -> None:
    """torch 1.0 to 1.2: no pickles but of attributes, the module in model.json and its tensors beside it."""
    _entries(
        path,
        {"net/version": "1\n", "net/code/net.py": "op_version_set = 0\n", "net/tensors/0": bytes(16)}
        | {"net/model.json": json.dumps({"protoVersion": "1", "mainModule": {"name": "net"}, "tensors": []})},
    )


def _tar(path: Path, *names: str) -> None:
    with tarfile.open(path, "w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"\x80\x02N."))


def _compressed(path: Path, write: Callable[[Path], None], compress: Callable[[bytes], bytes]) -> None:
    write(path)
    path.write_bytes(compress(path.read_bytes()))


def _package(path: Path) -> None:
    held = {".data/extern_modules": "torch\n", ".data/version": "6\n", "net.py": "import torch\n"}
    _entries(path, {f"p/{name}": data for name, data in held.items()} | {"p/model/model.pkl": b"\x80\x02N."})


def _distributed(path: Path) -> None:
    path.mkdir()
    (path / ".metadata").write_bytes(b"\x80\x02N.")
    (path / "__0_0.distcp").write_bytes(b"PK\x03\x04")


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
    """In a process of its own: torch fails at it where functions of the model were compiled and executed before."""
    code = (
        f"import torch; from {__name__} import Net; torch.jit.script(Net())._save_for_lite_interpreter({str(path)!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3], capture_output=True)


def _script_zipped_again(path: Path) -> None:
    _script(path)
    _rewritten(path, lambda entries: None, zipfile.ZIP_DEFLATED)


def _safetensors_of(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path)


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
    "quantized": lambda: {"w": torch.quantize_per_tensor(torch.ones(3), 0.1, 2, torch.qint8)},
    "channels": lambda: {
        "w": torch.quantize_per_channel(
            torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8
        )
    },
    "sparse": lambda: {"w": torch.eye(3).to_sparse()},
    "complex": lambda: {"w": torch.zeros(3, dtype=torch.complex64)},
    "float8": lambda: {"w": torch.zeros(3, dtype=torch.float8_e4m3fn)},
    "numpy": lambda: {"model": Net().state_dict(), "mean": np.zeros(3), "best": np.float64(0.5)},
    "arguments": lambda: {"model": Net().state_dict(), "args": argparse.Namespace(width=4), "at": datetime(2020, 1, 1)},
    "tied": lambda: dict.fromkeys(("a.weight", "b.weight"), torch.ones(2, 3)),
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
    ("pt2", "torch-2.1", _pt2_of_2_1),
    ("pt2", "torch-2.6", _pt2_of_2_6),
    ("pt2", "compiled-2.6", _compiled_of_2_6),
    ("safetensors", "plain", _safetensors),
    ("safetensors", "metadata", lambda path: _safetensors(path, metadata=True)),
    ("safetensors", "empty", lambda path: _safetensors_of(path, {})),
    ("state-dict", "legacy-protocol-3", _saved(STATE["plain"], **LEGACY, pickle_protocol=3)),
    ("state-dict", "legacy-protocol-4", _saved(STATE["plain"], **LEGACY, pickle_protocol=4)),
    ("state-dict", "zip-protocol-4", _saved(STATE["plain"], pickle_protocol=4)),
    ("state-dict", "big-endian", _big_endian),
    ("state-dict", "zipped-again", _zipped_again),
    ("state-dict", "zip-settings", _saved(lambda: {"state_dict": Net().state_dict(), "data": Path("a")})),
    ("torchscript", "zipped-again", _script_zipped_again),
    ("unreadable", "torchscript-1.0", _torchscript_of_1_0),
    ("unreadable", "torch-0.1", lambda path: _tar(path, "sys_info", "pickle", "storages", "tensors")),
    ("unreadable", "tar-around", lambda path: _tar(path, "run/checkpoint.pth", "run/log.txt")),
    ("unreadable", "zip-around", lambda path: _entries(path, {"MAR-INF/MANIFEST.json": "{}", "model.pt": _tensors()})),
    ("unreadable", "gzip-around", lambda path: _compressed(path, _script, gzip.compress)),
    ("unreadable", "xz-around", lambda path: _compressed(path, _safetensors, lzma.compress)),
    ("unreadable", "bzip2-around", lambda path: _compressed(path, _saved(STATE["plain"], **LEGACY), bz2.compress)),
    ("unreadable", "package", _package),
    ("unreadable", "distributed", _distributed),
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
    "onnx": lambda path: path.write_bytes(b"\x08\x0a\x12\x07pytorch:" + bytes(64)),
    "executorch": lambda path: path.write_bytes(b"\x1c\0\0\0ET12" + bytes(64)),
    "gguf": lambda path: path.write_bytes(b"GGUF\x03\0\0\0" + bytes(64)),
    "gzip": lambda path: path.write_bytes(gzip.compress(b"no model")),
    "broken-gzip": lambda path: path.write_bytes(gzip.compress(_tensors())[:40]),
    "tar": lambda path: _tar(path, "notes.txt"),
    "length-and-brace": lambda path: path.write_bytes(struct.pack("<Q", 8) + b"{notjson"),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_left_to_others(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    OTHERS[name](path)
    assert examine(path) is None
    assert converter.sniff(str(path)) is None


INSTEAD = {
    "torchscript-1.0": "TorchScript of torch before 1.3.*\\n  try   loading it with torch 1.7",
    "torch-0.1": r"a tar of torch before 0\.1\.10.*\n  try   torch\.save",
    "zip-around": "an archive around model.pt\\n  try   unpacking it",
    "package": "a torch.package, which runs Python modules that it carries\\n  try   torch.package",
    "distributed": "a folder of torch.distributed.checkpoint\\n  try   .*dcp_to_torch_save",
    "compiled-2.6": "machine code that AOTInductor has compiled.*\\n  try   torch.export.save",
}


@pytest.mark.parametrize("name", INSTEAD)
def test_what_cannot_be_read_says_what_it_is_and_the_way_out(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    next(write for _, each, write in SAMPLES if each == name)(path)
    found = examine(path)
    assert found is not None
    with pytest.raises(SourceError, match=INSTEAD[name]):
        check(path, found, trust_pickle=False)


def test_the_other_byte_order_is_read(tmp_path: Path) -> None:
    _big_endian(tmp_path / "model.pt")
    assert stored_weights(str(tmp_path / "model.pt"), "state-dict")["w"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("write", [_pt2, _script, _zipped_again, _pt2_of_2_1, _pt2_of_2_6])
def test_honest_archives_pass(write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    write(path)
    found = examine(path)
    assert found is not None
    check(path, found, trust_pickle=False)


def test_a_program_of_an_older_torch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")  # loading sets it, for a process of its own; undone here
    _pt2_of_2_1(tmp_path / "model.pt2")
    with pytest.raises(SourceError, match=r"of version 1, which an older torch has written.*\n  try   exporting"):
        load(str(tmp_path / "model.pt2"), "pt2", None)


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
