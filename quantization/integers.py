"""From a float model and calibration feeds to the QDQ model, step by step.

Ranges are measured on one part of the data; everything that is chosen (calibration methods, tuned
weights, corrected biases, nodes that stay float) is chosen on the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import drop_unused
from convertkit.profile import QuantProfile
from convertkit.progress import Progress
from convertkit.quantization.calibrate.flat import flat_values
from convertkit.quantization.calibrate.grids import grids
from convertkit.quantization.calibrate.histogram import Statistics, merge_samples
from convertkit.quantization.calibrate.ranges import WEIGHTED_MSE, noise
from convertkit.quantization.calibrate.shared import Calibrate, collected
from convertkit.quantization.calibrate.split import split, thinned
from convertkit.quantization.effect import effect, held_out
from convertkit.quantization.graph.sizes import measure_sizes
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.estimates import described, estimates
from convertkit.quantization.place.exact_float import exact_in_float
from convertkit.quantization.place.full_integer import refuse_float
from convertkit.quantization.place.graph_cost import exact_choices, is_float_faster
from convertkit.quantization.place.graph_io import quantize_ends
from convertkit.quantization.place.joins import told_of_joins, uneven_joins
from convertkit.quantization.place.masks import marking_units, measurable
from convertkit.quantization.place.place import Placement
from convertkit.quantization.place.precision_assignment import choose_integer, with_float_end
from convertkit.quantization.place.write import default_weight, input_scale
from convertkit.quantization.prepare.attention import attention_in_parts
from convertkit.quantization.prepare.divisions import divisions_as_products
from convertkit.quantization.prepare.finite_masks import finite_masks
from convertkit.quantization.prepare.look_ups import store_tables, tables_as_values
from convertkit.quantization.prepare.norms import norms_as_convolutions
from convertkit.quantization.prepare.norms_in_parts import norms_in_parts
from convertkit.quantization.prepare.of_sizes import values_of_sizes
from convertkit.quantization.prepare.opset import INT16_OPSET, at_least
from convertkit.quantization.prepare.outside_tables import NOTE as OUTSIDE
from convertkit.quantization.prepare.outside_tables import without_outside
from convertkit.quantization.prepare.pixels import pixels_as_integers
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.prepare.repeated import repeated_places
from convertkit.quantization.prepare.resizing import convolve_before_enlarging
from convertkit.quantization.prepare.whole_numbers import whole_numbers_as_tables
from convertkit.quantization.report import describe
from convertkit.quantization.search.choose_ranges import choose_methods
from convertkit.quantization.search.descent import Descent
from convertkit.quantization.search.descent import told as told_instead
from convertkit.quantization.search.equalized import equalized
from convertkit.quantization.search.floor import refuse_ruin
from convertkit.quantization.search.loop import Loop, Outcome
from convertkit.quantization.search.plan import Plan, Ranges, Traits, apply, placed
from convertkit.quantization.search.stored import StoredWeights
from convertkit.quantization.search.trial import Trials
from convertkit.quantization.search.weighted import affordable_samples, weighted
from convertkit.quantization.weights.blas import one_thread
from convertkit.quantization.weights.blocks import BlockedWeight
from convertkit.quantization.weights.integers import QuantizedWeight
from convertkit.quantization.weights.left_float import store_what_is_float
from convertkit.quantization.weights.patches import Moments, has_rows, moments
from convertkit.quantization.weights.recurrent import quantize_recurrent
from convertkit.quantization.weights.tables import quantize_tables
from convertkit.quantization.weights.tune import Tuned, affordable, bias_shift, tune_all, worth_tuning
from convertkit.recipe import ExportOptions
from convertkit.stage import Feed, FeedSource, Once

_SINGLE_TENSOR_TRIALS = 12
_WIDE = 32
"""Samples that one method for all tensors is chosen on."""
_UNNOTICED = 0.01
"""Of the time: what small tables of integers may cost."""
_LEAST_DB = 0.5
"""That more of the model in float has to gain: held-out samples tell no less apart, and it may take 3 % longer."""
PASSES = ("equalize", "ranges", "rounding", "bias", "loop")
"""What is tried, each kept only where it gains; leaving one out shows what it is worth."""


class Integers:
    """One quantization; ``diagnosis`` tells afterwards what was decided and why."""

    def __init__(
        self,
        model: ir.Model,
        profile: QuantProfile,
        options: ExportOptions,
        feeds: FeedSource,
        state: Mapping[str, Array],
        progress: Progress,
        passes: Collection[str] = PASSES,
        once: Once | None = None,
    ) -> None:
        self._once = once
        self._passes = frozenset(passes)
        self._model = at_least(model, INT16_OPSET) if profile.activation == "int16" else model
        self._profile, self._options = profile, options
        self._data_sha256 = feeds.sha256
        self._measured, self._held_out = split(feeds)
        self._held_out_is_all = len(self._held_out) == len(feeds)
        self._state, self._progress = state, progress
        self._diagnosis: Mapping[str, object] = {}

    def quantized(self) -> ir.Model:
        """The QDQ model."""
        with one_thread():
            return self._quantized()

    def _quantized(self) -> ir.Model:
        outside = self._prepared()
        units = find_units(self._model.graph, self._profile)
        method = self._options.calib_method
        integer = self._integer(units, marking_units(units))
        on_the_fly = frozenset(unit.name for unit in units if unit.kinds[-1] in self._profile.dynamic)
        plan = Plan(integer, "mse" if method == "auto" else method, dynamic=on_the_fly)
        moved: Mapping[str, str] = {}
        if "equalize" in self._passes:
            self._progress.status("equalizing channels")
            data = self._measured, self._held_out
            self._model, moved = equalized(self._model, plan, self._profile, *data, self._state)
            units = find_units(self._model.graph, self._profile)
        statistics = self._observed(units, self._measured)
        uneven = frozenset() if self._insists else uneven_joins(units, statistics, self._profile)
        joined = told_of_joins(units, statistics, self._profile, self._insists) if self._insists else []
        marking = marking_units(units, statistics) | uneven
        plan = replace(plan, integer=self._integer(units, marking))
        traits = self._traits(statistics)
        ranges = Ranges(statistics, self._profile, traits)
        trials = Trials(self._model, ranges, self._held_out, self._state)
        plan = self._in_float(units, self._most_exact(units, plan, trials, marking), marking)
        if method == "auto" and "ranges" in self._passes:
            plan = self._with_ranges(units, plan, trials, ranges)
        plan, tuned = self._tuned(units, plan, trials, ranges)
        loop = Loop(units, ranges, self._options, trials, self._progress)
        outcome = loop.run(plan) if "loop" in self._passes else loop.as_is(plan)
        outcome = loop.with_stored_weights(outcome, self._able(units, outcome.plan, marking))
        better = self._better_stored(trials)
        if outcome.plan.stored and (plan := better(outcome.plan)) is not outcome.plan:
            outcome = replace(outcome, plan=plan, score=trials.score(plan))
        finish = partial(self._finish, statistics, _UNNOTICED * loop.cost_ns(outcome.plan))
        rungs = Descent(loop, trials, self._options, finish, better).run(outcome)
        outcome, quality = rungs[-1].outcome, rungs[-1].quality
        if self._options.recover is None:  # else what training leaves is judged
            refuse_ruin(quality, self._options)
        kernels = outcome.plan.integer - outcome.plan.in_float
        estimated = estimates(units, self._profile, frozenset(unit for unit in units if unit.name in kernels))
        # What was chosen stays; the ranges may now take all of the data into account.
        merge_samples(statistics, self._observed(units, self._held_out))
        placement = apply(self._model, outcome.plan, Ranges(statistics, self._profile, traits))
        finish(self._model, outcome.plan)
        told = describe(units, placement, statistics, outcome, tuned, traits, uneven)
        notes = told_instead(rungs, f"--{self._options.precision}") or self._notes(units, placement, outcome)
        self._diagnosis = {
            **effect(self._model, self._options.precision, self._profile),
            "held_out": held_out(quality, is_all=self._held_out_is_all),
            **told,
            "equalized": dict(moved),
            "estimated": described(estimated),
            "rungs": [rung.described() for rung in rungs],
            "notes": [*notes, *joined, *outside],
        }
        return self._model

    def _prepared(self) -> list[str]:
        """Bring the model into forms that quantize well; what the result tells of it."""
        if self._profile.written_out is not None:
            self._profile.written_out(self._model)
        outside = self._options.full_integer and without_outside(self._model)
        if self._options.full_integer:
            values_of_sizes(self._model, self._profile, self._held_out[0], self._state)
            pixels_as_integers(self._model)
            repeated_places(self._model)
            attention_in_parts(self._model, self._profile)
            finite_masks(self._model, self._profile, self._measured, self._state)
            whole_numbers_as_tables(self._model, self._profile, self._measured, self._state)
            divisions_as_products(self._model, self._profile)
            norms_in_parts(self._model, self._profile)
            tables_as_values(self._model, self._profile)
        prepare(self._model)
        convolve_before_enlarging(self._model)
        norms_as_convolutions(self._model, vectors=self._options.full_integer)
        measure_sizes(self._model, self._held_out[0], self._state)
        return [OUTSIDE] if outside else []

    def _notes(self, units: tuple[Unit, ...], placement: Placement, outcome: Outcome) -> list[str]:
        """What the result says where there are no integers to compute with."""
        if placement.integer:
            return []
        stored = any(node.op_type == "DequantizeLinear" for node in self._model.graph)
        halves = any(value.dtype == ir.DataType.FLOAT16 for value in self._model.graph.initializers.values())
        plain = "some weights are float16, all else is float" if halves else "the artifact is the float model"
        made = "weights are int8, all else is float" if stored else plain
        if not any(unit.rule is not None and not unit.rule.same_scale for unit in units):
            none = f"{made}: {self._profile.name} has integer kernels for none of its operators"
            narrow = f"; matrices narrower than {self._profile.tile} become integers with --full-integer alone"
            return [none + narrow if self._profile.tile else none]
        slow = f"would save less than {100 * self._profile.least_gain:.0f} % of the time by the cost table"
        why = "lose too much on the calibration data" if outcome.kept else slow
        return [f"{made}: integers {why}; --full-integer insists on them"]

    def _finish(self, statistics: Mapping[str, Statistics], allowed_ns: float, model: ir.Model, plan: Plan) -> None:
        """What is written beside the pairs of the plan; ``allowed_ns`` is what look-ups in tables may add."""
        if self._options.io_dtype != "float32":
            quantize_ends(model.graph, self._profile, statistics)
        is_float = not (plan.integer or plan.stored or plan.dynamic)
        if self._profile.tables and self._profile.integer_rows and not is_float:
            row = self._profile.costs.get("Gather.row")
            quantize_tables(model.graph, 0.0 if row is None else row.integer_call, allowed_ns)
        if self._profile.recurrent and not is_float:
            quantize_recurrent(model)
        if self._profile.left_as_halves and not is_float:
            store_what_is_float(model)
        store_tables(model)
        drop_unused(model.graph)

    def diagnosis(self) -> Mapping[str, object]:
        """What the report shows; see ``report.describe``."""
        return self._diagnosis

    def _traits(self, statistics: Mapping[str, Statistics]) -> Traits:
        """What ranges take into account beside statistics."""
        flats, method = flat_values(self._model.graph), self._options.calib_method
        on_grids = grids(self._model.graph, self._measured) if method == "auto" else {}
        # Norms in parts round again what small integers hold: with narrower ranges kernels differ by two steps.
        tries = "ranges" in self._passes and not self._options.full_integer
        wanted = tries if method == "auto" else method == WEIGHTED_MSE
        if not wanted or self._profile.activation == "int16":
            return Traits(flats, on_grids)
        self._progress.status("weighing values")
        feeds = tuple(thinned(self._measured, affordable_samples(self._model, self._held_out[0])))
        return Traits(flats, on_grids, weighted(self._model, statistics, feeds, self._state, self._options.seed))

    def _with_ranges(self, units: tuple[Unit, ...], plan: Plan, trials: Trials, ranges: Ranges) -> Plan:
        """The plan with the method that suits each range best."""
        self._progress.status("choosing ranges")
        groups = placed(units, plan, ranges).groups
        single = min(_SINGLE_TENSOR_TRIALS, trials.affordable // 3)
        return choose_methods(plan, trials, self._wide(trials, ranges), groups, ranges, single)

    def _wide(self, trials: Trials, ranges: Ranges) -> Trials:
        """Trials on more samples where few are held out: those that ranges have seen, too, as far as work allows."""
        more = min(_WIDE, trials.affordable_feeds) - len(self._held_out)
        if more <= 0 or self._held_out_is_all:
            return trials
        feeds = (*self._held_out, *itertools.islice(self._measured, more))
        return Trials(self._model, ranges, feeds, self._state)

    @property
    def _insists(self) -> str:
        """The flags that insist on integers at the model's end; empty where floats leave it."""
        all_of_it = ["--full-integer"] if self._options.full_integer else []
        ends = [f"--io-dtype {self._options.io_dtype}"] if self._options.io_dtype != "float32" else []
        return " and ".join(all_of_it + ends)

    def _integer(self, units: tuple[Unit, ...], marking: frozenset[str]) -> frozenset[str]:
        """Names of the units that compute in integers; ``Unsupported`` where all of them should and one cannot."""
        insist = self._options.full_integer
        integer = choose_integer(units, self._profile, insist=insist, keep_float=marking)
        if insist:
            refuse_float(units, integer, marking, self._profile)
        return frozenset(unit.name for unit in integer)

    def _in_float(self, units: tuple[Unit, ...], plan: Plan, marking: frozenset[str]) -> Plan:
        """The plan with the integers of float kernels that lie between integers."""
        chosen = frozenset(unit for unit in units if unit.name in plan.integer)
        exact = exact_in_float([unit for unit in units if unit.name not in marking], chosen, self._profile)
        kernels = frozenset(unit.name for unit in exact if unit.rule is not None and not unit.rule.same_scale)
        if self._is_idle(units, chosen, exact):
            return replace(plan, integer=frozenset())
        return replace(plan, integer=plan.integer | {unit.name for unit in exact}, in_float=kernels)

    def _is_idle(self, units: tuple[Unit, ...], chosen: frozenset[Unit], exact: frozenset[Unit]) -> bool:
        insists = self._options.full_integer or not self._profile.costs
        return not insists and is_float_faster(units, chosen, exact - chosen, self._profile)

    def _most_exact(self, units: tuple[Unit, ...], plan: Plan, trials: Trials, marking: frozenset[str]) -> Plan:
        """The plan itself, or one that is about as fast by the cost table and loses less."""
        if self._options.full_integer:
            return plan
        chosen = frozenset(unit for unit in units if unit.name in plan.integer)
        for other in exact_choices(units, self._profile, chosen, marking):
            changed = replace(plan, integer=frozenset(unit.name for unit in other))
            plan = changed if trials.score(changed).snr_db > trials.score(plan).snr_db + _LEAST_DB else plan
        if self._options.io_dtype != "float32":
            return plan  # a float end would be rounded behind all the same, and keep its weights in float
        best = frozenset(unit for unit in units if unit.name in plan.integer)
        # Not by its score: held-out samples seldom are the loud ones that this is for.
        return replace(plan, integer=frozenset(unit.name for unit in with_float_end(units, self._profile, best)))

    def _able(self, units: tuple[Unit, ...], plan: Plan, marking: frozenset[str]) -> frozenset[str]:
        """Names of the units that could compute in integers, where the whole may be float for its speed."""
        if plan.integer and not self._profile.least_gain:
            return frozenset()
        able = choose_integer(units, replace(self._profile, costs={}), insist=False, keep_float=marking)
        return frozenset(unit.name for unit in able)

    def _observed(self, units: tuple[Unit, ...], feeds: Collection[Feed]) -> dict[str, Statistics]:
        """Statistics of what integers may need the range of; targets that ask for the same measure it once."""
        part = "held out" if feeds is self._held_out else "measured"
        names = tuple(measurable(units))
        calibrate = Calibrate(self._model, names, feeds, part, self._data_sha256, self._state, self._progress)
        return collected(calibrate, self._once)

    def _tuned(
        self, units: tuple[Unit, ...], plan: Plan, trials: Trials, ranges: Ranges
    ) -> tuple[Plan, Mapping[str, Tuned]]:
        """The plan with tuned weights, corrected biases, both or neither: what scores best."""
        placement = placed(units, plan, ranges)
        chosen = affordable([unit for unit in units if unit in placement.integer and has_rows(unit)])
        if not chosen:
            return plan, {}
        self._progress.status("tuning weights")
        rng = np.random.default_rng(self._options.seed)
        found = moments(self._model, chosen, self._held_out, self._state, rng)
        nearest = {unit.name: default_weight(unit, self._profile, input_scale(unit, placement)) for unit in chosen}
        worth = [unit for unit in chosen if self._worth_tuning(unit, nearest, found, placement, ranges)]
        tuned = tune_all(worth, nearest, found, self._profile) if "rounding" in self._passes else {}
        weights = {name: each.weight for name, each in tuned.items() if not isinstance(each.weight, BlockedWeight)}
        base = trials.score(plan)
        better: list[tuple[float, Plan]] = []
        for integers in ({}, weights) if weights else ({},):
            used = {unit.name: integers.get(unit.name, nearest[unit.name]) for unit in chosen}
            shifts = {u.name: bias_shift(u, used[u.name], found[u.name]) for u in chosen if u.bias is not None}
            variants = [replace(plan, tuned=integers)] if integers else []
            variants += [replace(plan, tuned=integers, shifts=shifts)] if "bias" in self._passes else []
            for variant in variants:
                if (level := trials.score(variant)).beats(base):
                    better.append((level.snr_db, variant))
        best = max(better, key=lambda item: item[0])[1] if better else plan
        return best, tuned if best.tuned else {}

    def _better_stored(self, trials: Trials) -> Callable[[Plan], Plan]:
        """What chooses integers for weights that a plan stores."""
        if "rounding" not in self._passes:
            return lambda plan: plan
        seed = self._options.seed
        return StoredWeights(
            self._model, self._profile, self._measured, self._state, seed, trials, self._progress
        ).better

    def _worth_tuning(
        self,
        unit: Unit,
        nearest: Mapping[str, QuantizedWeight],
        found: Mapping[str, Moments],
        placement: Placement,
        ranges: Ranges,
    ) -> bool:
        value = unit.data[min(unit.data)]
        parameters = placement.edges.get((unit, min(unit.data))) or placement.values[value]
        error = noise(ranges.statistics[str(value.name)].histogram, parameters)
        return worth_tuning(unit, nearest[unit.name], found[unit.name], error)
