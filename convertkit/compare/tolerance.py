"""What two models may differ by: what their exports have declared, or what their operators say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from convertkit.errors import ConvertKitError
from convertkit.looking.opened import Opened
from convertkit.looking.operators import operators_of
from convertkit.stage import FLOAT32, LOSSY, Tolerance


def between(first: Opened, second: Opened) -> Tolerance:
    """The tolerance of a comparison.

    A delivered model has declared what it may differ from its source by; two differences add up.  Of other files the
    operators tell: what computes in fewer bits than the other changes numbers on purpose.
    """
    declared = [found for each in (first, second) if (found := _declared(each)) is not None]
    lossy = [each for each in declared if each.lossy]
    if lossy:
        return min(lossy, key=lambda each: each.snr_db if each.snr_db is not None else 0.0)
    if _widths(first) != _widths(second):
        return replace(LOSSY, reason="one of the two computes or stores in fewer bits")
    if any(each.relative is None for each in declared):
        return next(each for each in declared if each.relative is None)
    relative = sum(each.relative or 0.0 for each in declared)
    floor = FLOAT32.relative or 0.0
    if relative <= floor:
        return FLOAT32
    return replace(FLOAT32, relative=relative, reason="the sum of what the two may differ from their sources")


def _declared(model: Opened) -> Tolerance | None:
    """What an export allowed its artifact against its source; None for a model that no export delivered."""
    if model.delivered is None or not model.delivered.report["steps"]:
        return None
    told: Mapping[str, Any] = model.delivered.report["steps"][-1]["parity"]["versus_source"]["tolerance"]
    known = {field.name for field in fields(Tolerance)}
    return Tolerance(**{key: _number(value) for key, value in told.items() if key in known})


def _number(value: Any) -> Any:
    """A float that JSON holds as text."""
    return float(value) if value in ("inf", "-inf") else value


def precisions(model: Opened) -> frozenset[str]:
    """What its operators compute in; nothing where they cannot be told."""
    try:
        operators, _ = operators_of(model)
    except ConvertKitError:  # then a comparison is as strict as between floats
        return frozenset()
    return frozenset(each.precision for each in operators) - {""}


def _widths(model: Opened) -> frozenset[str]:
    """What is computed or stored in fewer bits than float32."""
    return precisions(model) - {"float32", "float64"}
