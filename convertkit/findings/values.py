"""What is found out about an artifact, as the report tells it; without NumPy, as reading it needs none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from convertkit.artifact import Dim, Quantization
from convertkit.findings.precision import Effective
from convertkit.good_enough import agrees, keeps_samples
from convertkit.operators import ErrorOfEstimates, Memory, NodeTime, Operator, ProviderShare
from convertkit.recipe import Normalization
from convertkit.stage import Execution

_ORIGINS = {
    "evaluation": "samples of --eval",
    "held-out": "held-out samples of --calib",
    "calibration": "samples of --calib, which the ranges were measured on",
}
_MATTERS = 1.05
"""Factors nearer to 1 are told as "about as fast"."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The worst output's signal over noise against the source.

    ``snr_db`` is over all ``samples`` together, ``median_db`` and ``low_db`` (5th percentile) over single samples: a
    few loud ones may hold all the signal.  ``agreement`` (0 to 1) is the share of samples with the same largest score,
    None where no output ranks classes.  ``origin`` is ``evaluation``, ``held-out`` or ``calibration``.
    """

    samples: int
    origin: str
    output: str
    snr_db: float
    median_db: float
    low_db: float
    agreement: float | None

    @property
    def weak(self) -> bool:
        """Whether this is below what passes without a second look."""
        if not keeps_samples(self.snr_db, self.median_db, self.low_db):
            return True
        return self.agreement is not None and not agrees(self.agreement, self.samples)

    @property
    def where(self) -> str:
        """What was measured on, in words."""
        return f"{self.samples} {_ORIGINS[self.origin]}"


@dataclass(frozen=True, slots=True)
class Latency:
    """Median milliseconds per call of the delivered artifact, and of the same model in float32 where that is another.

    ``speedup`` is the median over turns of float32's time over the artifact's, ``spread`` its first and third quartile.
    """

    artifact_ms: float
    rounds: int
    float32_ms: float | None = None
    speedup: float | None = None
    spread: tuple[float, float] | None = None

    @property
    def slower(self) -> bool:
        """Whether the delivered artifact is clearly slower than float32 on this machine, in three of four turns."""
        return self.speedup is not None and self.speedup < 1 / _MATTERS and (self.spread is None or self.spread[1] < 1)

    @property
    def faster(self) -> bool:
        """Whether it is clearly faster, in three of four turns."""
        return self.speedup is not None and self.speedup > _MATTERS and (self.spread is None or self.spread[0] > 1)

    @property
    def verdict(self) -> str:
        """The comparison in words: ``2.3 × faster than float32``; empty where there is none."""
        if self.speedup is None:
            return ""
        if self.slower:
            return f"{1 / self.speedup:.2g} × SLOWER than float32 here"
        if self.faster:
            return f"{self.speedup:.2g} × faster than float32"
        if 1 / _MATTERS <= self.speedup <= _MATTERS:
            return "about as fast as float32"
        return "times vary too much here to say which is faster"


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Milliseconds of a call on a device that is not here: nothing was run.

    ``float32_ms`` is the same model in float32, None where the artifact is that or no table knows it.  ``error`` is
    that of estimates of about this time, None where nothing was compared.  ``shown`` devices are those that the user
    named, else the likely ones; of them ``layers_ms`` has the time of each operator, where
    that is known.  ``by`` is the compiler that estimated it, with its version, empty for cost tables.  ``cycles`` of
    the device and ``memory_bytes`` by the memory's name are what such a compiler tells beside.  ``measured`` says
    where and when the tables of the device ``this`` were measured, empty for others.
    """

    device: str
    ms: float
    float32_ms: float | None
    error: ErrorOfEstimates | None
    shown: bool
    layers_ms: tuple[float, ...]
    by: str = ""
    cycles: int | None = None
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    measured: str = ""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Of each device that the target knows; where there are none, ``lacking`` says why.

    ``memory`` is that of every device, None where the target does not tell it.
    """

    devices: tuple[DeviceTime, ...]
    lacking: str = ""
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a delivered artifact.

    ``shape`` has sizes and the names of dynamic dimensions, ``example`` the sizes of one input that was run (of outputs
    1 for what is dynamic).  ``layout`` is empty where the artifact keeps the source's order of axes.  ``normalization``
    is in units of pixels: the model takes ``(pixel - mean) / std``.  An integer interface stands for
    ``(integer - zero_point) * scale``, or for the places of words in ``labels``.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    dynamic: tuple[str, ...]
    example: tuple[int, ...]
    source_shape: tuple[Dim, ...]
    perm: tuple[int, ...]
    layout: str
    normalization: Normalization | None
    quantization: Quantization | None
    is_state: bool
    kept: bool = False
    labels: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """All of it in a line: ``float32 N×8×8×1, NHWC where the source has NCHW; (pixel - 0) / 255``."""
        parts = [f"{self.dtype} {'×'.join(map(str, self.shape)) or 'scalar'}"]
        if self.dynamic:
            parts[0] += f", {' and '.join(self.dynamic)} dynamic"
        if self.layout:
            parts[0] += f", {self.layout}"
        if self.normalization is not None:
            mean, std = (_numbers(each) for each in (self.normalization.mean, self.normalization.std))
            parts.append(f"(pixel - {mean}) / {std}")
        if self.quantization is not None:
            zero = self.quantization.zero_point
            parts.append(f"stands for (q {'+' if zero < 0 else '-'} {abs(zero)}) * {self.quantization.scale:.6g}")
        if self.labels:
            parts.append(f"places in the list {_listed(self.labels)}")
        if self.is_state:
            parts.append(f"state, {'kept by the model' if self.kept else 'carried'} from call to call")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Interface:
    """Everything that goes into and comes out of a delivered artifact, in its order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """One value in the order of the graph: its name, what computes it, and its signal over noise in dB."""

    name: str
    kind: str
    snr_db: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of an artifact that has zeros for weights: as it is, deflated, and with its format's sparse tensors.

    ``zeros`` is the share of the weights; it and ``sparse`` are None where the format has no sparse tensors.
    """

    dense: int
    deflated: int
    sparse: int | None = None
    zeros: float | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found; empty where an export failed before it could be measured."""

    operators: tuple[Operator, ...] = ()
    effective: Effective | None = None
    quality: Quality | None = None
    latency: Latency | None = None
    estimates: Estimates | None = None
    interface: Interface | None = None
    depth: tuple[Level, ...] = ()
    times: tuple[NodeTime, ...] = ()
    providers: tuple[ProviderShare, ...] = ()
    sizes: Sizes | None = None
    notes: tuple[str, ...] = ()
    execution: Execution = "here"


_SHOWN = 8
"""Labels that fit into a line; the report has all."""


def _listed(labels: Sequence[str]) -> str:
    rest = f", … ({len(labels)})" if len(labels) > _SHOWN else ""
    return f"{', '.join(labels[:_SHOWN])}{rest}"


def _numbers(values: Sequence[float]) -> str:
    told = ", ".join(f"{value:g}" for value in values)
    return told if len(values) == 1 else f"[{told}]"
