"""A recipe as Python: an export for each cell, for those who go on from there by hand."""

from __future__ import annotations

import pprint
from collections.abc import Iterator, Sequence

from convertkit.release.cells import Cell


def script(cells: Sequence[Cell]) -> str:
    """A module that makes every cell; gates other than ``max_drop`` are left to the reader as comments."""
    return "\n".join(_lines(cells)) + "\n"


def _lines(cells: Sequence[Cell]) -> Iterator[str]:
    yield "import convertkit"
    for cell in cells:
        yield ""
        others = {name: limit for name, limit in cell.gates.items() if name != "max_drop"}
        yield f"# {cell.name}" + (f", gates {others}" if others else "")
        yield "convertkit.export("
        for name, value in {**cell.keywords, "output": cell.folder}.items():
            text = pprint.pformat(value, width=100, sort_dicts=False).replace("\n", "\n    ")
            yield f"    {name}={text},"
        yield ")"
