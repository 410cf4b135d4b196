"""What a precision flag became: the artifact's own operators say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convertkit.errors import GateError
from convertkit.operators import ON_THE_FLY, STATIC, Operator
from convertkit.recipe import ExportOptions

_ALL = 0.95
"""Share of the multiply-adds from which on an artifact counts as one of integers; the sentence tells the share."""
_SLOWER = 1.02
"""Of float32's time, from which on the sentence tells it."""
_STORED = {"int8 weights": "w8", "int4 weights": "w4"}


@dataclass(frozen=True, slots=True)
class Effective:
    """What was asked for, and what the artifact is.

    ``effective`` is ``requested`` where it was held, else ``mixed`` (integers beside float), ``weights-only`` (stored
    integers, float activations) or ``float32``.  ``integer_macs_share`` (0 to 1) counts multiply-adds of integers,
    those that the runtime makes integers at every call among them; None where the artifact multiplies nothing.
    ``for_size_only``: smaller weights make nothing faster; ``time_share`` is the time over float32's by the target's
    cost table, None where it has none.
    """

    requested: str
    effective: str
    integer_macs_share: float | None
    for_size_only: bool = False
    time_share: float | None = None

    @property
    def held(self) -> bool:
        """Whether the artifact is what was asked for."""
        return self.requested == self.effective

    @property
    def sentence(self) -> str:
        """The result in a line: ``int8 became mixed: 71 % of the multiply-adds in integers, the rest float32``."""
        became = self.requested if self.held else f"{self.requested} became {self.effective}"
        if self.requested == "float32" and not self.held:
            became = f"{self.effective}, as the source is quantized"
        kind = "fp8" if self.requested == "fp8" and self.effective == "mixed" else self.effective
        told = f"{became}: {_TOLD[kind]}".replace("SHARE", _percent(self.integer_macs_share))
        return f"{told}; for size only: {self._pace}" if self.for_size_only else told

    @property
    def _pace(self) -> str:
        if self.time_share is None or self.time_share < _SLOWER:
            return "no faster than float32"
        return f"{self.time_share:.2f} times float32's time by the cost table"


_TOLD = {
    "int8": "SHARE of the multiply-adds in integers",
    "int16x8": "SHARE of the multiply-adds in integers",
    "mixed": "SHARE of the multiply-adds in integers, the rest float32",
    "weights-only": "weights are stored with fewer bits, activations stay float32",
    "w8": "weights are stored as 8-bit integers, activations stay float32",
    "w4": "weights are stored as 4-bit integers, activations stay float32",
    "fp8": "SHARE of the multiply-adds in 8-bit floats (E4M3), the rest float32",
    "fp16": "weights or arithmetic in float16",
    "bf16": "weights and arithmetic in bfloat16",
    "float32": "no operator and no weight is an integer",
}


def effective(requested: str, operators: Sequence[Operator], diagnoses: Iterable[Mapping[str, Any]]) -> Effective:
    """What ``requested`` became.  What the quantizer says of it goes before what the operators look like."""
    shares = macs_by_precision(operators)
    total = sum(shares.values())
    integers = sum(shares[name] for name in (*STATIC, ON_THE_FLY))
    share = integers / total if total else None
    for diagnosis in diagnoses:
        if "effective" in diagnosis:
            told, pace = diagnosis.get("integer_macs_share", share), diagnosis.get("time_share")
            return Effective(
                requested,
                str(diagnosis["effective"]),
                None if told is None else float(told),
                bool(diagnosis.get("for_size_only")) and diagnosis["effective"] != "float32",
                None if pace is None else float(pace),
            )
    return Effective(requested, _became(requested, operators, share), share)


def macs_by_precision(operators: Iterable[Operator]) -> Counter[str]:
    """Multiply-adds by what they are computed in."""
    counted = Counter[str]()
    for each in operators:
        if each.macs:
            counted[each.precision] += each.macs
    return counted


def _became(requested: str, operators: Sequence[Operator], share: float | None) -> str:
    kinds = {each.precision for each in operators}
    if requested in STATIC:
        if not kinds & set(STATIC):
            return "weights-only" if kinds & {*_STORED, ON_THE_FLY} else "float32"
        static = _static_share(operators)
        return requested if static >= _ALL and requested in kinds else "mixed"
    if requested == "float32" and kinds & set(STATIC):  # the source's own
        return "int8" if _static_share(operators) >= _ALL else "mixed"
    if requested in ("w8", "w4"):
        return _stored(requested, kinds)
    if requested == "fp16":
        return "fp16" if kinds & {"float16", "float16 weights"} else "float32"
    if requested == "bf16":
        return "bf16" if "bfloat16" in kinds else "float32"
    return requested


def _static_share(operators: Sequence[Operator]) -> float:
    """Of the multiply-adds, or of the operators where nothing is multiplied."""
    macs = macs_by_precision(operators)
    if not macs:
        counted = [each for each in operators if each.precision]
        return sum(each.precision in STATIC for each in counted) / len(counted)
    return sum(macs[name] for name in STATIC) / sum(macs.values())


def _stored(requested: str, kinds: set[str]) -> str:
    found = {_STORED[kind] for kind in kinds if kind in _STORED} | ({"w8"} if ON_THE_FLY in kinds else set())
    if requested in found:
        return requested
    return min(found, default="float32")


def _percent(share: float | None) -> str:
    if share is None:
        return "none"
    return f"{100 * share:.0f} %" if share in (0, 1) or 0.01 <= share <= 0.99 else f"{100 * share:.1f} %"


def refused(became: Effective | None, options: ExportOptions) -> GateError | None:
    """The failure of ``--strict`` where the artifact is not what was asked for."""
    if not options.strict or became is None or became.held:
        return None
    insist = "\n  try   --full-integer, which refuses by the operator's name" if options.quantized else ""
    return GateError(f"--strict: {became.sentence}\n  try   leave --strict out to accept that{insist}")
