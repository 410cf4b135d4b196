"""What an ONNX or ``.ort`` file takes on processors that are not here, by ONNX Runtime's cost tables.

The operators are those that ONNX Runtime fuses the file's to.  Nothing is timed: the same file gives the same numbers
on every machine.  How far they can be trusted says docs/measurements/device-costs.md.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import onnx_ir as ir

from convertkit.onnx.inspection import macs_of, operators
from convertkit.onnx.load import load_own
from convertkit.operators import Estimate, NodeTime
from convertkit.profile import OpCost, cost_rows
from convertkit.recipe import THIS, MeasuredDevice
from convertkit.targets.forms.devices import machines_of
from convertkit.targets.onnxruntime.as_fused import as_fused
from convertkit.targets.onnxruntime.devices import error_of
from convertkit.targets.onnxruntime.fused_kinds import Priced, priced

_ADDED = re.compile(r"_token_\d+$")
_COSTS = Path(__file__).with_name("costs")


@dataclass(frozen=True, slots=True)
class Prices:
    """Of one machine: nanoseconds of kernels, of a call and of a node whatever it computes."""

    rows: Mapping[str, OpCost]
    call: float
    node: float

    def nanoseconds(self, parts: Sequence[Priced]) -> float:
        """Of one node, whose kernel may do the work of several; no node takes less than any."""
        return max(self.node, sum(self._part(each) for each in parts))

    def _part(self, part: Priced) -> float:
        """Where no kernel of integers was measured, that of floats stands for it."""
        integer, real = self.rows[part.row].times(part.work, part.elements)
        return (integer or real) if part.integer else real


@cache
def prices(machine: str) -> Prices:
    """The committed tables of a machine: those of operators that are not placed are for estimates alone."""
    return _prices(tomllib.loads((_COSTS / f"{machine}.toml").read_text()))


def measured_prices(device: MeasuredDevice) -> Prices:
    """Those of the machine at hand."""
    return _prices(json.loads(device.tables))


def _prices(table: Mapping[str, Any]) -> Prices:
    rows = {**cost_rows(table["cost"]), **cost_rows(table["other"])}
    return Prices(rows, table["call"]["call"], table["call"]["node"])


def estimates(path: Path, devices: Sequence[str]) -> tuple[Estimate, ...]:
    """Of one call on each of ``devices``; the nodes are the file's own, in their order.

    Raises ``Unsupported`` for an operator that the tables do not know.
    """
    parts, places = _read(path)
    return tuple(_estimate(device, _shares(device), parts, places) for device in devices)


def estimate_here(path: Path, measured: MeasuredDevice) -> Estimate:
    """Of one call on the machine at hand, by the tables that were measured there."""
    return replace(_estimate(THIS, [(measured_prices(measured), 1.0)], *_read(path)), measured=measured.told)


def _read(path: Path) -> tuple[Mapping[ir.Node, Sequence[Priced]], _Places]:
    model = as_fused(path)
    parts = {node: priced(node) for node in model.graph if node.op_type != "Constant"}
    return parts, _places(path, list(parts))


def _shares(device: str) -> Sequence[tuple[Prices, float]]:
    return [(prices(name), share) for name, share in machines_of((device,)).items()]


@dataclass(frozen=True, slots=True)
class _Places:
    """The file's operators, and which of them each fused node stands for; None where the runtime added it."""

    told: tuple[tuple[str, str], ...]
    of: tuple[int | None, ...]


def _estimate(
    device: str,
    tables: Sequence[tuple[Prices, float]],
    parts: Mapping[ir.Node, Sequence[Priced]],
    places: _Places,
) -> Estimate:
    """By tables with the share of each."""
    call = sum(share * table.call for table, share in tables)
    times, beside = [0.0] * len(places.told), call
    for each, place in zip(parts.values(), places.of, strict=True):
        ns = sum(share * table.nanoseconds(each) for table, share in tables)
        if place is None:
            beside += ns
        else:
            times[place] += ns
    nodes = tuple(NodeTime(name, kind, ns / 1e6) for (name, kind), ns in zip(places.told, times, strict=True))
    ms = sum(node.ms for node in nodes) + beside / 1e6
    return Estimate(device, ms, nodes, error_of(device, ms))


def _places(path: Path, fused: Sequence[ir.Node]) -> _Places:
    """A ``.ort`` file has the fused nodes themselves."""
    if path.suffix == ".ort":
        told = tuple((str(node.outputs[0].name), node.op_type) for node in fused)
        return _Places(told, tuple(range(len(told))))
    told = tuple((each.name, each.kind) for each in operators(path))
    by_output = {name: place for place, (name, _) in enumerate(told)}
    known = _Known(by_output, {}, {})
    for node in load_own(path).graph:
        known.made.update({str(value.name): node for value in node.outputs})
        if node.name and node.outputs and str(node.outputs[0].name) in by_output:
            known.by_name[node.name] = by_output[str(node.outputs[0].name)]
    return _Places(told, tuple(map(known.place, fused)))


@dataclass(frozen=True, slots=True)
class _Known:
    """A file's operators by the first output and by the name, and what makes its values."""

    by_output: Mapping[str, int]
    by_name: dict[str, int]
    made: dict[str, ir.Node]

    def place(self, node: ir.Node) -> int | None:
        """Of the operators that a fused node stands for the one that multiplies most; else the one of its name."""
        ends = {str(value.name) for value in node.inputs if value is not None}
        group: dict[str, ir.Node] = {}
        left = [str(value.name) for value in node.outputs]
        while left:
            own = self.made.get(left.pop())
            if own is None or ends & {str(value.name) for value in own.outputs} or str(own.outputs[0].name) in group:
                continue
            group[str(own.outputs[0].name)] = own
            left += [str(value.name) for value in own.inputs if value is not None]
        known = [(macs_of(own), self.by_output[name]) for name, own in group.items() if name in self.by_output]
        return max(known)[-1] if known else self._named(node.name or "")

    def _named(self, name: str) -> int | None:
        """ONNX Runtime keeps the name of what it fuses, and adds to it."""
        plain = _ADDED.sub("", name)
        return self.by_name.get(plain, self.by_name.get(plain.rpartition("/")[0]))
