"""``report.html``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convertkit.report.jsonable import dumps
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True)
class Page:
    """A page of HTML."""

    html: str


@dataclass(frozen=True, slots=True, eq=False)
class DrawPage(Task[Page]):
    """The page that shows a report; ``kept`` where it may serve another export."""

    report: Mapping[str, Any]
    kept: bool
    keeps = Page

    @property
    def title(self) -> str:
        return "writing the report"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return ()

    def decides(self) -> Mapping[str, object] | None:
        """All of the report but what was found in a cache, which the page does not tell."""
        if not self.kept:
            return None
        steps = [{name: value for name, value in step.items() if name != "cached"} for step in self.report["steps"]]
        return {"report": hashlib.sha256(dumps({**self.report, "steps": steps}).encode()).hexdigest()}

    def run(self, given: tuple[object, ...], context: Context) -> Page:
        from convertkit.report.html import render

        return Page(render(self.report))
