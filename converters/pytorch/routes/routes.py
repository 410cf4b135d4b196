"""The routes from a loaded model to an ONNX file (each runs in a fork of the worker)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch.describe.embedding_bags import has_bags
from convertkit.converters.pytorch.model.leaves import Leaf, from_json
from convertkit.converters.pytorch.model.state import Slot, lifted, slots_from_json
from convertkit.converters.pytorch.model.subject import Parameter, Subject, value_for
from convertkit.converters.pytorch.routes import exporting, legacy
from convertkit.converters.pytorch.routes.flat import is_constant
from convertkit.converters.pytorch.routes.packing import refuse_packing
from convertkit.errors import Unsupported

LIGHT = frozenset({"torchscript-exporter", "script", "trace"})
"""Routes that do without what torch.export imports."""


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt: the model, its interface, an example at which it computes, and the file to write."""

    subject: Subject
    leaves: tuple[Leaf, ...]
    outputs: tuple[str, ...]
    slots: tuple[Slot, ...]
    feed: Mapping[str, Array]
    target: str


def attempt(subject: Subject, params: Mapping[str, Any], feed: Mapping[str, Array]) -> None:
    """Take one route to the file ``params["target"]``; raises whatever the exporter raises."""
    job = Job(
        subject,
        from_json(params["leaves"]),
        tuple(params["outputs"]),
        slots_from_json(params["slots"]),
        feed,
        params["target"],
    )
    _ROUTES[params["route"]](job)


def _torchscript(job: Job) -> None:
    """Torch's TorchScript-based exporter: the fastest, and at home with loops and branches on data."""
    if lifted(job.slots):
        raise Unsupported("this route does not see state")
    if any(leaf.scalar and not is_constant(leaf) for leaf in job.leaves):
        raise Unsupported("this route takes no Python numbers as inputs")
    if has_bags(job.subject):
        raise Unsupported("this route exports EmbeddingBag as a loop, which gives NaN for empty bags")
    legacy.export(job.subject, job.leaves, job.outputs, job.feed, job.target)


def _export(job: Job) -> None:
    """torch.export of the module, or of a replay of its TorchScript."""
    refuse_packing(job.subject)
    exporting.export(job.subject, job.leaves, job.outputs, job.slots, job.feed, job.target)


def _program(job: Job) -> None:
    """An exported program as it is."""
    if lifted(job.slots):
        raise Unsupported("this route does not see state")
    if job.subject.exported_batch and any(isinstance(dim, str) for leaf in job.leaves for dim in leaf.shape):
        raise Unsupported("the program holds its batch as a number")
    exporting.write_program(job.subject.program, [leaf.name for leaf in job.leaves], job.outputs, job.target)


def _script(job: Job) -> None:
    """torch.jit.script of an eager module: keeps Python's own loops and branches on data."""
    _torchscript(_as_torchscript(job, torch.jit.script(job.subject.module)))


def _replayed_script(job: Job) -> None:
    """The same, executed operator by operator under torch.export: numbers as state, operators of inference."""
    _export(_as_torchscript(job, torch.jit.script(job.subject.module)))


def _trace(job: Job) -> None:
    """torch.jit.trace of an eager module: what one example does; the numbers say whether that is all."""
    _torchscript(_traced(job))


def _replayed_trace(job: Job) -> None:
    """The same, executed operator by operator under torch.export: Python's decisions are gone, sizes are symbols."""
    _export(_traced(job))


def _traced(job: Job) -> Job:
    values = {leaf.name: value_for(leaf, job.feed[leaf.name]) for leaf in job.leaves}
    args, kwargs = job.subject.arguments(job.leaves, values)
    if kwargs:
        raise Unsupported("this route takes positional arguments only")
    torch.backends.mha.set_fastpath_enabled(False)
    return _as_torchscript(job, torch.jit.trace(job.subject.module, args, check_trace=False, strict=False))


def _as_torchscript(job: Job, script: Any) -> Job:
    parameters = tuple(Parameter(each.name, each.type, each.required, each.keyword) for each in job.subject.parameters)
    return Job(Subject(script, parameters, "torchscript"), job.leaves, job.outputs, job.slots, job.feed, job.target)


_ROUTES = {
    "torchscript-exporter": _torchscript,
    "replay": _export,
    "torch.export": _export,
    "program": _program,
    "script": _script,
    "script-replay": _replayed_script,
    "trace-replay": _replayed_trace,
    "trace": _trace,
}
