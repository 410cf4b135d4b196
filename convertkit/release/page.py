"""``index.html`` of a release: one page that works from the disk, with a link into each report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import jinja2

from convertkit import __version__
from convertkit.release.plots import Plot, plots
from convertkit.release.result import CellResult, change_text
from convertkit.text import size_text


@dataclass(frozen=True, slots=True)
class _Shown:
    """The cells of one model."""

    name: str
    anchor: str
    cells: tuple[CellResult, ...]
    plots: tuple[Plot, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing that is required has failed."""
        return all(each.passed for each in self.cells if each.required)


def render(name: str, version: str | None, passed: bool, cells: Sequence[CellResult]) -> str:
    """The page; every text in it is escaped."""
    models = list(dict.fromkeys(each.model for each in cells))
    shown = [_model(f"model-{number}", model, cells) for number, model in enumerate(models, 1)]
    columns = list(dict.fromkeys((each.target, each.precision) for each in cells))
    return _page().render(
        name=name,
        version=version,
        convertkit=__version__,
        passed=passed,
        cells=cells,
        models=shown,
        columns=columns,
        found={(each.model, each.target, each.precision): each for each in cells},
        weighed=any(each.memory_bytes is not None for each in cells),
        compared=any(each.change for each in cells),
    )


def _model(anchor: str, model: str, cells: Sequence[CellResult]) -> _Shown:
    own = tuple(each for each in cells if each.model == model)
    return _Shown(model, anchor, own, plots(own))


@cache
def _page() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader("convertkit.release", ""), jinja2.PackageLoader("convertkit.report", "")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
    )
    environment.filters.update(size=size_text, change=change_text)
    return environment.get_template("release.html")
