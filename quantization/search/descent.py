"""What comes next where integers lose too much: more float, whatever that costs, until enough is kept.

Integers as the cost table has them; the worst nodes in float; the first nodes in float, where kernels write integers at
no cost; most nodes in float; weights alone as integers; the float model.  The first that keeps enough on held-out
samples is made, unless a later one is also the faster one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

import onnx_ir as ir

from convertkit.quantization.search.floor import is_enough
from convertkit.quantization.search.loop import Loop, Outcome, Point
from convertkit.quantization.search.plan import Plan
from convertkit.quantization.search.quality import Quality
from convertkit.quantization.search.trial import Trials
from convertkit.recipe import ExportOptions

Name = Literal["integers", "float fallback", "float beginning", "more float", "weights only", "float"]
Finish = Callable[[ir.Model, Plan], None]
Better = Callable[[Plan], Plan]
_SHOWN = 4
_SHARES = (0.5, 0.75)
"""Of the integer units, the noisiest, that are float on the rung "more float"."""
_BEGINNING = 1.25
"""Times the time by the cost table: a longer beginning has little left in front of what amplifies."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to make the artifact: what it keeps on held-out samples, its time by the cost table, bytes of weights."""

    name: Name
    outcome: Outcome
    quality: Quality
    good: bool
    cost_ns: float
    float_cost_ns: float
    bytes: int

    def described(self) -> Mapping[str, object]:
        """For the report."""
        return {
            "rung": self.name,
            "good": self.good,
            "snr_db": self.quality.snr_db,
            "snr_db_p5": self.quality.p5_db,
            "agreement": self.quality.agreement,
            "reconstruction_db": self.quality.reconstruction_db,
            "cost_ns": self.cost_ns,
            "float_cost_ns": self.float_cost_ns,
            "bytes": self.bytes,
        }


class Descent:
    """Goes down from an outcome; ``finish`` writes what stands beside a plan's pairs, ``better`` stored weights."""

    def __init__(self, loop: Loop, trials: Trials, options: ExportOptions, finish: Finish, better: Better) -> None:
        self._loop, self._trials, self._options, self._finish, self._better = loop, trials, options, finish, better

    def run(self, outcome: Outcome) -> tuple[Rung, ...]:
        """What was tried; the last one is to be made."""
        tried = [self._rung("integers", outcome)]
        if tried[0].good or self._options.full_integer or self._options.accept_loss:
            return tuple(tried)
        last = self._without_integers(outcome)
        for rung in self._mixed(outcome):
            tried.append(rung)
            if rung.good and rung.cost_ns < last[0].cost_ns:
                return tuple(tried)
        for rung in last:
            tried.append(rung)
            if rung.good:
                break
        return tuple(tried)

    def _mixed(self, outcome: Outcome) -> Iterator[Rung]:
        """Fewer and fewer integers, by what each unit wins in float and then by its noise."""
        if not outcome.plan.integer:
            return
        calm = dict.fromkeys(sorted(self._loop.statistics(outcome.plan)), "statistics of a norm or a softmax")
        if calm:
            without = self._measured(self._loop.without(outcome.plan, calm.keys()), outcome, calm)
            yield self._rung("float fallback", without)
            outcome = without if without.score.snr_db > outcome.score.snr_db else outcome
        yield self._rung("float fallback", self._shortest(outcome, self._loop.sensitive(outcome)))
        if self._loop.converts_for_nothing and (names := self._short(outcome)):
            yield self._rung("float beginning", self._beginning(outcome, names))
        noisy = self._loop.noisiest(outcome.plan)
        for share in _SHARES:
            kept = dict.fromkeys(noisy[: round(share * len(noisy))], f"among the noisiest {100 * share:.0f} %")
            fewer = self._loop.without(outcome.plan, kept.keys())
            if fewer.integer:
                yield self._rung("more float", self._measured(fewer, outcome, kept))

    def _shortest(self, outcome: Outcome, reasons: Mapping[str, str]) -> Outcome:
        """The shortest list of units in float that is good enough: by doubling, then by halving the last step."""
        return self._fewest(len(reasons), lambda count: self._with_first(outcome, reasons, count))

    def _short(self, outcome: Outcome) -> list[str]:
        """Integer units from the inputs on, as many as cost little in float."""
        plan, names = outcome.plan, self._loop.ordered(outcome.plan)
        most = _BEGINNING * self._loop.cost_ns(plan)
        costs = (
            self._loop.cost_ns(replace(plan, integer=plan.integer - {*names[:count]})) for count in range(1, len(names))
        )
        return names[: sum(1 for _ in takewhile(lambda cost: cost <= most, costs))]

    def _beginning(self, outcome: Outcome, names: list[str]) -> Outcome:
        """The shortest beginning in float that is good enough: all that follows would amplify its noise.

        There is a single border between float and integers, and it costs nothing.
        """

        def with_float(count: int) -> Outcome:
            kept = dict.fromkeys(names[:count], "its noise grows on the way to the outputs")
            return self._measured(self._loop.without(outcome.plan, kept.keys()), outcome, kept)

        return self._fewest(len(names), with_float)

    def _fewest(self, most: int, at: Callable[[int], Outcome]) -> Outcome:
        """``at`` the least count that is good enough, or ``most``: by doubling, then by halving the last step."""
        low, high = 0, 1
        while high < most and not self._is_good(at(high)):
            low, high = high, 2 * high
        high = min(high, most)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_good(at(middle)) else (middle, high)
        return at(high)

    def _with_first(self, outcome: Outcome, reasons: Mapping[str, str], count: int) -> Outcome:
        return self._with_float(outcome, dict(list(reasons.items())[:count]))

    def _with_float(self, outcome: Outcome, kept: Mapping[str, str]) -> Outcome:
        return self._measured(replace(outcome.plan, integer=outcome.plan.integer - kept.keys()), outcome, kept)

    def _without_integers(self, outcome: Outcome) -> list[Rung]:
        """Weights alone as integers, where the target makes such weights real once, and the float model."""
        kept = dict.fromkeys(sorted(outcome.plan.integer), "integers lose too much on held-out samples")
        none = replace(outcome.plan, integer=frozenset(), in_float=frozenset(), tuned={}, shifts={})
        plans: list[tuple[Name, Plan]] = [("float", replace(none, stored=False, dynamic=frozenset()))]
        if self._loop.stores_weights:
            plans.insert(0, ("weights only", self._better(replace(none, stored=True))))
        return [self._rung(name, self._measured(plan, outcome, kept)) for name, plan in plans]

    def _measured(self, plan: Plan, start: Outcome, kept: Mapping[str, str]) -> Outcome:
        score = self._trials.score(plan)
        why = {**start.kept, **kept}
        return Outcome(plan, score, why, (*start.curve, Point(len(why), self._loop.cost_ns(plan), score)))

    def _is_good(self, outcome: Outcome) -> bool:
        return self._rung("float fallback", outcome).good

    def _rung(self, name: Name, outcome: Outcome) -> Rung:
        quality, size = self._trials.finished(outcome.plan, lambda copy: self._finish(copy, outcome.plan))
        cost = self._loop.cost_ns(outcome.plan)
        return Rung(name, outcome, quality, is_enough(quality, self._options), cost, self._loop.float_cost_ns(), size)


def told(rungs: tuple[Rung, ...], requested: str) -> list[str]:
    """What was done instead of the first rung, and what that costs."""
    if len(rungs) == 1:
        return []
    first, last = rungs[0], rungs[-1]
    whole = {"weights only": "weights are int8, all else is float", "float": "the artifact is the float model"}
    became = whole.get(last.name) or f"these stay float: {_listed(last.outcome.kept)}"
    time, size = last.cost_ns / max(first.cost_ns, 1e-9), last.bytes / max(first.bytes, 1)
    return [
        f"integers wherever {requested} has them faster keep {first.quality.told()}, too little; {became}. That keeps "
        f"{last.quality.told()}, in {time:.2f} times the time by the cost table and with {size:.2f} times the weights' "
        f"bytes; --accept-loss takes the faster ones"
    ]


def _listed(names: Iterable[str]) -> str:
    first, *more = sorted(names)
    shown = [first, *more[: _SHOWN - 1]]
    return ", ".join(shown) + (f" and {len(more) + 1 - len(shown)} more" if len(more) + 1 > len(shown) else "")
