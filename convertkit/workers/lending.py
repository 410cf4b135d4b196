"""How a worker in another environment begins: ``python lending.py FRAMEWORK NAME=FOLDER…``, by its path.

Nothing of convertkit is installed there.  Each NAME is a top-level package that is taken from FOLDER, of which nothing
else is.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_SAME_ADDRESSES = "CONVERTKIT_SAME_ADDRESSES"
_ASK, _NO_RANDOM_ADDRESSES = 0xFFFFFFFF, 0x0040000
"""Of Linux's personality(2)."""


class Lent:
    """Finds lent packages, before those of this environment."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package where it was lent, None for any other module."""
        folder = self._folders.get(name) if path is None else None
        return None if folder is None else PathFinder.find_spec(name, [folder])


def at_the_same_addresses() -> None:
    """Begin this process once more, without randomised addresses, where a variable asks for that and Linux lets it.

    Some compilers write memory that they have not set into their files.
    """
    if os.environ.pop(_SAME_ADDRESSES, None) is None or sys.platform != "linux":
        return
    set_personality = ctypes.CDLL(None).personality
    now = set_personality(_ASK)
    if now != -1 and set_personality(now | _NO_RANDOM_ADDRESSES) != -1:
        os.execv(sys.executable, sys.orig_argv)


def main(framework: str, *lent: str) -> None:
    """Serve as :mod:`convertkit.workers.serving` does, with what was lent."""
    sys.meta_path.insert(0, Lent(dict(each.split("=", 1) for each in lent)))
    from convertkit.workers import serving

    serving.main(framework)


if __name__ == "__main__":
    at_the_same_addresses()
    main(*sys.argv[1:])
