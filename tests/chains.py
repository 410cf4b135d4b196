"""Stages of a test's own, one after the other, verified as those of an export are."""

from dataclasses import dataclass, field
from typing import Any

from convertkit.artifact import Artifact
from convertkit.errors import ParityError
from convertkit.onnx.runner import OnnxRunner
from convertkit.parity.feeds import proof_feeds
from convertkit.parity.replay import record
from convertkit.progress import Silent
from convertkit.records import Recorded, StepRecord
from convertkit.steps import plan
from convertkit.steps.describe import Described
from convertkit.steps.judgement import Judgement
from convertkit.steps.make import Make
from convertkit.steps.stages import OfStage
from convertkit.steps.verify import failure
from convertkit.tasks.local import Local
from convertkit.tasks.resources import Resources
from convertkit.tasks.scheduler import Scheduler
from convertkit.tasks.store import Store
from convertkit.tasks.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Given(Task[Any]):
    """A value that is known."""

    value: Any
    title = "given"
    needs = ()
    keeps = None

    def decides(self):
        return None

    def run(self, given, context):
        return self.value


@dataclass
class Chain:
    """How far the stages came."""

    artifact: Artifact
    steps: list[StepRecord] = field(default_factory=list)
    failure: ParityError | None = None


def run(source, *stages, gated=False, workdir=None, jobs=2, on_step=None, patient=False):
    """Run stages on an ONNX artifact until one is not verified."""
    with OnnxRunner(source) as runner:
        recording = record("onnx (source)", source, runner, proof_feeds(source.inputs, None, 0))
    recorded = Given(Recorded(recording))
    start = Make(OfStage(stages[0]), Given(Described(source)))
    judgement = Judgement(gated)
    first = plan.first(start, recorded, judgement)
    rest = [plan.Next.of(OfStage(stage), stage) for stage in stages[1:]]
    links = (first, *plan.chain(first, recorded, rest, judgement, patient=patient))
    workdir = workdir or source.path.parent / "work"
    found = Chain(source)
    with (
        Resources() as resources,
        Store.temporary(workdir) as store,
        Scheduler(Local(jobs), store, resources, Silent(), jobs, 1 << 30) as scheduler,
    ):
        for link in links:
            scheduler.hold(link.verify)
            scheduler.submit(link.verify)
        for link in links:
            step = scheduler.result(link.verify).step
            found.steps.append(step)
            found.artifact = step.artifact
            if on_step is not None:
                on_step(step)
            found.failure = failure(step)
            if found.failure is not None:
                break
    return found
