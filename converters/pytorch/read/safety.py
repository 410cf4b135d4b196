"""Refusing files that are damaged, hostile or need code of their own, before torch sees them."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

from convertkit.converters.pytorch.read.exported import check_program
from convertkit.converters.pytorch.read.layout import ambiguity
from convertkit.converters.pytorch.read.shards import shards
from convertkit.converters.pytorch.read.sniff import Found, examine
from convertkit.errors import SourceError, Untrusted

_MAX_RATIO = 200
_RATIO_MATTERS_ABOVE_BYTES = 64 << 20
_MAX_ENTRIES = 1_000_000


def check(path: Path, found: Found, *, trust_pickle: bool) -> None:
    """Raise ``SourceError`` for a damaged or hostile file, ``Untrusted`` for one that needs its code executed."""
    if found.kind == "damaged":
        raise SourceError(
            f"{path.name} is a PyTorch file that is truncated or damaged; get it again from where it came"
        )
    if found.kind == "unreadable":
        what, way = found.instead
        raise SourceError(f"{path.name} is {what}\n  try   {way}")
    if found.kind == "sharded":
        for shard in shards(path):
            check(shard, examine(shard) or Found("damaged"), trust_pickle=False)
        return
    if zipfile.is_zipfile(path):
        _check_zip(path)
    if found.kind == "pt2":
        check_program(path)
    if found.kind == "torchscript" and found.foreign:
        raise Untrusted(f"{path.name}: this TorchScript archive names {few(found.foreign)}, which no TorchScript needs")
    if found.kind == "pickled-module" and not trust_pickle:
        raise Untrusted(
            f"{path.name} is a pickle that runs code when it is loaded (it needs {few(found.foreign)})\n"
            "  try   --model pkg.mod:factory, which makes the module: the file's tensors alone are read then\n"
            "  try   torch.export.save(torch.export.export(model, inputs), 'model.pt2')\n"
            "  try   --trust pickle, if you know who made the file"
        )


def few(names: tuple[str, ...]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _check_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if (reason := ambiguity(path, entries)) is not None:
        raise SourceError(f"{path.name}: {reason}, so readers may differ in what it holds; it is damaged or hostile")
    if len(entries) > _MAX_ENTRIES:
        raise SourceError(f"{path.name} has {len(entries)} entries, more than any model")
    seen: set[str] = set()
    for entry in entries:
        name = entry.filename.replace("\\", "/")
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or ":" in name.partition("/")[0]:
            raise SourceError(f"{path.name}: the entry {entry.filename!r} points outside the archive")
        key = name if "/code/" in name else name.lower()  # torch finds entries whatever their case
        if key in seen:
            raise SourceError(f"{path.name}: the entry {entry.filename!r} is there twice")
        seen.add(key)
    size, stored = sum(entry.file_size for entry in entries), path.stat().st_size
    if size > _RATIO_MATTERS_ABOVE_BYTES and size > _MAX_RATIO * stored:
        raise SourceError(f"{path.name} unpacks from {stored:,} to {size:,} bytes: a zip bomb, no model")
