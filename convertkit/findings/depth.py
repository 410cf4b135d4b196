"""Where along a model a lossy step's noise comes in: signal over noise of every value that both graphs have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.errors import ToolError
from convertkit.findings.values import Level
from convertkit.onnx.load import load_own
from convertkit.onnx.runner import OnnxRunner
from convertkit.stage import Feed
from convertkit.state import with_state

_MOST = 120
_MOST_BYTES = 128 << 20
"""Of one graph's values at a time."""


def along_depth(before: Artifact, after: Artifact, feed: Feed) -> tuple[Level, ...]:
    """Levels of the float values that ONNX graphs ``before`` and ``after`` a step share, on one set of inputs.

    Noise adds up on the way, so the last one is that of the whole.  At most 120 values, evenly spread; none where the
    graphs cannot be run so, as with values inside of bodies alone.
    """
    shared = _spread(_shared(before, after), feed)
    if not shared:
        return ()
    names = tuple(name for name, _ in shared)
    try:
        expected, got = (_values(artifact, names, feed) for artifact in (before, after))
    except ToolError:  # a value of a form that cannot be an output: the picture is left out, nothing depends on it
        return ()
    return tuple(Level(name, kind, _level(expected[name], got[name])) for name, kind in shared)


def _shared(before: Artifact, after: Artifact) -> list[tuple[str, str, int]]:
    """Name, operator and elements of values that both compute, in the order of the first."""
    later = {str(value.name) for value in _computed(load_own(after.path))}
    return [
        (str(value.name), node.op_type, _elements(value))
        for value in _computed(load_own(before.path))
        if value.name in later and (node := value.producer()) is not None
    ]


def _computed(model: ir.Model) -> Iterator[ir.Value]:
    for node in model.graph:
        yield from (value for value in node.outputs if value.dtype == ir.DataType.FLOAT and value.name)


def _elements(value: ir.Value) -> int:
    return math.prod(size if isinstance(size, int) else 1 for size in value.shape) if value.shape is not None else 1


def _spread(found: Sequence[tuple[str, str, int]], feed: Feed) -> list[tuple[str, str]]:
    """As many, evenly, as fit; a dynamic dimension is taken for as long as the longest of the inputs."""
    longest = max((max(value.shape, default=1) for value in feed.values()), default=1)
    total = 4 * sum(elements for *_, elements in found) * (longest if len(found) else 1)
    most = min(_MOST, len(found), max(1, int(len(found) * _MOST_BYTES / total)) if total else 0)
    return [found[(index + 1) * len(found) // most - 1][:2] for index in range(most)]


def _values(artifact: Artifact, names: tuple[str, ...], feed: Feed) -> Mapping[str, Array]:
    own = {spec.name for spec in artifact.outputs}
    wanted = replace(artifact, outputs=tuple(TensorSpec(name, (), "float32") for name in names))
    full = with_state(artifact, feed)
    with OnnxRunner(wanted, unread=tuple(name for name in names if name not in own)) as runner:
        return runner.run(full)


def _level(expected: Array, got: Array) -> float:
    if expected.shape != got.shape:
        return math.nan
    finite = np.isfinite(expected) & np.isfinite(got)
    wanted, found = expected[finite].astype(np.float64), got[finite].astype(np.float64)
    signal, noise = float(np.square(wanted).sum()), float(np.square(found - wanted).sum())
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf
