"""Hostile files: whatever they hold, none of it runs, and each is one sentence."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import hostile_archives
import pytest
import torch

import convertkit
from convertkit.converters.pytorch.load import io_ops_check
from convertkit.converters.pytorch.read import exported
from convertkit.converters.pytorch.read.safety import check
from convertkit.converters.pytorch.read.sniff import examine
from convertkit.errors import ConvertKitError, SourceError

pytestmark = pytest.mark.filterwarnings("ignore")


class Payload:
    """Unpickling this makes a file: the trace that code of the file ran."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


class Evaluated(Payload):
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (f"open({str(self.mark)!r}, 'w').close()",)


class Exec(Payload):
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.mark)!r}, 'w').close()",)


class Built(Payload):
    """Through an object's state instead of its reduction."""

    def __reduce__(self) -> tuple[object, ...]:
        return (dict, (), None, None, iter([("x", Payload(self.mark))]))


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def _script() -> bytes:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(Net(), torch.zeros(2, 3)), buffer)
    return buffer.getvalue()


def _with_entry(archive: bytes, entry: str, data: bytes) -> bytes:
    """The archive with one entry replaced or added."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        root = old.namelist()[0].partition("/")[0]
        for name in old.namelist():
            if name != f"{root}/{entry}":
                new.writestr(name, old.read(name))
        new.writestr(f"{root}/{entry}" if not entry.startswith(("/", "..")) else entry, data)
    return out.getvalue()


def _saved(value: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def _disguised(mark: Path) -> bytes:
    """A reduction whose last two strings before STACK_GLOBAL look harmless."""
    command = f"touch {mark}"
    return (
        b"\x80\x04\x8c\x05posix\x8c\x06system\x8c\x0bcollections0\x8c\x0bOrderedDict0\x93"
        + b"\x8c"
        + bytes([len(command)])
        + command.encode()
        + b"\x85R."
    )


def _bomb(mark: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", pickle.dumps({}, 2))
        archive.writestr("m/version", "3\n")
        archive.writestr("m/data/0", bytes(256 << 20))
    return out.getvalue()


def _overlong(mark: Path) -> bytes:
    """A pickle that says it holds a string of 4 GB."""
    return _with_entry(_saved({}), "data.pkl", b"\x80\x02X\xff\xff\xff\xffabc.")


def _program(mark: Path, entry: str, data: bytes) -> bytes:
    """An exported program with one entry replaced."""
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(Net(), (torch.zeros(2, 3),)), buffer)
    return _with_entry(buffer.getvalue(), entry, data)


def _evaluated_size(mark: Path) -> bytes:
    """A size that sympy would evaluate as Python."""
    buffer = io.BytesIO()
    dims = ({0: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(Net(), (torch.zeros(2, 3),), dynamic_shapes=dims), buffer)
    with zipfile.ZipFile(io.BytesIO(buffer.getvalue())) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("models/model.json")]
        text = archive.read(name).decode()
    found = re.search(r'"expr_str": "([^"]*)"', text)
    assert found is not None
    code = f"open('{mark}', 'w').close()"
    text = text.replace(f'"expr_str": "{found.group(1)}"', f'"expr_str": "{code}"')
    return _with_entry(buffer.getvalue(), "models/model.json", text.encode())


def _called_function(mark: Path) -> bytes:
    """A node that calls a function of Python's instead of an operator."""
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(Net(), (torch.zeros(2, 3),)), buffer)
    with zipfile.ZipFile(io.BytesIO(buffer.getvalue())) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("models/model.json")]
        text = archive.read(name).decode()
    assert "torch.ops.aten.add.Tensor" in text
    return _with_entry(
        buffer.getvalue(), "models/model.json", text.replace("torch.ops.aten.add.Tensor", "torch.os.getcwd").encode()
    )


def _declared(size: int) -> bytes:
    """An archive whose directory declares another unpacked size than it holds."""
    data = bytearray(_saved({"w": torch.zeros(2)}))
    at = data.find(b"PK\x01\x02")
    struct.pack_into("<I", data, at + 24, size)
    return bytes(data)


def _safetensors(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def _frames(mark: Path) -> bytes:
    """Protocol 5: the reduction lies in a second frame, behind one that looks like weights."""
    plain, payload = pickle.dumps({}, 5)[:-1], pickle.dumps(Payload(mark), 5)
    return _with_entry(_saved({}), "data.pkl", plain + b"0" + payload[2:])


def _twice(mark: Path) -> bytes:
    """Harmless weights and, under the same name, a pickle that is not: readers differ in which one they take."""
    out = io.BytesIO(_saved({"w": torch.zeros(2)}))
    with warnings.catch_warnings(), zipfile.ZipFile(out, "a") as archive:
        warnings.simplefilter("ignore")
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        archive.writestr(name, pickle.dumps(Payload(mark), 2))
    return out.getvalue()


def _other_name(mark: Path) -> bytes:
    """An entry whose own header names another file than the directory does."""
    data = bytearray(_with_entry(_saved({"w": torch.zeros(2)}), "data.pkl", pickle.dumps(Payload(mark), 2)))
    at = data.find(b"/data.pkl")
    data[at : at + 9] = b"/info.txt"
    return bytes(data)


def _zip64(mark: Path) -> bytes:
    """A directory whose 64-bit field declares an entry of 2⁶² bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps(Payload(mark), 2))
        info = archive.getinfo("m/data.pkl")
        info.extra = struct.pack("<HHQQ", 1, 16, 1 << 62, info.compress_size)
        info.file_size = 0xFFFFFFFF
        info.compress_size = 0xFFFFFFFF
        data_end = archive.fp.tell() if archive.fp is not None else 0
        assert data_end > 0
    return out.getvalue()


def _tar(mark: Path) -> bytes:
    """The format of torch before 0.1.10: a tar of pickles."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            data = pickle.dumps(Payload(mark), 2)
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("outside")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return out.getvalue()


def _nested(depth: int) -> bytes:
    """Dicts in dicts: the key ``model`` all the way down."""
    pieces = b"}X\x05\x00\x00\x00model" * depth + b"}" + b"s" * depth
    return _with_entry(_saved({}), "data.pkl", b"\x80\x02" + pieces + b".")


def _custom_object(mark: Path) -> bytes:
    """An exported program beside whose weights an object of a custom class lies, as a pickle."""
    fields = b'"path_name": "custom_obj_0", "is_param": false, "use_pickle": true, "tensor_meta": null'
    config = b'{"config": {"obj": {' + fields + b"}}}"
    program = _program(mark, "data/constants/custom_obj_0", _saved(Payload(mark)))
    return _with_entry(program, "data/constants/model_constants_config.json", config)


CORPUS: dict[str, Callable[[Path], bytes]] = {
    "bare": lambda mark: pickle.dumps(Payload(mark)),
    "bare-protocol-2": lambda mark: pickle.dumps(Payload(mark), 2),
    "bare-eval": lambda mark: pickle.dumps(Evaluated(mark)),
    "zip": lambda mark: _saved(Payload(mark)),
    "zip-in-state-dict": lambda mark: _saved({"w": torch.zeros(2), "x": Payload(mark)}),
    "zip-nested": lambda mark: _saved({"model": {"a": [{"b": (Exec(mark),)}]}}),
    "zip-built": lambda mark: _saved({"model": Built(mark)}),
    "legacy": lambda mark: _saved(Payload(mark), _use_new_zipfile_serialization=False),
    "legacy-in-state-dict": lambda mark: _saved(
        {"w": torch.zeros(2), "x": Evaluated(mark)}, _use_new_zipfile_serialization=False
    ),
    "protocol-4": lambda mark: _saved({"x": Payload(mark)}, pickle_protocol=4),
    "disguised-in-zip": lambda mark: _with_entry(_saved({}), "data.pkl", _disguised(mark)),
    "disguised-bare": _disguised,
    "torchscript-constants": lambda mark: _with_entry(_script(), "constants.pkl", pickle.dumps(Payload(mark), 2)),
    "torchscript-data": lambda mark: _with_entry(_script(), "data.pkl", pickle.dumps(Payload(mark), 2)),
    "torchscript-traced-inputs": lambda mark: _with_entry(
        _script(), "traced_inputs.pkl", pickle.dumps(Payload(mark), 2)
    ),
    "torchscript-code": lambda mark: _with_entry(_script(), "code/__torch__.py", b"import os\nos.system('true')\n"),
    "traversal": lambda mark: _with_entry(_script(), "../../outside.pkl", b""),
    "absolute": lambda mark: _with_entry(_script(), "/tmp/outside.pkl", b""),
    "bomb": _bomb,
    "pt2-sample-inputs": lambda mark: _program(mark, "data/sample_inputs/model.pt", _saved(Payload(mark))),
    "pt2-sample-inputs-bare": lambda mark: _program(
        mark, "data/sample_inputs/model.pt", pickle.dumps(Payload(mark), 0)
    ),
    "pt2-evaluated-size": _evaluated_size,
    "pt2-target": _called_function,
    "overlong-string": _overlong,
    "pickle-named-safetensors": lambda mark: pickle.dumps({"w": Payload(mark)}, 4),
    "safetensors-outside": lambda mark: _safetensors(
        b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,99999999]}}', bytes(16)
    ),
    "safetensors-huge": lambda mark: _safetensors(
        b'{"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}}', bytes(16)
    ),
    "declared-huge": lambda mark: _declared(0xFFFFFFF0),
    "frames": _frames,
    "pt2-extra-pickle": lambda mark: _program(mark, "extra/notes.pkl", pickle.dumps(Payload(mark))),
    "pt2-extra-outside": lambda mark: _program(mark, "../../../tmp/outside.so", b"\x7fELF"),
    "pt2-weights-pickle": lambda mark: _program(mark, "data/weights/model.pt", _saved({"w": Payload(mark)})),
    "torchscript-extra-pickle": lambda mark: _with_entry(_script(), "extra/notes.pkl", pickle.dumps(Payload(mark))),
    "extension-registry": lambda mark: _with_entry(_saved({}), "data.pkl", b"\x80\x02\x82\x01)R."),
    "instance-opcode": lambda mark: f"(S'touch {mark}'\nios\nsystem\n.".encode(),
    "instance-in-zip": lambda mark: _with_entry(
        _saved({}), "data.pkl", f"\x80\x02(S'touch {mark}'\nios\nsystem\n.".encode("latin-1")
    ),
    "same-name-twice": _twice,
    "other-name-in-header": _other_name,
    "zip64-size": _zip64,
    "tar": _tar,
    "pickle-before-zip": lambda mark: pickle.dumps(Payload(mark)) + _saved({"w": torch.zeros(2)}),
    "nested-dicts": lambda mark: _nested(100_000),
    "nested-code": lambda mark: _with_entry(
        _script(), "code/__torch__.py", b"def f(x):\n  return " + b"(" * 200_000 + b"x" + b")" * 200_000
    ),
    "pt2-custom-object": _custom_object,
    "safetensors-nested": lambda mark: _safetensors(b'{"w":' + b"[" * 500_000 + b"]" * 500_000 + b"}"),
    "safetensors-numbers": lambda mark: _safetensors(b'{"w":3,"data_offsets":[0,4]}', bytes(16)),
    "safetensors-negative": lambda mark: _safetensors(
        b'{"w":{"dtype":"F32","shape":[-4],"data_offsets":[8,0]}}', bytes(16)
    ),
    "index-of-nothing": lambda mark: b'{"weight_map":{"w":"/etc/passwd","v":"../model.pt"}}',
    "pt2-with-pickle": lambda mark: _with_entry(
        _with_entry(_saved({}), "archive_format", b"pt2"), "data.pkl", pickle.dumps(Payload(mark), 2)
    ),
    **hostile_archives.CORPUS,
}


@pytest.mark.parametrize("name", CORPUS)
def test_nothing_runs(name: str, tmp_path: Path) -> None:
    mark, path = tmp_path / "executed", tmp_path / "model.pt"
    path.write_bytes(CORPUS[name](mark))
    with pytest.raises(ConvertKitError) as caught:
        convertkit.export(path, "onnxruntime", output=tmp_path / "out", model="grid_models:MLP", timeout=120)
    assert not mark.exists(), "code of the file was executed"
    assert not (tmp_path / "out").exists()
    assert "Traceback" not in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 5


def test_a_trusted_pickle_runs_and_says_so(tmp_path: Path) -> None:
    import grid_models

    torch.save(grid_models.MLP(), tmp_path / "module.pt")
    with pytest.raises(SourceError, match="--trust pickle"):
        convertkit.export(tmp_path / "module.pt", "onnxruntime", output=tmp_path / "out")
    result = convertkit.export(tmp_path / "module.pt", "onnxruntime", output=tmp_path / "out", trust="pickle")
    notes = " ".join(result.report["steps"][0].get("notes", []) + list(result.report.get("notes", [])))
    assert "trust" in notes


def test_honest_sizes_are_no_code(tmp_path: Path) -> None:
    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pairs = x[:, : x.shape[1] // 2 * 2].reshape(x.shape[0], -1, 2)
            return torch.nn.functional.pad(pairs.sum(-1), (0, max(1, x.shape[1] - 3)))

    path = tmp_path / "model.pt2"
    dims = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(Sized(), (torch.zeros(4, 9),), dynamic_shapes=dims), path)
    found = examine(path)
    assert found is not None
    check(path, found, trust_pickle=False)


class Named(torch.nn.Module):
    """Names like those of operators that reach outside, for what does not."""

    def __init__(self) -> None:
        super().__init__()
        self.save = [0, 2]
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())

    def from_file(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.save[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(torch.jit.fork(self.from_file, self.layers(x)))


def test_a_name_alone_is_not_hostile(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.jit.script(Named()).save(path)
    with zipfile.ZipFile(path) as archive:
        code = b"".join(archive.read(name) for name in archive.namelist() if name.endswith(".py"))
    assert io_ops_check.is_suspect(code)
    io_ops_check.check_code(code, path.name)
    io_ops_check.check_graph(torch.jit.load(path), path.name)


def test_numbered_layers_are_not_suspect(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())).save(path)
    with zipfile.ZipFile(path) as archive:
        code = b"".join(archive.read(name) for name in archive.namelist() if name.endswith(".py"))
    assert b"getattr" in code
    assert not io_ops_check.is_suspect(code)


@pytest.mark.parametrize(
    "guard",
    [
        "2*(L['x'].size()[1] // 2) <= L['x'].size()[1]",
        "L['x'].size()[1] != max(1, 2*(L['x'].size()[1] // 2))",
        "L['args'][0]['image'].stride()[0] % 8 == 0 and not s77 > 3",
        "L['state'].keys.size()[0] == Max(1, u0)",
    ],
)
def test_honest_guards_are_no_code(guard: str) -> None:
    exported.check_content("model.json", {"guards_code": [guard]})


@pytest.mark.parametrize(
    "text", ["L['x'].tofile(L['y'])", "L['x']['__class__'].__bases__", "open('x')", "L['a\\'].size()"]
)
def test_other_guards_are(text: str) -> None:
    with pytest.raises(SourceError, match="would run"):
        exported.check_content("model.json", {"guards_code": [text]})


WALLS = {
    "pt2-compiled": "machine code that AOTInductor has compiled",
    "pt2-compiled-without-folder": "machine code that AOTInductor has compiled",
    "pt2-writes-a-file": "would run 'torch.ops.aten.save.default'",
    "pt2-maps-a-file": "would run 'torch.ops.aten.from_file.default'",
    "pt2-calls-an-argument": "would run 'torch.os.system'",
    "pt2-enumeration": "would run 'antigravity:A'",
    "pt2-default-factory": "would run 'antigravity.open'",
    "pt2-other-case": "is there twice",
    "zip-two-directories": "it has two directories",
    "zip-miscounted": "its directory says 2 entries and has",
    "zip-bytes-behind": "its directory is not at its end",
    "zip-zero-byte": "a name of an entry has a zero byte",
}


@pytest.mark.parametrize("name", WALLS)
def test_the_wall_before_torch_sees_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(CORPUS[name](tmp_path / "executed"))
    found = examine(path)
    assert found is not None
    with pytest.raises(SourceError, match=re.escape(WALLS[name])):
        check(path, found, trust_pickle=False)
