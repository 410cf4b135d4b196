"""The cost tables of the devices that a model is made for.

A device has ``NAME.toml`` (operators, see :class:`~convertkit.profile.OpCost`) and ``NAME.kernels.toml`` (convolutions
and small dense layers, see :class:`~convertkit.kernel_costs.KernelCosts`).  A mix is a weighted sum of devices.
What is chosen by the tables of several is the best for their weighted sum, and has to pay on each.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from convertkit.kernel_costs import KernelCosts, kernel_costs, mixed
from convertkit.profile import NarrowCosts, OpCost, narrow_costs, weighted
from convertkit.recipe import THIS, MeasuredDevice
from convertkit.targets.forms.devices import machines_of
from convertkit.targets.tflite.devices import PARTS

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Tables:
    """Of one or several devices: ``costs`` and ``kernel_costs`` of all together, ``machines`` the costs of each.

    The machines come in the order of ``kernel_costs.machines()``; ``names`` are those of their devices.
    """

    costs: Mapping[str, OpCost]
    kernel_costs: KernelCosts
    machines: tuple[Mapping[str, OpCost], ...]
    names: tuple[str, ...]


@cache
def tables(devices: tuple[str, ...], measured: MeasuredDevice | None = None) -> Tables:
    """The tables of ``devices``, each of the same weight; names are those that :mod:`devices` knows.

    ``measured`` are those of the device ``this``.
    """
    shares = machines_of(devices)
    files = [_files(name) if name != THIS or measured is None else _measured(measured) for name in shares]
    costs, kernels = [_costs(table) for table, _ in files], [kernel_costs(table) for _, table in files]
    each = tuple(table for table, own in zip(costs, kernels, strict=True) for _ in own.machines())
    names = tuple(part for name in shares for part in PARTS.get(name, (name,)))
    if len(shares) == 1:
        return Tables(costs[0], kernels[0], each, names)
    weights = tuple(shares.values())
    kinds = costs[0].keys()
    together = {kind: weighted([table[kind] for table in costs], weights) for kind in kinds}
    return Tables(together, mixed(kernels, weights), each, names)


@cache
def int4_costs() -> NarrowCosts:
    """The committed table of 4-bit weights, of x86 servers: no other device has one."""
    return narrow_costs(_HERE / "int4.toml")


def _files(name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return (
        tomllib.loads((_HERE / f"{name}.toml").read_text()),
        tomllib.loads((_HERE / f"{name}.kernels.toml").read_text()),
    )


def _measured(device: MeasuredDevice) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    found = json.loads(device.tables)
    return found, found["kernels"]


def _costs(table: Mapping[str, Any]) -> Mapping[str, OpCost]:
    """One device's; every operator costs a call besides."""
    rows, call, near = table["ns_per_unit"], table["call_ns"], table["near_elements"]
    return {
        kind: OpCost(
            row["float32"],
            row["int8"],
            row.get("float32_call", call),
            row.get("int8_call", call),
            row.get("float32_element", 0.0),
            row.get("int8_element", 0.0),
            near=row.get("near_elements", near) if "float32_near" in row else 0.0,
            float32_near=row.get("float32_near", 0.0),
            integer_near=row.get("int8_near", 0.0),
        )
        for kind, row in rows.items()
    }
