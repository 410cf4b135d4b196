"""What lies in the package: the files for chips, the one that they were compiled from, and ``litert-npu.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import SourceError
from convertkit.targets.litert_npu.chips import CHIPS

FACTS = "litert-npu.json"
BEFORE = "model.tflite"


def file_for(soc: str) -> str:
    """The file for a chip."""
    return f"model_{soc}.tflite"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was compiled, by what and for which chips, and the digests of all files."""

    compiler: str
    socs: tuple[str, ...]
    sha256: Mapping[str, str]


def write_facts(facts: Facts, folder: Path) -> None:
    """``litert-npu.json``."""
    (folder / FACTS).write_text(json.dumps(asdict(facts), indent=1) + "\n", encoding="utf-8")


def read_facts(folder: Path) -> Facts:
    """Of a package; ``SourceError`` where ``litert-npu.json`` is not what an export writes."""
    try:
        found: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        facts = Facts(**{**found, "socs": tuple(found["socs"])})
        if any(soc not in CHIPS for soc in facts.socs) or not isinstance(facts.sha256, dict):
            raise ValueError("it names chips that there are not")
        if not facts.socs or not {BEFORE, *map(file_for, facts.socs)} <= set(facts.sha256):
            raise ValueError("it does not name all files")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SourceError(f"{FACTS} beside the model is not what an export writes: {error}") from error
    return facts


def checked(folder: Path) -> Facts:
    """The same; ``SourceError`` where a file of the package is another one than was delivered."""
    facts = read_facts(folder)
    for name, digest in facts.sha256.items():
        path = folder / name
        if Path(name).name != name or not path.is_file() or sha256_of(path) != digest:
            raise SourceError(f"{name} is not the file that {FACTS} tells of")
    return facts


def compiled_from(artifact: Artifact) -> Artifact:
    """The file that was compiled."""
    path = artifact.path.parent / BEFORE
    return Artifact(path, "tflite", artifact.inputs, artifact.outputs, sha256_of(path), artifact.made_by)
