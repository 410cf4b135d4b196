"""What a model takes on each device that the user named, by the target's cost tables: nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.place.costs import conv_shape
from convertkit.quantization.place.dense import dense_shape
from convertkit.quantization.place.precision_assignment import total_cost

Estimates = Mapping[str, tuple[float, float]]
"""Milliseconds of one call of the artifact and of float32, by device."""


def estimates(units: tuple[Unit, ...], profile: QuantProfile, integer: frozenset[Unit]) -> Estimates:
    """With ``integer`` units in integers; empty where the user named no device, or the tables lack an operator."""
    plain = frozenset[Unit]()
    return {
        device: (
            total_cost(units, own, integer) / 1e6,
            total_cost(units, replace(own, dynamic=frozenset()), plain) / 1e6,
        )
        for device, own in devices(units, profile)
    }


def devices(units: Iterable[Unit], profile: QuantProfile) -> Iterator[tuple[str, QuantProfile]]:
    """Each device that the user named, with the profile on it alone; none where the tables lack an operator."""
    if all(_is_known(unit, profile) for unit in units):
        yield from zip(profile.devices, profile.alone() if profile.devices else (), strict=True)


def described(found: Estimates) -> list[dict[str, object]]:
    """For the report: ``device``, ``artifact_ms``, ``float32_ms``."""
    return [{"device": name, "artifact_ms": own, "float32_ms": real} for name, (own, real) in found.items()]


def _is_known(unit: Unit, profile: QuantProfile) -> bool:
    if profile.cost(unit.kinds) is not None:
        return True
    return profile.kernel_costs is not None and (
        conv_shape(unit.node) is not None or dense_shape(unit.node) is not None
    )
