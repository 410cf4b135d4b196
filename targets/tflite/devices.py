"""The devices that ``--device`` names for LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convertkit.operators import ErrorOfEstimates

MIXES: Mapping[str, Mapping[str, float]] = {"phone": {"arm64-a76": 0.5, "arm64-i8mm": 0.5}}
"""Devices that stand for several, with the share of each: a phone's model runs on its big cores."""
_EMULATED = ("arm64-a55", "arm64-a76", "arm64-i8mm")
_MEASURED = ("x86", "x86-avx512", "x86-vnni")
MACHINES = (*_MEASURED, *_EMULATED)
"""Those with tables of their own."""
DEVICES = (*MACHINES, *MIXES)
DEFAULT = ("x86",)
ANYWHERE = ("phone", "x86")
"""What ``--int8`` is decided for where the user names no device: docs/measurements/device-costs.md says why."""
LIKELY = ("arm64-a76", "arm64-i8mm")
"""What estimates are told of where the user names no device: the cores of phones."""
_COMPARED = (
    ErrorOfEstimates(0.0, 0.05, 0.74, 16.49),
    ErrorOfEstimates(0.05, 0.7, 0.11, 0.67),
    ErrorOfEstimates(0.7, None, 0.06, 0.37),
)
"""Of whole files beside emulation, by how long they were estimated to take: docs/measurements/device-costs.md."""
_CLOCKED = {
    "x86-vnni": (
        ErrorOfEstimates(0.05, 0.7, 0.06, 0.34, "a clock"),
        ErrorOfEstimates(0.7, None, 0.08, 0.34, "a clock"),
    )
}
"""Of whole files of ours beside the machine that the tables are of: docs/measurements/device-zoo.md."""
PARTS: Mapping[str, tuple[str, ...]] = {"x86": ("x86 with AMX", "x86 with VNNI")}
"""Machines of one table, in the order of its integer kernels."""


def machines_of(devices: Sequence[str]) -> Mapping[str, float]:
    """Machines with their shares, 1 in all; each of ``devices`` counts as much as the others."""
    shares: dict[str, float] = {}
    for device in devices or DEFAULT:
        for name, share in MIXES.get(device, {device: 1.0}).items():
            shares[name] = shares.get(name, 0.0) + share / len(devices or DEFAULT)
    return shares


def error_of(device: str, ms: float) -> ErrorOfEstimates | None:
    """Of estimates of about ``ms`` for ``device``; None where none was compared with anything."""
    emulated = device in DEVICES and device not in _MEASURED
    known = _COMPARED if emulated else _CLOCKED.get(device, ())
    return next((each for each in reversed(known) if ms >= each.from_ms), None)


def decided_for(devices: tuple[str, ...], precision: str) -> tuple[str, ...]:
    """``devices``, or those that stand for all where none is named.

    4-bit weights have prices on x86 alone, and files of ``--w8`` were not compared on phones.  A float model may bring
    integers, which are written as those of ``--int8``.
    """
    return devices or (DEFAULT if precision in ("w8", "w4") else ANYWHERE)


def named(devices: Sequence[str]) -> str:
    """For a sentence; empty where none is named."""
    return " + ".join(devices)
