"""Write a package whose bytes depend on the model alone.

coremltools' own writer puts random identifiers into the manifest, and maps in the order of memory into the protobuf.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convertkit.targets.coreml.package.program import MODEL, WEIGHTS

_NAMESPACE = uuid.UUID("0f1e4c0a-5d3c-5b53-9f0e-6d1b7d0c5a11")
_AUTHOR = "com.apple.CoreML"


def write_package(folder: Path, serialize: Callable[[Path], Any]) -> None:
    """Make ``folder``: ``serialize`` writes weights into the folder that it is given, and returns the protobuf."""
    weights = folder / WEIGHTS
    weights.mkdir(parents=True)
    model = serialize(weights)
    data: bytes = model.SerializeToString(deterministic=True)
    (folder / MODEL).write_bytes(data)
    entries = {"model.mlmodel": (MODEL, "CoreML Model Specification", data)}
    files = sorted(weights.iterdir())
    if files:
        content = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
        entries["weights"] = (WEIGHTS, "CoreML Model Weights", content)
    else:
        weights.rmdir()
    _manifest(folder, entries)


def _manifest(folder: Path, entries: dict[str, tuple[Path, str, bytes]]) -> None:
    """What lies in the package, each under an identifier that its content gives."""
    items, root = {}, ""
    for name, (path, description, content) in entries.items():
        key = str(uuid.uuid5(_NAMESPACE, f"{name} {hashlib.sha256(content).hexdigest()}")).upper()
        root = key if name == "model.mlmodel" else root
        inner = path.relative_to("Data").as_posix()
        items[key] = {"author": _AUTHOR, "description": description, "name": name, "path": inner}
    manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": items, "rootModelIdentifier": root}
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    (folder / "Manifest.json").write_text(text, encoding="utf-8")
