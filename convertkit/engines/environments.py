"""Where environments of engines lie, and whether one is ready.

FOLDER/NAME-KEY/              a virtual environment; KEY tells its requirements, Python and system
FOLDER/NAME-KEY/engine.json   what was installed; written last, so that it stands in whole environments alone
FOLDER/lock                   held by whoever installs or removes
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from convertkit import plugins
from convertkit.engines.engine import Engine
from convertkit.errors import MissingEngine, missing_framework
from convertkit.workers.elsewhere import Elsewhere, places

VARIABLE = "CONVERTKIT_ENGINES"
MARK = "engine.json"
State = Literal["installed", "outdated", "absent"]


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that is whole: its folder, and its size in bytes when it was made."""

    folder: Path
    size_bytes: int

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


def folder() -> Path:
    """Where they lie: what ``CONVERTKIT_ENGINES`` names, else ``convertkit/engines`` in the user's cache folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "convertkit" / "engines"


def place(engine: Engine) -> Path:
    """The folder of the engine's environment, whether it is there or not."""
    return folder() / f"{engine.name}-{engine.key}"


def installed(engine: Engine) -> Installed | None:
    """The environment that the engine's requirements describe; None where there is none, or not a whole one."""
    there = place(engine)
    try:
        told = json.loads((there / MARK).read_text(encoding="utf-8"))
        found = Installed(there, int(told["size_bytes"]))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):  # a record that was cut off, too
        return None
    return found if found.python.exists() else None  # its interpreter may have gone with an upgrade of the system


def others(name: str) -> list[Path]:
    """Every folder of the engine called ``name``, of whatever requirements, whole or not."""
    return sorted(each for each in folder().glob(f"{name}-*") if _is_key(each.name.removeprefix(f"{name}-")))


def _is_key(text: str) -> bool:
    return len(text) == 12 and set(text) <= set("0123456789abcdef")


def state(engine: Engine) -> State:
    """Whether the environment is there; *outdated* where only one of other requirements or another Python is."""
    if installed(engine) is not None:
        return "installed"
    return "outdated" if any((each / MARK).is_file() for each in others(engine.name)) else "absent"


def elsewhere(name: str) -> Elsewhere:
    """What a worker of the engine called ``name`` is started with.

    Raises ``MissingEngine`` where its environment is not there, ``MissingFramework`` where what it is lent is not.
    """
    engine: Engine = plugins.engine(name)
    found = installed(engine)
    if found is None:
        raise MissingEngine(name, outdated=state(engine) == "outdated", costs=engine.costs)
    here = places(dict.fromkeys(engine.lends))
    for package in engine.lends:
        if package not in here and (missing := missing_framework(package)) is not None:
            raise missing
    return Elsewhere(found.python, tuple(here))
