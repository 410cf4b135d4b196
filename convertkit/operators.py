"""The operators of a delivered artifact: what they compute in, what they weigh, how much they multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from convertkit.artifact import Artifact
from convertkit.recipe import MeasuredDevice

ON_THE_FLY = "int8 on the fly"
"""Integer products of stored integer weights and activations that the runtime quantizes at every call."""
STATIC = ("int8", "int16x8")
"""Precisions whose activations are integers from operator to operator."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of an artifact.

    ``name`` is its first output, ``kind`` the format's own word.  ``precision`` is what it computes in: a name such as
    ``float32``, ``float16`` or ``int8``; ``int8 on the fly`` for products whose activations become integers at every
    call; ``int8 weights`` or ``int4 weights`` for float arithmetic on stored integers; empty for whole numbers and
    booleans that stand for themselves.  ``weight_bytes`` are its constants', ``macs`` the multiply-adds of one call
    with every dynamic dimension 1, 0 for what is not a product.
    """

    name: str
    kind: str
    precision: str
    weight_bytes: int
    macs: int


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Median milliseconds of one node of the optimised graph, whose nodes may be several of the file's in one."""

    name: str
    kind: str
    ms: float


@dataclass(frozen=True, slots=True)
class Left:
    """Nodes of one operator that a provider leaves to the CPU: how many, the first one's output, and why.

    ``nodes`` are all of them by their first outputs, in the graph's order; ``reason`` is the first one's.
    """

    operator: str
    count: int
    first: str
    reason: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderShare:
    """What a provider would take: ``nodes`` of ``of_nodes`` in ``parts`` that are connected, and their multiply-adds.

    Between two parts the CPU computes, and values are copied.  ``unjudged`` are conditions that may leave more to it.
    """

    provider: str
    source: str
    nodes: int
    of_nodes: int
    macs: int
    of_macs: int
    parts: int
    left: tuple[Left, ...]
    unjudged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErrorOfEstimates:
    """How far estimates from ``from_ms`` to ``to_ms`` (None: and above) were from ``beside``: emulation, or a clock.

    ``median`` and ``worst`` say by which share the larger of the two is above the smaller: 1.0 is twice as long.
    """

    from_ms: float
    to_ms: float | None
    median: float
    worst: float
    beside: str = "emulation"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Milliseconds of one call on a device that is not here: in all, and of each operator of the file in its order.

    ``error`` is that of estimates of about this time; None where nothing was compared.  ``by`` is the compiler that
    estimated it, with its version, empty for cost tables; ``cycles`` and ``memory_bytes`` are what it tells beside.
    ``measured`` says where and when the tables of the device ``this`` were measured.
    """

    device: str
    ms: float
    nodes: tuple[NodeTime, ...]
    error: ErrorOfEstimates | None = None
    by: str = ""
    cycles: int | None = None
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    measured: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that one instance of an artifact holds while it is called.

    ``activations`` is the largest sum of results that are needed at one time, ``weights`` what the file stores,
    ``packed_weights`` what the runtime makes of them in the order of its kernels, and ``tables`` where the elements of
    convolutions' windows lie.
    """

    activations: int
    weights: int
    packed_weights: int
    tables: int


@runtime_checkable
class MemoryTarget(Protocol):
    """A target that knows what memory its artifacts need wherever they run."""

    def memory(self, artifact: Artifact) -> Memory | None:
        """None where it is not known of this artifact."""
        ...


@dataclass(frozen=True, slots=True)
class Zeros:
    """Weights of an artifact that are zero, ``count`` of ``weights``.

    ``sparse_bytes`` has the file where the format's sparse tensors hold the weights that get smaller by it, and
    ``speed`` is a sentence on what the format's runtime makes of zeros in dense tensors.
    """

    count: int
    weights: int
    sparse_bytes: int
    speed: str


@runtime_checkable
class SparseTarget(Protocol):
    """A target whose format has sparse tensors."""

    def zeros(self, artifact: Artifact) -> Zeros: ...


@runtime_checkable
class EstimatingTarget(Protocol):
    """A target that knows what its artifacts take on some devices.

    ``likely_devices`` are those that a model is most likely to run on, for users who name none.
    """

    @property
    def devices(self) -> tuple[str, ...]: ...

    @property
    def likely_devices(self) -> tuple[str, ...]: ...

    def estimates(self, artifact: Artifact, devices: Sequence[str]) -> tuple[Estimate, ...]:
        """Of each device; ``Unsupported`` for an operator that no table knows."""
        ...


@runtime_checkable
class MeasuringTarget(Protocol):
    """A target that measures what its kernels cost on the machine at hand, for the device ``this``."""

    def machine(self) -> Mapping[str, str]:
        """What decides the result: the processor, and the version of the runtime.  ``name`` is for people."""
        ...

    def measure_here(self) -> str:
        """Cost tables as JSON, in less than a minute; they differ a little from time to time."""
        ...

    def estimate_here(self, artifact: Artifact, measured: MeasuredDevice) -> Estimate:
        """Of one call by such tables; ``Unsupported`` for an operator that no table knows."""
        ...


@runtime_checkable
class CompilingTarget(Protocol):
    """A target whose compiler estimates what its artifact takes on the device that it was compiled for."""

    def compiled_estimate(self, artifact: Artifact) -> Estimate:
        """As the compiler told it; nothing was run."""
        ...


@runtime_checkable
class InspectingTarget(Protocol):
    """A target that tells the operators of what it delivered, in the order in which they run."""

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]: ...
