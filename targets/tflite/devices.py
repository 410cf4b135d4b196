"""The devices that ``--device`` names for LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MIXES: Mapping[str, Mapping[str, float]] = {"phone": {"arm64-a76": 0.5, "arm64-i8mm": 0.5}}
"""Devices that stand for several, with the share of each: a phone's model runs on its big cores."""
MACHINES = ("x86", "arm64-a76", "arm64-i8mm")
"""Those with tables of their own."""
DEVICES = (*MACHINES, *MIXES)
DEFAULT = ("x86",)
LIKELY = ("arm64-a76", "arm64-i8mm")
"""What estimates are told of where the user names no device: the cores of phones."""
ERRORS: Mapping[str, tuple[float, float]] = dict.fromkeys((*LIKELY, "phone"), (0.10, 0.40))
"""Median and largest error of whole files' estimates beside emulation: docs/measurements/device-costs.md."""
PARTS: Mapping[str, tuple[str, ...]] = {"x86": ("x86 with AMX", "x86 with VNNI")}
"""Machines of one table, in the order of its integer kernels."""


def machines_of(devices: Sequence[str]) -> Mapping[str, float]:
    """Machines with their shares, 1 in all; each of ``devices`` counts as much as the others."""
    shares: dict[str, float] = {}
    for device in devices or DEFAULT:
        for name, share in MIXES.get(device, {device: 1.0}).items():
            shares[name] = shares.get(name, 0.0) + share / len(devices or DEFAULT)
    return shares


def named(devices: Sequence[str]) -> str:
    """For a sentence; empty for the default."""
    return "" if tuple(devices) in ((), DEFAULT) else " + ".join(devices)
