"""A worker in another environment: its Python, and what it is lent of this one.

Our own packages need not be installed there, and what is installed here is not seen there, so that versions which
exclude each other can take part in one export.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

OURS = "convertkit"
SAME_ADDRESSES = "CONVERTKIT_SAME_ADDRESSES"
"""A variable for a worker elsewhere: its memory lies at the same addresses in every run, where Linux lets it."""
_BEGINNING = Path(__file__).with_name("lending.py")
_OF_THIS_PYTHON = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"})


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another environment: ``python`` is its interpreter, ``lent`` the top-level packages of this one that it sees."""

    python: Path
    lent: tuple[str, ...] = ()

    def command(self, service: str, framework: str | None) -> list[str]:
        """What starts a worker there; ``service`` is the dotted module that it will serve."""
        names = dict.fromkeys((OURS, service.partition(".")[0], *self.lent))
        lent = [f"{name}={folder}" for name, folder in places(names).items()]
        return [str(self.python), "-P", "-s", str(_BEGINNING), framework or "", *lent]


def places(names: Mapping[str, object]) -> dict[str, str]:
    """The folders in which these top-level packages lie here, by their names; those that are not here are left out."""
    return dict(_found(names))


def _found(names: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name in names:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            yield name, str(Path(next(iter(spec.submodule_search_locations))).parent)
        elif spec is not None and spec.origin is not None:
            yield name, str(Path(spec.origin).parent)


def environment(here: Mapping[str, str]) -> dict[str, str]:
    """The variables ``here`` without those that are about this Python."""
    return {name: value for name, value in here.items() if name not in _OF_THIS_PYTHON}
