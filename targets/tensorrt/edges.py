"""``golden/edges.npz``: edge inputs and what they give, for ``check_gpu.py``.

Polygraphy knows one tolerance for all calls, which a loud input would widen for all others; here each has its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.errors import ToolError
from convertkit.parity.edge_inputs import edge_feeds
from convertkit.parity.feeds import is_brief
from convertkit.parity.golden import Vector
from convertkit.stage import Runner
from convertkit.state import save_arrays
from convertkit.targets.tensorrt.rounding import changed
from convertkit.targets.tensorrt.vectors import MOST_BYTES, allowed, as_json, encoded

_FLOOR = 1e-2
"""Of what a golden vector's output may differ by: where an edge input gives next to nothing, the rest is rounding."""


_FULL = f"edges.npz would be larger than {MOST_BYTES >> 20} MiB"


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge input: its name, the call, and by how much each output may differ."""

    name: str
    vector: Vector
    atol: Mapping[str, float]

    def described(self) -> dict[str, object]:
        """As JSON has it."""
        return {"name": self.name, "atol": as_json(self.atol)}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An edge input that the package does not have, and why."""

    name: str
    reason: str

    def described(self) -> dict[str, object]:
        """As JSON has it."""
        return {"name": self.name, "reason": self.reason}


def edge_vectors(
    artifact: Artifact,
    runner: Runner,
    other: Runner,
    golden: Sequence[Vector],
    atol: Mapping[str, float],
    share: float,
) -> tuple[tuple[Edge, ...], tuple[LeftOut, ...]]:
    """What ``runner`` computes for the edge inputs made from ``golden``, and those that are left out.

    ``atol`` and ``share`` are those of golden, ``other`` is that of :func:`otherwise_rounded`.  Left out is an edge
    input on which a runner fails (the verification of the export has judged it), and what does not fit.
    """
    base = [{spec.name: spec.decode(np.asarray(each.inputs[spec.name])) for spec in artifact.inputs} for each in golden]
    found, left, size = list[Edge](), list[LeftOut](), 0
    for name, feed in edge_feeds(artifact.inputs, base, brief=is_brief(artifact.size_bytes)) if base else ():
        if size > MOST_BYTES:
            left.append(LeftOut(name, _FULL))
            continue
        try:
            vector = encoded(artifact, feed, runner.run(feed))
            change = changed(artifact, other, vector)
        except ToolError as error:
            left.append(LeftOut(name, str(error).splitlines()[0]))
            continue
        size += vector.size_bytes
        if size > MOST_BYTES:
            left.append(LeftOut(name, _FULL))
            continue
        own = {spec.name: allowed(spec, [vector], change[spec.name], share) for spec in artifact.outputs}
        least = {key: _FLOOR * most if math.isfinite(most) else 0.0 for key, most in atol.items()}
        found.append(Edge(name, vector, {key: max(most, least[key]) for key, most in own.items()}))
    return tuple(found), tuple(left)


def write_edges(found: Sequence[Edge], folder: Path) -> None:
    """``edges.npz`` in ``folder``: ``PLACE/inputs/NAME`` and ``PLACE/outputs/NAME``, in the order of ``found``."""
    arrays = dict[str, Array]()
    for place, edge in enumerate(found):
        arrays |= {f"{place}/inputs/{name}": value for name, value in edge.vector.inputs.items()}
        arrays |= {f"{place}/outputs/{name}": value for name, value in edge.vector.outputs.items()}
    save_arrays(folder / "edges.npz", arrays)
