"""What a quantized graph costs as it is written, and whether float would do better.

A cut between integer and float (see ``precision_assignment``) looks at one border at a time.  It cannot see that
operators in float among others in float, which compute the graph's integers (see ``exact_float``), are converted
twice at each of their borders, nor that without any integers nobody converts at all.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.place.costs import conversion, unit_cost
from convertkit.quantization.place.exact_float import exact_in_float
from convertkit.quantization.place.precision_assignment import choose_integer, looked_up, total_cost
from convertkit.quantization.place.statistics import statistics_units

_SLOWER = 1.1
"""The cut has found a gain already; many small conversions turn it into a loss that no inaccuracy of a table makes."""
_ABOUT_AS_FAST = 1.03
_RELUCTANCE = (0.2, 0.5, 1.0)


def exact_choices(
    units: tuple[Unit, ...], profile: QuantProfile, chosen: frozenset[Unit], keep_float: frozenset[str]
) -> tuple[frozenset[Unit], ...]:
    """Other choices than ``chosen``, more of it float, that are about as fast as a cut and as written, on each machine.

    An activation that joins float convolutions to each other looks cheap to the cut; all of it is written as integers.
    """
    if not profile.dynamic:
        return ()

    able = [unit for unit in units if unit.name not in keep_float]

    def costs(choice: frozenset[Unit]) -> list[float]:
        in_float = exact_in_float(able, choice, profile) - choice
        priced = (profile, *profile.alone())
        as_written = [written_cost(units, choice, in_float, each) for each in priced]
        return [*(total_cost(units, each, choice) for each in priced), *as_written]

    limits = [_ABOUT_AS_FAST * cost for cost in costs(chosen)]
    others = [
        choose_integer(units, profile, insist=False, keep_float=keep_float, reluctance=share) for share in _RELUCTANCE
    ]
    others.append(choose_integer(units, profile, insist=False, keep_float=keep_float | statistics_units(units)))
    return tuple(
        each
        for each in dict.fromkeys(others)
        if each != chosen and all(cost <= limit for cost, limit in zip(costs(each), limits, strict=True))
    )


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
    exact = {value for unit in in_float for value in unit.data.values()}
    kernels = sum(unit_cost(unit, profile)[0 if unit in whole else 1] for unit in units)
    back = {value for value in rounded & (makers | exact) if not _is_read_by(value, readers)}
    return kernels + sum(conversion(value, profile) * ((value not in makers) + (value in back)) for value in rounded)


def _is_read_by(value: ir.Value, readers: Collection[ir.Node]) -> bool:
    return not value.is_graph_output() and all(use.node in readers for use in value.uses())
