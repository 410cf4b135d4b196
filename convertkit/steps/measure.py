"""Measuring one artifact once all of its steps are verified: quality, latency, operators, interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from convertkit import plugins
from convertkit.findings.values import Findings
from convertkit.recipe import ExportOptions
from convertkit.records import Made, Recorded, Verified
from convertkit.report.jsonable import jsonable
from convertkit.steps import live
from convertkit.steps.describe import Described, with_sizes
from convertkit.steps.recorded import described
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True, eq=False)
class Measure(Task[Findings]):
    """What the report says of the artifact of ``made``; alone, as it takes times."""

    described: Task[Described]
    converted: Task[Made]
    source: Task[Recorded]
    hub: Task[Made]
    made: Task[Made]
    steps: tuple[Task[Verified], ...]
    options: ExportOptions
    target: str
    data: tuple[str | None, ...]
    keeps = Findings
    alone = True

    @property
    def title(self) -> str:
        return f"measuring {self.made.title}"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.described, self.converted, self.source, self.hub, self.made, *self.steps)

    def decides(self) -> Mapping[str, object] | None:
        chosen = self.options
        return {
            "target": self.target,
            "precision": chosen.precision,
            "device": list(chosen.device),
            "measured": jsonable(chosen.measured),
            "label_file": chosen.label_file is not None,
            "data": self.data,
        }

    def run(self, given: tuple[Any, ...], context: Context) -> Findings:
        """Inspect the artifact, run it beside the source on unseen samples, and time it beside its float32 form."""
        from convertkit.findings.measure import Subject, find

        opened, converted, source, hub, made, *steps = given
        artifact = described(opened, converted).artifact
        inputs = with_sizes(artifact, self.options).inputs
        subject = Subject(
            self.options,
            plugins.target(self.target),
            artifact,
            partial(live.runner, self.options, context.resources, context.progress, converted.settled),
            hub.artifact,
            made.artifact,
            [each.step for each in steps],
            live.calibration(self.options, inputs, context.resources),
            live.evaluation(self.options, inputs, context.resources),
            source.recording.feeds[0],
            context.folder,
            context.progress,
        )
        return find(subject)
