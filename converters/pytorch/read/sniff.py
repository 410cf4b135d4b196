"""Telling PyTorch's files apart by their content; nothing is executed and torch is not imported.

The rules are those of torch's own writers: a zip with ``code/`` and ``constants.pkl`` is TorchScript,
one with ``archive_format`` or ``serialized_exported_program`` is ``.pt2``, one with ``data.pkl`` and no
code a plain pickle, which holds either data alone or objects of classes.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from convertkit.converters.pytorch.read import unreadable
from convertkit.converters.pytorch.read.lite import instead_of, packed_operators
from convertkit.converters.pytorch.read.pickles import PickleContent, content_of
from convertkit.converters.pytorch.read.shards import shards

Kind = Literal[
    "torchscript",
    "pt2",
    "state-dict",
    "pickled-module",
    "safetensors",
    "sharded",
    "torch-factory",
    "damaged",
    "unreadable",
]

_LEGACY_MAGIC = re.compile(
    rb"\x80(?:[\x02\x03]|[\x04\x05]\x95.{8})\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", re.DOTALL
)
"""torch's magic number as a pickle of any protocol."""
_LEGACY_PICKLES = 5  # magic number, protocol, system information, the object, storage keys
_ZIP_MAGIC = b"PK\x03\x04"
_FIRST_ENTRIES = frozenset(
    {
        "data.pkl",
        ".format_version",
        "version",
        "archive_format",
        "byteorder",
        "archive_version",
        ".data",
        "data",
        "code",
    }
    | {"constants.pkl", "traced_inputs.pkl", "bytecode.pkl", "extra", "constants", "models", "attributes.pkl"}
)
_MAX_PICKLE_BYTES = 256 << 20
_MAX_HEADER_BYTES = 100 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """What a file is, and the classes or functions that unpickling it would need.

    Of a file that is PyTorch's and cannot be read: what it is instead, and the way out.
    """

    kind: Kind
    foreign: tuple[str, ...] = ()
    instead: tuple[str, str] = ("", "")


def examine(path: Path) -> Found | None:
    """What kind of PyTorch file ``path`` is, None where it is none."""
    try:
        if shards(path):
            return Found("sharded")
        if path.is_dir():
            return _unreadable(unreadable.folder(path))
        with path.open("rb") as stream:
            head = stream.read(64)
        if head.startswith(_ZIP_MAGIC):
            return _zip(path, head)
        if _LEGACY_MAGIC.match(head):
            return _legacy(path)
        if _is_safetensors(path, head):
            return Found("safetensors")
        if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
            return _bare_pickle(path)
        return _unreadable(unreadable.wrapped(path, _is_model))
    except OSError:
        return None


def _zip(path: Path, head: bytes) -> Found | None:
    try:
        with zipfile.ZipFile(path) as archive:
            return _archive(archive)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, struct.error):
        return Found("damaged") if _first_entry_is_torch(head) else None


def _first_entry_is_torch(head: bytes) -> bool:
    (length,) = struct.unpack_from("<H", head, 26)
    name = head[30 : 30 + length].decode(errors="replace")
    return "/" in name and name.split("/")[1] in _FIRST_ENTRIES


def _archive(archive: zipfile.ZipFile) -> Found | None:
    names = archive.namelist()
    root = names[0].partition("/")[0] + "/" if names else ""  # torch, too, looks into the first entry's folder alone
    inside = {name.removeprefix(root): name for name in names if name.startswith(root)}
    if {"archive_format", "serialized_exported_program.json"} & {*names, *inside}:  # torch 2.6 made no folder
        return Found("pt2")
    has_code = any(name.startswith("code/") for name in inside)
    if has_code and ("constants.pkl" in inside or "data.pkl" in inside):
        return _scripted(archive, inside)
    if "data.pkl" in inside:
        return _from_pickle(_pickle_in(archive, inside["data.pkl"]))
    return _unreadable(unreadable.archive(inside) or unreadable.around(names))


def _unreadable(instead: tuple[str, str] | None) -> Found | None:
    return None if instead is None else Found("unreadable", instead=instead)


def _is_model(head: bytes) -> bool:
    """Whether the first bytes of a file are those of an archive, a legacy pickle or safetensors."""
    return head.startswith(_ZIP_MAGIC) or _LEGACY_MAGIC.match(head) is not None or head[8:10] == b'{"'


def _scripted(archive: zipfile.ZipFile, inside: dict[str, str]) -> Found:
    """TorchScript's own pickles name its own classes; torch's C++ reader builds nothing else."""
    if packed := packed_operators(archive, inside):
        return Found("unreadable", instead=instead_of(packed))
    foreign: set[str] = set()
    for name in ("data.pkl", "constants.pkl", "bytecode.pkl", "traced_inputs.pkl", "attributes.pkl"):
        if name in inside:
            foreign.update(_pickle_in(archive, inside[name]).foreign)
    return Found("torchscript", tuple(sorted(name for name in foreign if not _is_torchscript(name))))


def _is_torchscript(name: str) -> bool:
    return name.startswith(("__torch__.", "torch.jit._pickle.build_", "torch.jit._pickle.restore_type_tag"))


def _pickle_in(archive: zipfile.ZipFile, name: str) -> PickleContent:
    if archive.getinfo(name).file_size > _MAX_PICKLE_BYTES:
        return PickleContent(frozenset({"a pickle of absurd size"}), complete=False)
    return content_of(io.BytesIO(archive.read(name)))


def _from_pickle(content: PickleContent) -> Found:
    if content.foreign:
        return Found("pickled-module", content.foreign)
    return Found("state-dict" if content.complete else "damaged")


def _legacy(path: Path) -> Found:
    with path.open("rb") as stream:
        return _from_pickle(content_of(stream, _LEGACY_PICKLES))


def _bare_pickle(path: Path) -> Found | None:
    with path.open("rb") as stream:
        content = content_of(stream)
    if not content.complete and not content.globals:
        return None
    if (fitted := unreadable.fitted(content.foreign)) is not None:
        return Found("unreadable", instead=fitted)
    return Found("pickled-module", content.foreign or ("a pickle that torch.save did not write",))


def _is_safetensors(path: Path, head: bytes) -> bool:
    """An 8-byte little-endian length, then that many bytes of JSON with offsets of tensors."""
    if len(head) < 10 or head[8:9] != b"{":
        return False
    (length,) = struct.unpack_from("<Q", head)
    if not 2 <= length <= _MAX_HEADER_BYTES:
        return False
    with path.open("rb") as stream:
        stream.seek(8)
        text = stream.read(length)
    try:
        header = json.loads(text)
    except RecursionError:  # brackets in brackets; no header of a writer
        return False
    except ValueError:
        return len(text) < length and b"data_offsets" in text
    return isinstance(header, dict) and all(
        name == "__metadata__" or (isinstance(entry, dict) and "data_offsets" in entry)
        for name, entry in header.items()
    )
