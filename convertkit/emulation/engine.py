"""The arm64 root as ``convertkit engines`` knows it: not a Python environment, but installed and removed like one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from convertkit.emulation.root import RECORD, RUNTIMES, VARIABLE, emulator, installed, place, root
from convertkit.emulation.setting_up import DISK_MB, DOWNLOAD_MB, missing_tool
from convertkit.engines.environments import State
from convertkit.engines.told import Told
from convertkit.errors import DeliveryError, MissingTool

NAME = "arm64"
_SUMMARY = "LiteRT and ONNX Runtime for arm64, in QEMU: `convertkit verify --arm64` runs artifacts in them"
_LICENCE = (
    "PSF, LGPL, GPL and those of Debian's other packages (in usr/share/doc); wheels Apache-2.0, MIT, BSD, MPL-2.0, PSF"
)


def told() -> Told:
    """Whether it is there, in the versions of the runtimes that are installed here, and what it takes."""
    here = state()
    size = _size_bytes(place()) if here == "installed" else None
    there = str(place())
    return Told(NAME, _SUMMARY, here, there, size, _LICENCE, DOWNLOAD_MB, DISK_MB, installed(), _hindrance())


def state() -> State:
    """*Outdated* where only a root of other versions is there."""
    here = installed()
    names = [name for name, distribution in RUNTIMES.items() if distribution in here]
    try:
        for name in names:
            root(name)
    except MissingTool:
        return "outdated" if _roots() else "absent"
    return "installed" if names else "absent"


def remove() -> int:
    """Remove every root, of older versions, too; how many there were."""
    found = _roots()
    for each in found:
        try:
            _empty(each.resolve())
            if each.is_symlink():
                each.unlink()
        except OSError as error:
            raise DeliveryError(f"{each} cannot be removed: {error.strerror}") from error
    return len(found)


def _empty(folder: Path) -> None:
    """Remove a root; its record says first that nothing is in it and goes last, so that what is left can be removed."""
    record = folder / RECORD
    record.write_text(json.dumps({"python": "", "versions": {}}), encoding="utf-8")
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each != record:
            each.unlink()
    record.unlink()
    folder.rmdir()


def _roots() -> list[Path]:
    """Folders that ``set_up`` has made, by their records."""
    there = place()
    candidates = [there] if os.environ.get(VARIABLE) else sorted(there.parent.glob(f"{NAME}-*"))
    return [each for each in candidates if _is_root(each)]


def _is_root(folder: Path) -> bool:
    try:
        return {"python", "versions"} <= set(json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return False


def _hindrance() -> str | None:
    try:
        emulator()
    except MissingTool as missing:
        return str(missing)
    return missing_tool()


def _size_bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
