"""``golden/edges.npz``: edge inputs and what they give, for ``check_gpu.py``.

Polygraphy knows one tolerance for all calls, which a loud input would widen for all others; here each has its own.
"""

from __future__ import annotations

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
from convertkit.targets.tensorrt.vectors import MOST_BYTES, allowed, encoded

_FLOOR = 1e-2
"""Of what a golden vector's output may differ by: where an edge input gives next to nothing, the rest is rounding."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge input: its name, the call, and by how much each output may differ."""

    name: str
    vector: Vector
    atol: Mapping[str, float]

    def described(self) -> dict[str, object]:
        """As JSON has it."""
        return {"name": self.name, "atol": dict(self.atol)}


def edge_vectors(
    artifact: Artifact,
    runner: Runner,
    other: Runner,
    golden: Sequence[Vector],
    atol: Mapping[str, float],
    share: float,
) -> tuple[Edge, ...]:
    """What ``runner`` computes for the edge inputs made from ``golden``, as many as fit; ``atol`` and ``share`` are
    those of golden.

    ``other`` is that of :func:`otherwise_rounded`.  An edge input on which a runner fails is left out: the verification
    of the export has judged it.
    """
    base = [{spec.name: spec.decode(np.asarray(each.inputs[spec.name])) for spec in artifact.inputs} for each in golden]
    found, size = list[Edge](), 0
    for name, feed in edge_feeds(artifact.inputs, base, brief=is_brief(artifact.size_bytes)) if base else ():
        try:
            vector = encoded(artifact, feed, runner.run(feed))
            change = changed(artifact, other, vector)
        except ToolError:
            continue
        size += vector.size_bytes
        if size > MOST_BYTES:
            break
        own = {spec.name: allowed(spec, [vector], change[spec.name], share) for spec in artifact.outputs}
        found.append(Edge(name, vector, {key: max(most, _FLOOR * atol[key]) for key, most in own.items()}))
    return tuple(found)


def write_edges(found: Sequence[Edge], folder: Path) -> None:
    """``edges.npz`` in ``folder``: ``PLACE/inputs/NAME`` and ``PLACE/outputs/NAME``, in the order of ``found``."""
    arrays = dict[str, Array]()
    for place, edge in enumerate(found):
        arrays |= {f"{place}/inputs/{name}": value for name, value in edge.vector.inputs.items()}
        arrays |= {f"{place}/outputs/{name}": value for name, value in edge.vector.outputs.items()}
    save_arrays(folder / "edges.npz", arrays)
