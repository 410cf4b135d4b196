"""Which tasks an export has: to ONNX, and from there to one target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convertkit.records import Made, Recorded, Verified
from convertkit.stage import Stage
from convertkit.steps.judgement import Judgement
from convertkit.steps.make import Make
from convertkit.steps.recorded import RecordArtifact
from convertkit.steps.stages import StageRef
from convertkit.steps.verify import Verify
from convertkit.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Link:
    """One step: what makes it, what runs it, what verifies it."""

    make: Task[Made]
    recorded: Task[Recorded]
    verify: Task[Verified]


@dataclass(frozen=True, slots=True)
class Next:
    """A stage that is to follow; a lossy one may take an hour, and waits until the step before it is verified."""

    ref: StageRef
    lossy: bool

    @classmethod
    def of(cls, ref: StageRef, stage: Stage) -> Next:
        return cls(ref, stage.tolerance.lossy)


def first(make: Task[Made], source: Task[Recorded], judgement: Judgement) -> Link:
    """The step that follows the source itself."""
    recorded = RecordArtifact(make, source)
    return Link(make, recorded, Verify(make, recorded, source, source, judgement))


def chain(
    start: Link,
    source: Task[Recorded],
    following: Sequence[Next],
    judgement: Judgement,
    *,
    data: str | None = None,
    patient: bool = False,
    after: Sequence[Task[Any]] = (),
) -> tuple[Link, ...]:
    """A link for each of ``following``, which begin where ``start`` ends.

    A lossless stage is made while the step before it is still being verified; not where that is lossy, or a model so
    large that two steps at a time would need the memory of both (``patient``).  ``data`` is the digest of the samples
    that stages may read, ``after`` what lossy ones wait for besides.
    """
    links, last = list[Link](), start
    for each in following:
        guard = last.verify if each.lossy or patient else None
        make = Make(each.ref, last.make, guard, data, tuple(after) if each.lossy else ())
        recorded = RecordArtifact(make, source)
        verify = Verify(make, recorded, source, last.recorded, judgement, last.verify)
        last = Link(make, recorded, verify)
        links.append(last)
    return tuple(links)
