"""The closed loop: nodes go back to float until the loss is acceptable, the cheapest first.

Each suspect is tried once alone; then they return to float in the order of what they win per
nanosecond that they cost, and the shortest prefix that is good enough is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from convertkit.good_enough import LEAST_DB
from convertkit.progress import Progress
from convertkit.quantization.calibrate.flat import shown_db
from convertkit.quantization.calibrate.ranges import Affine
from convertkit.quantization.graph.units import Unit, is_among
from convertkit.quantization.place.costs import unit_work
from convertkit.quantization.place.precision_assignment import choose_integer, total_cost
from convertkit.quantization.place.statistics import statistics_units
from convertkit.quantization.search.plan import Plan, Ranges, placed
from convertkit.quantization.search.trial import Score, Trials
from convertkit.quantization.weights.integers import QuantizedWeight
from convertkit.quantization.weights.weight_only import is_candidate, nearest
from convertkit.recipe import ExportOptions

_SUSPECTS, _REPAIRS = 24, 8
"""Units that are tried alone at any cost, and where only what is nearly as fast in float is repaired."""
_DEARER = 1.10
"""Without ``--max-drop``, a repair may make the whole model slower by at most this factor by the cost table, or by …"""
_UNNOTICED_NS = 1000.0
"""… no more than this: of a model of a few microseconds, a single conversion is more than a tenth."""
_LEAST_GAIN_DB = 0.1
_LEAST_POINTS = 0.1
"""Of top-1 accuracy that a unit in float has to win where it wins no SNR and no accuracy was asked for."""
_STORED_LOSS_DB = 1.0


@dataclass(frozen=True, slots=True)
class Point:
    """One plan of the trade-off: how many units are float, what it costs (ns) and what it scores."""

    float_units: int
    cost_ns: float
    score: Score


@dataclass(frozen=True, slots=True)
class Outcome:
    """The plan that was kept, the nodes that went back to float with the reason, and the way there."""

    plan: Plan
    score: Score
    kept: Mapping[str, str]
    curve: tuple[Point, ...]


class Loop:
    """Searches the cheapest mix of integer and float units that is good enough."""

    def __init__(
        self,
        units: tuple[Unit, ...],
        ranges: Ranges,
        options: ExportOptions,
        trials: Trials,
        progress: Progress,
    ) -> None:
        self._units, self._ranges, self._options = units, ranges, options
        self._trials, self._progress = trials, progress

    def as_is(self, plan: Plan) -> Outcome:
        """The plan itself, measured."""
        score = self._trials.score(plan)
        return Outcome(plan, score, {}, (Point(0, self.cost_ns(plan), score),))

    def run(self, plan: Plan) -> Outcome:
        """The plan itself where it is good enough already."""
        plain = self.as_is(plan)
        score, (first,) = plain.score, plain.curve
        start, curve = first.cost_ns, [first]
        if self._good(score) or self._options.full_integer:
            return plain
        gains = self._gains(plan, score, at_any_cost=self._options.max_drop is not None)
        kept: dict[str, str] = {}
        current, reached = plan, score
        least = _LEAST_POINTS if self._options.max_drop is None else 0.0
        for name, gain in gains:
            changed = replace(current, integer=current.integer - {name})
            cost = self.cost_ns(changed)
            if self._options.max_drop is None and _is_dear(cost, start):
                continue
            better = self._trials.score(changed)
            if not better.beats(reached) and reached.drop - better.drop <= least:
                continue
            kept[name] = f"float wins {gain:.1f} dB alone, {better.snr_db - reached.snr_db:.1f} dB here"
            current, reached = changed, better
            curve.append(Point(len(kept), cost, better))
            if self._good(reached):
                break
        return Outcome(current, reached, kept, tuple(curve))

    def sensitive(self, outcome: Outcome) -> Mapping[str, str]:
        """Integer units that win in float, whatever that costs, the most worthwhile first, each with what it wins."""
        gains = self._gains(outcome.plan, outcome.score, at_any_cost=True)
        return {name: f"float wins {gain:.1f} dB alone" for name, gain in gains}

    def statistics(self, plan: Plan) -> frozenset[str]:
        """Integer units among the statistics of norms, softmax and logarithms."""
        return statistics_units(self._units) & plan.integer

    def without(self, plan: Plan, names: Collection[str]) -> Plan:
        """The plan with those units in float, and what else pays no more without them."""
        stays = frozenset(unit.name for unit in self._units if unit.name not in plan.integer or unit.name in names)
        chosen = choose_integer(self._units, self._ranges.profile, insist=False, keep_float=stays)
        integer = frozenset(unit.name for unit in chosen)
        return replace(plan, integer=integer, in_float=plan.in_float & integer)

    def ordered(self, plan: Plan) -> list[str]:
        """Integer units in the graph's order."""
        return [unit.name for unit in self._units if unit.name in plan.integer]

    @property
    def converts_for_nothing(self) -> bool:
        """Whether kernels read and write integers or float at no cost of their own."""
        return self._ranges.profile.writes_float

    @property
    def stores_weights(self) -> bool:
        """Whether the target makes integer weights of float operators real once."""
        return self._ranges.profile.tables

    def float_cost_ns(self) -> float:
        """The float model's time by the cost table."""
        profile = replace(self._ranges.profile, dynamic=frozenset())
        if not profile.costs:
            return float(sum(2 * unit_work(unit) for unit in self._units))
        return total_cost(self._units, profile, frozenset())

    def with_stored_weights(self, outcome: Outcome, able: frozenset[str] = frozenset()) -> Outcome:
        """Integer weights for the units that stay float, where that costs next to nothing: a quarter of their bytes.

        It may also cost what integers for all of ``able`` would, where they stay float for the sake of speed alone.
        The profile says whether the target makes such weights real once.
        """
        if not self.stores_weights:
            return outcome
        plan = self._with_integer_neighbours(replace(outcome.plan, stored=True))
        score = self._trials.score(plan)
        limit = self._options.max_drop
        drops = limit is not None and score.drop > max(outcome.score.drop, limit / 2)
        if drops or not self._is_level_enough(score, outcome, able):
            return outcome
        kept = {name: why for name, why in outcome.kept.items() if name not in plan.integer}
        return replace(outcome, plan=plan, score=score, kept=kept)

    def _is_level_enough(self, score: Score, outcome: Outcome, able: frozenset[str]) -> bool:
        if score.snr_db > outcome.score.snr_db - _STORED_LOSS_DB:
            return True
        more = able - outcome.plan.integer - outcome.kept.keys()
        if not more:
            return False
        whole = self._trials.score(replace(outcome.plan, integer=outcome.plan.integer | more))
        return score.snr_db >= whole.snr_db

    def _with_integer_neighbours(self, plan: Plan) -> Plan:
        """Units with stored weights that read and write nothing but integers compute in integers, with those weights.

        The numbers are the same and most kernels are faster; where float is, a target that ``keeps_float`` stays
        there.  ONNX Runtime's optimiser makes such a unit integer in
        any case, with one scale for the whole weight
        (onnxruntime/core/optimizer/qdq_transformer/weight_bias_quantization.cc).
        """
        integer = frozenset(unit for unit in self._units if unit.name in plan.integer)
        moved = [unit for unit in self._units if unit not in integer and is_candidate(unit) and is_among(unit, integer)]
        profile = self._ranges.profile
        if profile.keeps_float:
            start = total_cost(self._units, profile, integer)
            moved = [unit for unit in moved if total_cost(self._units, profile, integer | {unit}) <= start]
        weights = {unit.name: nearest(unit, profile) for unit in moved}
        plain = {name: weight for name, weight in weights.items() if isinstance(weight, QuantizedWeight)}
        return replace(plan, integer=plan.integer | plain.keys(), tuned={**plan.tuned, **plain})

    def _good(self, score: Score) -> bool:
        if self._options.max_drop is None:
            return score.is_good
        return score.drop <= self._options.max_drop / 2 and score.worst_db >= LEAST_DB

    def _gains(self, plan: Plan, score: Score, *, at_any_cost: bool) -> list[tuple[str, float]]:
        """Suspects and what each wins in dB when it alone is float, by gain per added time."""
        base = self.cost_ns(plan)
        found = []
        most = _SUSPECTS if at_any_cost else _REPAIRS
        suspects = self.noisiest(plan)[: min(most, self._trials.affordable)]
        if not self._trials.score(replace(plan, integer=plan.integer - {*suspects})).beats(score):
            return []
        for name in self._progress.track(suspects, len(suspects), "finding sensitive nodes"):
            changed = replace(plan, integer=plan.integer - {name})
            cost = self.cost_ns(changed)
            if not at_any_cost and _is_dear(cost, base):
                continue
            gain = self._trials.score(changed).snr_db - score.snr_db
            added = max(cost - base, base * 1e-3)
            if gain > _LEAST_GAIN_DB:
                found.append((gain / added, name, gain))
        return [(name, gain) for _, name, gain in sorted(found, key=lambda item: (-item[0], item[1]))]

    def noisiest(self, plan: Plan) -> list[str]:
        """Integer units, those with the noisiest tensors first; moves of data follow their neighbours."""
        placement = placed(self._units, plan, self._ranges)
        levels = []
        for unit in self._units:
            if unit not in placement.integer:
                continue
            tensors = [(value, placement.values[value]) for value in unit.outputs]
            tensors += [
                (value, placement.edges.get((unit, index)) or placement.values[value])
                for index, value in unit.data.items()
            ]
            # Beside loud values, quiet ones are lost in a joint histogram.
            joins = unit.data.values() if unit.node.op_type == "Concat" else ()
            tensors += [(value, placement.values[unit.outputs[0]]) for value in joins]
            noise = [self._level(str(value.name), parameters) for value, parameters in tensors]
            levels.append((min(noise, default=0.0), unit.name))
        return [name for _, name in sorted(levels)]

    def _level(self, name: str, parameters: Affine) -> float:
        return shown_db(self._ranges.statistics[name].histogram, parameters, self._ranges.traits.flats.get(name))

    def cost_ns(self, plan: Plan) -> float:
        """The whole model's time by the cost table."""
        kernels = plan.integer - plan.in_float
        integer = frozenset(unit for unit in self._units if unit.name in kernels)
        profile = self._ranges.profile
        if not profile.costs:
            return float(sum(unit_work(unit) * (1 if unit in integer else 2) for unit in self._units))
        return total_cost(self._units, profile, integer)


def _is_dear(cost: float, start: float) -> bool:
    return cost > max(start * _DEARER, start + _UNNOTICED_NS)
