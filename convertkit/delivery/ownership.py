"""Which files of a folder an earlier export has written: those alone may be replaced."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from convertkit.artifact import files_of, sha256_of
from convertkit.errors import DeliveryError

MANIFEST = "manifest.json"
KEPT = "kept.json"
"""Lists the files of a failed export that ``--keep-failed`` has kept, as a manifest lists those of a good one."""
REPORTS = ("report.json", "report.html")
RELEASE, SUMS = "release.json", "SHA256SUMS"
"""A release lists its files, reports too, as ``sha256sum`` does; its signature has the same name and ``.sig``."""
FAILED = "failed"
"""Where a failed export leaves its report: ``<DIR>.failed``, or this in a folder that stays."""
SOURCE = "the source"
"""What the model that an export reads is called, among what is precious."""
MARK = ".convertkit-"
"""In the name of every workspace."""


def strangers(folder: Path) -> tuple[str, ...]:
    """What lies below ``folder`` and was not written by an earlier export, or was changed since; sorted names.

    A file is an export's where a manifest lists it with the sha256 that it still has.  Reports hold times, so a
    manifest does not list them; they are known by their names beside one.  Workspaces are not looked at.
    """
    ours = set(_written(folder))
    for child in _entries(folder):
        if child.is_dir() and not child.is_symlink():  # of several targets, or a failed one beside a good one
            ours |= set(_written(child))
    return tuple(path.relative_to(folder).as_posix() for path in _others(_entries(folder), ours, _above(ours)))


def _above(files: Iterable[Path]) -> set[Path]:
    found: set[Path] = set()
    for file in files:
        while (file := file.parent) not in found:
            found.add(file)
    return found


def _others(entries: Iterable[Path], ours: set[Path], above: set[Path]) -> Iterator[Path]:
    for entry in entries:
        if entry in above:
            yield from _others(_entries(entry), ours, above)
        elif entry not in ours:
            yield entry


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder but for workspaces."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(MARK))


def check_ours(folder: Path, title: Path) -> None:
    """Raise ``DeliveryError`` where ``folder``, called ``title``, holds anything that no earlier export wrote."""
    if others := strangers(folder):
        raise DeliveryError(
            f"{title} exists and is not empty: it holds {listed(others)}, which no earlier export wrote as it is "
            "now, and --force replaces only what one wrote\n  try   another --output"
        )


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def list_kept(folder: Path) -> None:
    """Write which files of a failed export are ours, where there is more than its report."""
    kept = [file for file in files_of(folder) if file.name not in REPORTS]
    if kept:
        files = {file.relative_to(folder).as_posix(): {"sha256": sha256_of(file)} for file in kept}
        (folder / KEPT).write_text(json.dumps({"files": files}, indent=2) + "\n", encoding="utf-8")


def check_precious(folder: Path, precious: Mapping[str, str]) -> None:
    """Raise ``DeliveryError`` where ``folder`` holds, or is, one of the files that the export itself reads.

    ``precious`` maps paths to the words for what they are.
    """
    real = folder.resolve()
    for path, title in precious.items():
        if not _exists(path):
            continue
        place = Path(path).resolve()
        if real == place or real in place.parents:
            raise DeliveryError(
                f"{folder} holds {title} {path}, which an export never replaces; choose another --output"
            )


def check_apart(folder: Path, precious: Mapping[str, str]) -> None:
    """Raise ``DeliveryError`` where ``folder`` lies in a source that is a folder, which would hold its own export."""
    real = folder.resolve()
    for path, title in precious.items():
        if title == SOURCE and _exists(path) and Path(path).is_dir() and Path(path).resolve() in real.parents:
            raise DeliveryError(f"{folder} lies in {title} {path}, which would change by it; choose another --output")


def _exists(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except OSError:  # a name that is too long, a folder that is closed: told where it is read
        return False


def _written(folder: Path) -> Iterator[Path]:
    """The files in ``folder`` that an export has written there and nobody has changed."""
    listed = _listed(folder / MANIFEST)
    kept = _listed(folder / KEPT)
    if listed or kept or _failed(folder):
        yield from (folder / name for name in (MANIFEST, KEPT, *REPORTS) if _is_plain(folder / name))
    released = _released(folder)
    if released:
        yield from (folder / name for name in (SUMS, f"{SUMS}.sig", KEPT) if _is_plain(folder / name))
    for name, digest in {**listed, **kept, **released}.items():
        file = folder / name
        if _is_plain(file) and sha256_of(file) == digest:
            yield file


def _listed(manifest: Path) -> Mapping[str, str]:
    """Names and digests that a manifest of ours lists; nothing where there is none, or it is something else."""
    found = _json(manifest)
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        return {}
    if manifest.name == MANIFEST and not {"schema", "convertkit", "artifact"} <= found.keys():
        return {}
    return {str(name): str(entry.get("sha256")) for name, entry in found["files"].items() if isinstance(entry, dict)}


def _released(folder: Path) -> Mapping[str, str]:
    """Names and digests that a release of ours lists; nothing where there is none."""
    release = _json(folder / RELEASE)
    if not isinstance(release, dict) or not {"schema", "convertkit", "cells"} <= release.keys():
        return {}
    if not _is_plain(folder / SUMS):
        return {}
    lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = (line.split("  ", 1) for line in lines if "  " in line)
    return {name: digest for digest, name in pairs if ".." not in Path(name).parts and not Path(name).is_absolute()}


def _failed(folder: Path) -> bool:
    """Whether ``folder`` holds the report of a failed export of ours."""
    report = _json(folder / REPORTS[0])
    return isinstance(report, dict) and report.get("passed") is False and "convertkit" in report


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if _is_plain(path) else None
    except (OSError, ValueError):
        return None


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False
