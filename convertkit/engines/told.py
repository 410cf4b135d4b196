"""What ``convertkit engines`` says of engines, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from convertkit import plugins
from convertkit.engines.engine import Engine, costs
from convertkit.engines.environments import State, installed, place, state

_STATES = {"outdated": "installed for other versions; install it again", "absent": "not installed"}


@dataclass(frozen=True, slots=True)
class Told:
    """An engine, or whatever else is installed in a folder of its own; ``size_bytes`` is None where it is not there."""

    name: str
    summary: str
    state: State
    folder: str
    size_bytes: int | None
    licence: str
    download_mb: int
    disk_mb: int
    packages: Mapping[str, str]
    hindrance: str | None

    @property
    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)

    @property
    def costs(self) -> str:
        """What installing it takes, and its licence."""
        return costs(self.download_mb, self.disk_mb, self.licence)

    @property
    def before_installing(self) -> str:
        """What is said before anything is fetched."""
        return f"{self.name}: {self.summary}\n{self.costs}\ninto {self.folder}"

    def lines(self, width: int) -> list[str]:
        """For people: its state, then what it is, then what installing it takes."""
        there = _STATES.get(self.state, "installed")
        size = "" if self.size_bytes is None or self.state != "installed" else f", {self.size_bytes / 1e6:.0f} MB"
        rows = [self.summary, self.costs, *([self.hindrance] if self.hindrance else [])]
        return [f"{self.name:<{width}}  {there}{size}", *(f"{'':<{width}}  {row}" for row in rows)]


def every() -> tuple[Told, ...]:
    """All engines that convertkit and its plugins know, in the order of their names."""
    return tuple(of(plugins.engine(name)) for name in plugins.engine_names())


def of(engine: Engine) -> Told:
    """What there is to say of an engine."""
    found = installed(engine)
    return Told(
        engine.name,
        engine.summary,
        state(engine),
        str(place(engine)),
        None if found is None else found.size_bytes,
        engine.licence,
        engine.download_mb,
        engine.disk_mb,
        engine.packages,
        engine.hindrance or None,
    )
