"""The devices that ``--device`` names for LiteRT."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.operators import ErrorOfEstimates
from convertkit.targets.forms.devices import DEFAULT, MIXES

_EMULATED = ("arm64-a55", "arm64-a76", "arm64-i8mm")
_MEASURED = ("x86", "x86-avx512", "x86-vnni", "x86-amx")
MACHINES = (*_MEASURED, *_EMULATED)
"""Those with tables of their own."""
DEVICES = (*MACHINES, *MIXES)
ANYWHERE = ("phone", "x86")
"""What ``--int8`` is decided for where the user names no device: docs/measurements/device-costs.md says why."""
LIKELY = ("arm64-a76", "arm64-i8mm")
"""What estimates are told of where the user names no device: the cores of phones."""
_COMPARED = (
    ErrorOfEstimates(0.0, 0.05, 0.10, 0.48),
    ErrorOfEstimates(0.05, 0.7, 0.16, 0.69),
    ErrorOfEstimates(0.7, None, 0.08, 0.35),
)
"""Of whole files beside emulation, by how long they were estimated to take: docs/measurements/device-costs.md."""
_CLOCKED = {
    "x86-vnni": (
        ErrorOfEstimates(0.05, 0.7, 0.06, 0.34, "a clock"),
        ErrorOfEstimates(0.7, None, 0.06, 0.34, "a clock"),
    ),
    "x86-amx": (
        ErrorOfEstimates(0.05, 0.7, 0.16, 0.22, "a clock"),
        ErrorOfEstimates(0.7, None, 0.15, 0.42, "a clock"),
    ),
}
"""Of whole files of ours beside the machine that the tables are of: docs/measurements/device-zoo.md."""
PARTS: Mapping[str, tuple[str, ...]] = {"x86": ("x86 with AMX", "x86 with VNNI")}
"""Machines of one table, in the order of its integer kernels."""


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
