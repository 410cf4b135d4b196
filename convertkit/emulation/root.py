"""The arm64 root: a folder with Python, LiteRT and ONNX Runtime for arm64, and the emulator that executes them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from convertkit.errors import MissingTool

VARIABLE = "CONVERTKIT_ARM64_ROOT"
RECORD = "versions.json"
PACKAGES = "opt/packages"
SET_UP = "convertkit engines install arm64"
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")
RUNTIMES = {"litert": "ai-edge-litert", "onnxruntime": "onnxruntime"}
"""The distributions of runtimes by their names in :class:`~convertkit.stage.Portable`."""


@dataclass(frozen=True, slots=True)
class Root:
    """A root that is complete: ``versions`` of its distributions by name, ``python`` the path of its interpreter."""

    path: Path
    python: Path
    versions: Mapping[str, str]


def emulator() -> Path:
    """QEMU's user emulation of arm64; ``MissingTool`` where it is not installed."""
    for name in EMULATORS:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    raise MissingTool(f"{EMULATORS[0]} is not installed and --arm64 needs it; run: apt-get install qemu-user")


def installed() -> dict[str, str]:
    """The runtimes that are installed here, by distribution: the root has the same versions."""
    found = dict[str, str]()
    for name in RUNTIMES.values():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def place() -> Path:
    """Where the root for the versions installed here lies: ``$CONVERTKIT_ARM64_ROOT``, else the user's cache."""
    if given := os.environ.get(VARIABLE):
        return Path(given).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    key = "-".join(part for pair in installed().items() for part in pair)
    return cache.absolute() / "convertkit" / f"arm64-{key}"


def root(runtime: str) -> Root:
    """The root that executes ``runtime``; ``MissingTool`` where there is none, or one of another version."""
    path, distribution = place(), RUNTIMES[runtime]
    try:
        told = json.loads((path / RECORD).read_text(encoding="utf-8"))
        found = Root(path, path / told["python"], dict(told["versions"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MissingTool(f"there is no arm64 root in {path}; run: {SET_UP}") from error
    here, there = installed().get(distribution), found.versions.get(distribution)
    if here != there:
        raise MissingTool(
            f"the arm64 root in {path} has {distribution} {there or 'not at all'}, this machine {here}; run: {SET_UP}"
        )
    return found
