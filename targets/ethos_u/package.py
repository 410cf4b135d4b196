"""What lies in the package: the file for the NPU, the one that it was compiled from, and ``ethos-u.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import SourceError
from convertkit.operators import Estimate

FACTS = "ethos-u.json"
BEFORE = "model.tflite"
AFTER = "model_vela.tflite"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was compiled, by what, for which device, and what that estimates; digests by file.

    ``npu`` are the operators of the file that the NPU computes and ``cpu`` those that it does not: each with its
    kind and its first output.
    """

    compiler: str
    accelerator: str
    system_config: str
    memory_mode: str
    cycles: int
    ms: float
    memory_bytes: Mapping[str, int]
    npu: tuple[tuple[str, str], ...]
    cpu: tuple[tuple[str, str], ...]
    sha256: Mapping[str, str]

    def estimate(self) -> Estimate:
        """For the report."""
        device = f"{self.accelerator} ({self.system_config}, {self.memory_mode})"
        memory = dict(self.memory_bytes)
        return Estimate(device, self.ms, (), by=self.compiler, cycles=self.cycles, memory_bytes=memory)


def write_facts(facts: Facts, folder: Path) -> None:
    """``ethos-u.json``."""
    (folder / FACTS).write_text(json.dumps(asdict(facts), indent=1) + "\n", encoding="utf-8")


def read_facts(folder: Path) -> Facts:
    """Of a package; ``SourceError`` where ``ethos-u.json`` is not what an export writes."""
    try:
        found: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        pairs = {side: tuple((str(kind), str(name)) for kind, name in found[side]) for side in ("npu", "cpu")}
        return Facts(**{**found, **pairs})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SourceError(f"{FACTS} beside {AFTER} is not what an export writes: {error}") from error


def compiled_from(artifact: Artifact) -> Artifact:
    """The file that Vela compiled; ``SourceError`` where a file of the package is another one than was delivered."""
    folder = artifact.path.parent
    for name, digest in read_facts(folder).sha256.items():
        path = folder / name
        if not path.is_file() or sha256_of(path) != digest:
            raise SourceError(f"{name} is not the file that {FACTS} tells of")
    path = folder / BEFORE
    return Artifact(path, "tflite", artifact.inputs, artifact.outputs, sha256_of(path), artifact.made_by)
