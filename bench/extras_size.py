"""What each extra adds to an installed core, measured: ``python bench/extras_size.py`` writes the table.

The packages are those of this environment, in the versions of constraints.txt; sizes are those of the files that pip
has recorded.  An extra that is not installed here, or not in full, gets no size.
"""

from __future__ import annotations

import importlib.metadata
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parents[1]
TABLE = HERE / "convertkit" / "looking" / "extras.json"
OURS = "convertkit-ml"
NO_USERS = ("dev", "all")


def own() -> dict[str, list[str]]:
    """Our own extras as pyproject.toml has them, the core as an extra without a name."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def wanted(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    """What a package requires with these extras, on this system."""
    ours = [text for extra in ("", *extras) for text in own()[extra]]
    for text in ours if name == OURS else importlib.metadata.requires(name) or ():
        each = Requirement(text)
        chosen = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        if each.marker is None or any(each.marker.evaluate(environment) for environment in chosen):
            yield each


def closure(name: str, extras: frozenset[str], found: set[tuple[str, frozenset[str]]]) -> set[str]:
    """All packages that come with one; ``PackageNotFoundError`` where one is missing."""
    if (name, extras) in found:
        return set()
    found.add((name, extras))
    names = {name}
    for each in wanted(name, extras):
        names |= closure(canonicalize_name(each.name), frozenset(each.extras), found)
    return names


def size_bytes(name: str) -> int:
    """Of the files of one package."""
    files = importlib.metadata.files(name) or []
    paths = (Path(str(file.locate())) for file in files)
    return sum(path.stat().st_size for path in paths if path.is_file())


def main() -> None:
    """Measure and write."""
    core = closure(OURS, frozenset(), set())
    table: dict[str, dict[str, int] | None] = {}
    for extra in sorted(set(own()) - {"", *NO_USERS}):
        try:
            added = closure(OURS, frozenset({extra}), set()) - core
        except importlib.metadata.PackageNotFoundError as error:
            print(f"{extra}: {error} is not installed here")
            table[extra] = None
            continue
        table[extra] = {"packages": len(added), "megabytes": round(sum(map(size_bytes, added)) / 1e6)}
        print(extra, table[extra], sorted(added))
    TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
