"""What a finished artifact takes on devices that are not here, for the report: by cost tables or by a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convertkit.artifact import Artifact
from convertkit.errors import Unsupported
from convertkit.findings.values import DeviceTime, Estimates
from convertkit.operators import (
    CompilingTarget,
    Estimate,
    EstimatingTarget,
    InspectingTarget,
    MeasuringTarget,
    MemoryTarget,
)
from convertkit.recipe import MeasuredDevice


def estimates(
    target: EstimatingTarget,
    artifact: Artifact,
    float32: Artifact | None,
    asked: Sequence[str],
    measured: MeasuredDevice | None = None,
) -> Estimates:
    """On every device of the target, and on the ``measured`` one; ``asked`` are those that the user named.

    ``float32`` is the same model as float32, None where ``artifact`` is that.
    """
    memory = target.memory(artifact) if isinstance(target, MemoryTarget) else None
    try:
        ours = _all(target, artifact, measured)
    except Unsupported as reason:
        return Estimates((), f"{reason.subject}: {reason.reason}", memory)
    plain = {} if float32 is None else _times(target, float32, measured)
    shown = asked or target.likely_devices
    if not isinstance(target, InspectingTarget):  # no layers that times could stand beside
        ours = tuple(replace(each, nodes=()) for each in ours)
    devices = tuple(_device(each, plain.get(each.device), each.device in shown) for each in ours)
    return Estimates(devices, memory=memory)


def compiled_estimates(target: CompilingTarget, artifact: Artifact) -> Estimates:
    """On the device that the artifact was compiled for."""
    return Estimates((_device(target.compiled_estimate(artifact), None, shown=True),))


def _all(target: EstimatingTarget, artifact: Artifact, measured: MeasuredDevice | None) -> tuple[Estimate, ...]:
    found = target.estimates(artifact, target.devices)
    if measured is None or not isinstance(target, MeasuringTarget):
        return found
    return (*found, target.estimate_here(artifact, measured))


def _times(target: EstimatingTarget, float32: Artifact, measured: MeasuredDevice | None) -> dict[str, float]:
    """By device; empty where float32 needs an operator that no table knows, although the artifact does not."""
    try:
        return {each.device: each.ms for each in _all(target, float32, measured)}
    except Unsupported:
        return {}


def _device(ours: Estimate, float32_ms: float | None, shown: bool) -> DeviceTime:
    layers = tuple(_figure(node.ms) for node in ours.nodes) if shown else ()
    plain = None if float32_ms is None else _figure(float32_ms)
    beside = ours.by, ours.cycles, ours.memory_bytes, ours.measured
    return DeviceTime(ours.device, _figure(ours.ms), plain, ours.error, shown, layers, *beside)


def _figure(ms: float) -> float:
    """With four digits: more than an estimate deserves, and enough to compare two."""
    return float(f"{ms:.4g}")
