"""The task that measures the machine at hand, for ``--device this``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from convertkit import plugins
from convertkit.operators import MeasuringTarget
from convertkit.recipe import THIS, ExportOptions, MeasuredDevice
from convertkit.stage import Target
from convertkit.steps import live
from convertkit.tasks.scheduler import Scheduler
from convertkit.tasks.task import Context, Task


def with_measured(
    options: ExportOptions, targets: Sequence[Target], scheduler: Scheduler, described: Task[Any]
) -> ExportOptions:
    """``options`` with the tables of this machine where they ask for them: of a cache, or measured now.

    Not before the source is ``described``: what cannot be read is told at once.
    """
    able = [each.name for each in targets if isinstance(each, MeasuringTarget)]
    if THIS not in options.device or not able:
        return options
    scheduler.result(described)
    return replace(options, measured=tuple(_measured(name, scheduler) for name in able))


def _measured(target: str, scheduler: Scheduler) -> MeasuredDevice:
    task = MeasureDevice(target)
    scheduler.hold(task)
    try:
        return scheduler.run(task)
    finally:
        scheduler.release(task)


@dataclass(frozen=True, slots=True, eq=False)
class MeasureDevice(Task[MeasuredDevice]):
    """What a target's kernels take here.

    Its result is made of times and is looked up all the same: files that are made by the same tables are the same.
    """

    target: str
    keeps = MeasuredDevice
    alone = True

    @property
    def title(self) -> str:
        return "measuring this machine"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return ()

    @property
    def packages(self) -> tuple[str, ...]:
        return (live.package_of(plugins.target(self.target)),)

    def decides(self) -> Mapping[str, object] | None:
        return {"target": self.target, "machine": dict(self._measuring().machine())}

    def run(self, given: tuple[Any, ...], context: Context) -> MeasuredDevice:
        """Measure, in less than a minute."""
        context.progress.status("measuring what kernels cost on this machine")
        target = self._measuring()
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        return MeasuredDevice(self.target, target.machine()["name"], when, target.measure_here())

    def _measuring(self) -> MeasuringTarget:
        target = plugins.target(self.target)
        assert isinstance(target, MeasuringTarget)
        return target
