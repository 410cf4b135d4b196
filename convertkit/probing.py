"""What a runner tells of the values inside of its artifact, and how a part of the artifact is taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from convertkit.artifact import Array, Quantization
from convertkit.stage import Feed


@dataclass(frozen=True, slots=True)
class Inner:
    """A value that an operator of an artifact computes, in the order in which they run.

    ``name`` and ``kind`` are the value's and its operator's, ``operator`` is what the format calls the operator itself
    (empty where it has no name), ``inputs`` the computed values that it reads.  ``shape`` has 1 for what is dynamic.
    ``quantization`` says what integers stand for, ``origin`` where the operator comes from in the user's own source.
    ``clamps`` says that the operator ends in an activation that other formats have as a node of its own.
    """

    name: str
    kind: str
    operator: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    origin: str = ""
    clamps: bool = False

    @property
    def title(self) -> str:
        """For sentences: ``act1 (Relu)``."""
        return f"{self.operator or self.name} ({self.kind})"


class Probe(Protocol):
    """Looks into one artifact."""

    def inner(self) -> tuple[Inner, ...]:
        """The values of the main graph that can be told, in the order in which they are computed."""
        ...

    def port(self, name: str) -> str:
        """What an input or output of the interface is called inside."""
        ...

    def values(self, feed: Feed, names: Sequence[str]) -> Mapping[str, Array]:
        """Some of them for one feed, in the artifact's own layout; integers that stand for reals as those."""
        ...

    def cut(self, inputs: Sequence[str], outputs: Sequence[str], path: Path) -> None:
        """Write the part of the artifact that computes ``outputs`` from ``inputs``, as a file of its own."""
        ...


@runtime_checkable
class ProbedRunner(Protocol):
    """A runner that lets one look into its artifact."""

    def probe(self) -> Probe: ...
