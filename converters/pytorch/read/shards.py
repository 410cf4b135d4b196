"""Weights in several files with an index beside them, and folders that hold a model's weights under a usual name.

The index is JSON whose ``weight_map`` says which file holds which tensor, as Hugging Face's writers make it.
"""

from __future__ import annotations

import json
from pathlib import Path

from convertkit.errors import SourceError

_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_MAX_BYTES = 64 << 20


def shards(path: Path) -> tuple[Path, ...]:
    """The files that hold the weights together, none where ``path`` is neither an index nor such a folder."""
    if path.is_dir():
        index = next((path / name for name in _INDICES if (path / name).is_file()), None)
        if index is not None:
            return _indexed(index)
        return next(((path / name,) for name in _WHOLE if (path / name).is_file()), ())
    return _indexed(path) if path.name.endswith(".json") else ()


def _indexed(index: Path) -> tuple[Path, ...]:
    try:
        content = json.loads(index.read_bytes()) if index.stat().st_size <= _MAX_BYTES else None
    except (ValueError, RecursionError, OSError):
        return ()
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict):
        return ()
    names = sorted({str(name) for name in places.values()})
    if outside := [name for name in names if Path(name).name != name]:
        raise SourceError(f"{index.name}: the shard {outside[0]!r} does not lie beside its index")
    if missing := [name for name in names if not (index.parent / name).is_file()]:
        raise SourceError(
            f"{index.name} names {missing[0]}, which is not there; all {len(names)} shards belong together"
        )
    return tuple(index.parent / name for name in names)
