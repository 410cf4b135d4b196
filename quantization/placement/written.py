"""What a quantized graph costs as it is written, and whether float would do better.

A cut between integer and float (see ``islands``) looks at one border at a time.  It cannot see that operators in float
among others in float, which compute the graph's integers (see ``exact_float``), are converted twice at each of
their borders, nor that without any integers nobody converts at all.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from convertkit.profile import QuantProfile
from convertkit.quantization.placement.islands import conversion, looked_up, unit_cost
from convertkit.quantization.placement.units import Unit

_SLOWER = 1.1
"""The cut has found a gain already; many small conversions turn it into a loss that no inaccuracy of a table makes."""


def is_float_faster(
    units: tuple[Unit, ...], integer: frozenset[Unit], in_float: frozenset[Unit], profile: QuantProfile
) -> bool:
    """Whether integers make the whole model slower by the cost table."""
    real = sum(unit_cost(unit, profile)[1] for unit in units)
    return written_cost(units, integer, in_float, profile) > _SLOWER * real


def written_cost(
    units: tuple[Unit, ...], integer: frozenset[Unit], in_float: frozenset[Unit], profile: QuantProfile
) -> float:
    """Nanoseconds with ``integer`` kernels, float ones that compute integers, and the others in float."""
    whole = integer | looked_up(units, profile, integer)
    rounded = {value for unit in whole | in_float for value in (*unit.data.values(), *unit.outputs)}
    makers = {value for unit in whole for value in unit.outputs}
    readers = {node for unit in whole for node in unit.nodes}
    kernels = sum(unit_cost(unit, profile)[0 if unit in whole else 1] for unit in units)
    return kernels + sum(
        conversion(value, profile) * ((value not in makers) + (not _is_read_by(value, readers))) for value in rounded
    )


def _is_read_by(value: ir.Value, readers: Collection[ir.Node]) -> bool:
    return not value.is_graph_output() and all(use.node in readers for use in value.uses())
