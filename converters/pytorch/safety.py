"""Refusing files that are damaged, hostile or need code of their own, before torch sees them."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

from convertkit.converters.pytorch.sniff import Found
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
    if zipfile.is_zipfile(path):
        _check_zip(path)
    if found.kind == "torchscript" and found.foreign:
        raise Untrusted(
            f"{path.name}: this TorchScript archive names {_some(found.foreign)}, which no TorchScript needs"
        )
    if found.kind == "pickled-module" and not trust_pickle:
        raise Untrusted(
            f"{path.name} is a pickle that runs code when it is loaded (it needs {_some(found.foreign)})\n"
            "  try   torch.save(model.state_dict(), …) and --model pkg.mod:factory\n"
            "  try   torch.export.save(torch.export.export(model, inputs), 'model.pt2')\n"
            "  try   --trust pickle, if you know who made the file"
        )


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _check_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if len(entries) > _MAX_ENTRIES:
        raise SourceError(f"{path.name} has {len(entries)} entries, more than any model")
    seen: set[str] = set()
    for entry in entries:
        parts = PurePosixPath(entry.filename.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or ":" in entry.filename.partition("/")[0]:
            raise SourceError(f"{path.name}: the entry {entry.filename!r} points outside the archive")
        if entry.filename in seen:
            raise SourceError(f"{path.name}: the entry {entry.filename!r} is there twice")
        seen.add(entry.filename)
    size, stored = sum(entry.file_size for entry in entries), path.stat().st_size
    if size > _RATIO_MATTERS_ABOVE_BYTES and size > _MAX_RATIO * stored:
        raise SourceError(f"{path.name} unpacks from {stored:,} to {size:,} bytes: a zip bomb, no model")
