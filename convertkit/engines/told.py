"""What ``convertkit engines`` says of engines, for people and as JSON."""

from __future__ import annotations

from typing import Any

from convertkit import plugins
from convertkit.engines.engine import Engine
from convertkit.engines.environments import installed, place, state

_STATES = {"outdated": "installed for other versions; install it again", "absent": "not installed"}


def every() -> tuple[Engine, ...]:
    """All engines that convertkit and its plugins know, in the order of their names."""
    return tuple(plugins.engine(name) for name in plugins.engine_names())


def as_json(engine: Engine) -> dict[str, Any]:
    """An engine as ``--json`` prints it."""
    found = installed(engine)
    return {
        "name": engine.name,
        "summary": engine.summary,
        "state": state(engine),
        "folder": str(place(engine)),
        "size_bytes": None if found is None else found.size_bytes,
        "licence": engine.licence,
        "download_mb": engine.download_mb,
        "disk_mb": engine.disk_mb,
        "packages": engine.packages,
        "hindrance": engine.hindrance or None,
    }


def lines(engine: Engine, width: int) -> list[str]:
    """An engine for people: its state, then what it is, then what installing it takes."""
    found = installed(engine)
    there = _STATES.get(state(engine), "") if found is None else f"installed, {found.size_bytes / 1e6:.0f} MB"
    rows = [engine.summary, costs(engine), *([engine.hindrance] if engine.hindrance else [])]
    return [f"{engine.name:<{width}}  {there}", *(f"{'':<{width}}  {row}" for row in rows)]


def costs(engine: Engine) -> str:
    """What installing it takes, and its licence."""
    return f"{engine.download_mb} MB to download, {engine.disk_mb} MB on disk; {engine.licence}"
