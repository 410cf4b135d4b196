"""What a package has to compare an engine with: golden vectors, edge inputs, and by how much results may differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.parity.golden import Vector
from convertkit.stage import FeedSource, NamedRunner
from convertkit.targets.tensorrt.edges import Edge, LeftOut, edge_vectors, write_edges
from convertkit.targets.tensorrt.rounding import changed, otherwise_rounded
from convertkit.targets.tensorrt.shapes import Range
from convertkit.targets.tensorrt.vectors import allowed, as_json, share, vectors, write_vectors


@dataclass(frozen=True, slots=True)
class Golden:
    """``runtime`` names what computed the outputs; ``atol`` is what an output of the golden vectors may differ by.

    ``share`` of its greatest value is allowed in any case.
    """

    vectors: tuple[Vector, ...]
    edges: tuple[Edge, ...]
    left_out: tuple[LeftOut, ...]
    atol: Mapping[str, float]
    share: float
    runtime: str

    @classmethod
    def of(
        cls,
        made: Artifact,
        precisions: Collection[str],
        ranges: Sequence[Range],
        samples: FeedSource | None,
        seed: int,
    ) -> Golden | None:
        """What the runner of ``made`` computes; None where NumPy's files lack the type of an array."""
        part = share(precisions)
        with plugins.runner(made) as runner, otherwise_rounded(made) as other:
            found = vectors(made, runner, samples, seed, ranges)
            if not found:
                return None
            changes = [changed(made, other, each) for each in found]
            most = {spec.name: max(each[spec.name] for each in changes) for spec in made.outputs}
            atol = {spec.name: allowed(spec, found, most[spec.name], part) for spec in made.outputs}
            edges, left_out = edge_vectors(made, runner, other, found, atol, part)
            runtime = runner.runtime if isinstance(runner, NamedRunner) else made.format
        return cls(found, edges, left_out, atol, part, runtime)

    def described(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "vectors": len(self.vectors),
            "computed_by": self.runtime,
            "atol": as_json(self.atol),
            "edges": [each.described() for each in self.edges],
            "edges_left_out": [each.described() for each in self.left_out],
        }

    def write(self, folder: Path) -> None:
        """The files in a new ``folder``."""
        write_vectors(self.vectors, self.runtime, folder)
        write_edges(self.edges, folder)
