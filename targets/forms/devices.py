"""Devices that stand for several, and how much each counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MIXES: Mapping[str, Mapping[str, float]] = {"phone": {"arm64-a76": 0.5, "arm64-i8mm": 0.5}}
"""Devices that stand for several, with the share of each: a phone's model runs on its big cores."""
DEFAULT = ("x86",)


def machines_of(devices: Sequence[str]) -> Mapping[str, float]:
    """Machines with their shares, 1 in all; each of ``devices`` counts as much as the others."""
    shares: dict[str, float] = {}
    for device in devices or DEFAULT:
        for name, share in MIXES.get(device, {device: 1.0}).items():
            shares[name] = shares.get(name, 0.0) + share / len(devices or DEFAULT)
    return shares


def named(devices: Sequence[str]) -> str:
    """For a sentence; empty where none is named."""
    return " + ".join(devices)
