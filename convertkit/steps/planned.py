"""Which stages an export to one target has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convertkit import plugins
from convertkit.defects import blamed
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from convertkit.steps import live
from convertkit.steps.describe import Described, with_sizes
from convertkit.steps.stages import choices, steps_of
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True)
class Planned:
    """A stage that is to run: its place among those of its export, its name, whether it changes numerics on purpose."""

    place: int | str
    name: str
    lossy: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages behind the canonical ONNX, in order."""

    stages: tuple[Planned, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlanStages(Task[Plan]):
    """Which stages an export to one target has; building them tells early where one lacks something."""

    described: Task[Described]
    options: ExportOptions
    target: str
    data: str | None
    """The digest of the samples that stages may read."""
    keeps = Plan

    @property
    def title(self) -> str:
        return f"planning {self.target}"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.described,)

    def decides(self) -> Mapping[str, object] | None:
        return {"data": self.data, **choices(self.options, self.target, whole=True)}

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(live.package_of(each) for each in (*plugins.passes(), plugins.target(self.target)))

    def run(self, given: tuple[Any, ...], context: Context) -> Plan:
        source: Described = given[0]
        data = live.calibration(self.options, with_sizes(source.artifact, self.options).inputs, context.resources)
        target = plugins.target(self.target)
        built = BuildContext(self.options, target, source.artifact.sha256, data, context.progress)
        with blamed(f"the stages of target {target.name}", target, *plugins.passes()):
            stages = steps_of(built, target)
        return Plan(tuple(Planned(place, each.name, each.tolerance.lossy) for place, each in stages.items()))
