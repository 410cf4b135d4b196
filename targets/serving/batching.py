"""Whether a server may put several requests into one call: dimensions that agree, and outputs that do not mix."""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array, Artifact, Dim
from convertkit.stage import FLOAT32, Feed, Runner

_ALLOWED = FLOAT32.relative or 0.0


def batch_dimension(artifact: Artifact) -> Dim | None:
    """The dynamic dimension that is the first one of every input and output, and nowhere else; None without one."""
    shapes = [spec.shape for spec in (*artifact.inputs, *artifact.outputs)]
    first = {shape[0] if shape else None for shape in shapes}
    if len(first) != 1:
        return None
    (name,) = first
    if not isinstance(name, str) or any(name in shape[1:] for shape in shapes):
        return None
    return name


def mixing(runner: Runner, artifact: Artifact, first: Feed, second: Feed) -> str:
    """Why a server may not put several requests into one call, empty where it may.

    ``first`` and ``second`` are calls of one sample, in the source's layout.  A model that normalises over its batch,
    or that ranks all candidates of a call, gives other answers to two requests in one call than to each alone.
    """
    if batch_dimension(artifact) is None:
        return "its inputs and outputs do not share a dynamic first dimension"
    if any(value.shape != second[name].shape for name, value in first.items()):
        second = {name: _reversed(value) for name, value in first.items()}
    both = {name: np.concatenate([value, second[name]]) for name, value in first.items()}
    alone, beside, together = runner.run(first), runner.run(second), runner.run(both)
    for spec in artifact.outputs:
        apart = np.concatenate([alone[spec.name], beside[spec.name]])
        if apart.shape != together[spec.name].shape or not _close(apart, together[spec.name]):
            return f"output {spec.name} of a sample depends on the other samples of the call"
    return ""


def _reversed(value: Array) -> Array:
    """The same elements of each sample in reverse order: another call where two samples differ in their sizes."""
    return value.reshape(len(value), -1)[:, ::-1].reshape(value.shape)


def _close(wanted: Array, got: Array) -> bool:
    if wanted.dtype.kind not in "fc":
        return bool(np.array_equal(wanted, got))
    limit = _ALLOWED * float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    return bool(np.allclose(wanted, got, rtol=0.0, atol=limit, equal_nan=True))
