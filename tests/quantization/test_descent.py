"""Integers that lose too much are not delivered: what takes their place, in which order, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.data.held_out import held_out_positions
from convertkit.errors import ParityError
from convertkit.onnx.canonical import canonicalize
from convertkit.profile import QuantProfile
from convertkit.progress import Silent
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.statistics import statistics_units
from convertkit.quantization.search.descent import Descent, Rung, told
from convertkit.quantization.search.floor import refuse_ruin
from convertkit.quantization.search.loop import Loop
from convertkit.quantization.search.plan import Plan, Ranges
from convertkit.quantization.search.quality import Quality
from convertkit.quantization.search.trial import Score
from convertkit.recipe import ExportOptions
from convertkit.targets.openvino.profile import profile as openvino
from convertkit.targets.tensorrt.profile import profile as tensorrt
from convertkit.targets.tflite.profile import profile as tflite
from tests.command_line import here
from tests.quantization.models import (
    few_loud,
    gain_invariant_classifier,
    linear_classifier,
    loud_and_quiet,
    model_of,
)

INT8 = ExportOptions(source="x", precision="int8")
CALIBRATION = loud_and_quiet(65, seed=3)[0]
FRESH = loud_and_quiet(129, seed=4)[0]
WRECK = Quality(16, 4.6, 8.0, 0.0, 4.6, agreement=0.79, drop=20.0)
FINE = Quality(16, 36.8, 40.0, 30.0, 36.8, agreement=1.0, drop=0.0)


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_a_classifier_of_quiet_samples_is_no_wreck(quantized, target: str) -> None:
    """With integers wherever there are kernels a quarter of the samples changes its class."""
    result = quantized(gain_invariant_classifier(), CALIBRATION, target=target, without_costs=True)
    found = result.stage.diagnosis
    assert not found["rungs"][0]["good"]
    assert found["rungs"][0]["agreement"] < 0.9
    assert found["rungs"][-1]["good"]
    assert found["held_out"]["agreement"] == 1.0
    before, after = result.outputs(FRESH)
    assert (before.argmax(-1) == after.argmax(-1)).mean() >= 0.99
    (note,) = found["notes"]
    assert "75.0 % agreement with float on 16 held-out samples, too little" in note
    assert "times the time" in note


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_few_loud_samples_that_hold_the_signal_do_not_decide_for_all(quantized, target: str) -> None:
    """Every seventh sample is forty times louder: integers keep 23 dB in sum, and of the others next to nothing."""
    model, (seen, fresh) = linear_classifier(), (few_loud(count, seed) for count, seed in ((256, 3), (128, 4)))
    result = quantized(model, seen, target=target, without_costs=True)
    first, last = (result.stage.diagnosis["rungs"][place] for place in (0, -1))
    assert first["snr_db"] > 20
    assert first["snr_db_p5"] < 10
    assert not first["good"]
    assert last["good"]
    before, after = result.outputs(fresh)
    noise, signal = (np.square(each).mean(-1) for each in (before - after, before))
    each_db = 10 * np.log10(signal / noise)
    assert np.median(each_db) > 20
    assert np.quantile(each_db, 0.05) > 20
    assert (before.argmax(-1) == after.argmax(-1)).mean() >= 0.96


def test_who_insists_gets_a_wreck_only_from_a_gate(quantized) -> None:
    model = gain_invariant_classifier()
    with pytest.raises(ParityError, match=r"--int8 --accept-loss keeps \d\.\d dB .* below 10 dB nothing is delivered"):
        quantized(model, CALIBRATION, target="onnxruntime", without_costs=True, accept_loss=True)
    louder = loud_and_quiet(65, seed=3, decades=1.8)[0]
    taken = quantized(model, louder, target="onnxruntime", without_costs=True, accept_loss=True).stage.diagnosis
    assert (taken["effective"], len(taken["rungs"])) == ("int8", 1)
    assert 10 < taken["held_out"]["snr_db"] < 20


def test_a_gate_is_given_what_it_will_pass(quantized) -> None:
    found = quantized(
        gain_invariant_classifier(), CALIBRATION, target="onnxruntime", without_costs=True, max_drop=1.0
    ).stage.diagnosis
    assert found["held_out"]["expected_drop"] <= 1.0
    assert found["effective"] != "float32"


@dataclass
class Trials:
    """Integers are a wreck, in as many units as there may be; stored weights keep what they are said to."""

    stored: Quality
    most: int = 0
    affordable = 24

    def score(self, plan: Plan) -> Score:
        level = 20.0 - len(plan.integer)
        return Score(np.full((2, 8), 10 ** (-level / 10)), level, 0.0, np.full(8, level))

    def finished(self, plan: Plan, finish: object) -> tuple[Quality, int]:
        if len(plan.integer) > self.most:
            return WRECK, 1000
        return (self.stored if plan.stored and not plan.integer else FINE), 1000


@dataclass
class Amplified(Trials):
    """Integers ahead of unit ``first`` ruin everything, and no unit alone in float gains anything."""

    first: int = 0

    def score(self, plan: Plan) -> Score:
        return Score(np.full((2, 8), 0.1), 10.0, 0.0, np.full(8, 10.0))

    def finished(self, plan: Plan, finish: object) -> tuple[Quality, int]:
        ruined = any(name < f"conv{self.first}" for name in plan.integer)
        return WRECK if ruined else FINE, 1000


def descend(trials: Trials, options: ExportOptions = INT8, profile: QuantProfile | None = None) -> list[str]:
    return [rung.name for rung in descended(trials, options, profile)]


def descended(
    trials: Trials, options: ExportOptions = INT8, profile: QuantProfile | None = None, *, depth: int = 4
) -> tuple[Rung, ...]:
    rng = np.random.default_rng(0)
    weights = {f"w{place}": rng.normal(0, 0.3, (64, 64, 1, 1)).astype(np.float32) for place in range(depth)}
    names = ["x", *(f"v{place}" for place in range(1, depth)), "y"]
    nodes = [helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], f"conv{i}") for i in range(depth)]
    model = model_of(nodes, weights, {"x": [1, 64, 32, 32]}, {"y": [1, 64, 32, 32]})
    graph = canonicalize(ir.from_proto(onnx.shape_inference.infer_shapes(model))).graph
    profile = profile or tflite(INT8)
    units = find_units(graph, profile)

    class Noisy(Loop):
        def noisiest(self, plan: Plan) -> list[str]:
            return sorted(plan.integer)

    loop = Noisy(units, Ranges({}, profile), options, trials, Silent())  # type: ignore[arg-type]
    outcome = loop.as_is(Plan(frozenset(unit.name for unit in units), "mse"))
    rungs = Descent(loop, trials, options, lambda copy, plan: None, lambda plan: plan).run(outcome)  # type: ignore[arg-type]
    assert len(told(rungs, "--int8")) == (len(rungs) > 1)
    return rungs


def test_rungs_are_taken_in_order_until_enough_is_kept() -> None:
    mixed = ["integers", "float fallback", "more float", "more float"]
    assert descend(Trials(FINE, most=4)) == mixed[:1]
    assert descend(Trials(FINE, most=2)) == mixed[:2]
    found = descend(Trials(FINE))
    assert found[:2] == mixed[:2]
    assert found[-1] == "weights only"
    assert descend(Trials(WRECK))[-2:] == ["weights only", "float"]


@pytest.mark.parametrize("first", [1, 2])
def test_the_shortest_beginning_becomes_float_where_kernels_convert_for_nothing(first: int) -> None:
    rungs = descended(Amplified(FINE, first=first), profile=openvino(INT8, byte_sums=False), depth=8)
    assert [rung.name for rung in rungs] == ["integers", "float fallback", "float beginning"]
    assert rungs[-1].outcome.plan.integer == {f"conv{place}" for place in range(first, 8)}
    assert list(rungs[-1].outcome.kept) == [f"conv{place}" for place in range(first)]


def test_a_beginning_that_takes_more_than_a_quarter_of_the_time_is_left_to_other_rungs() -> None:
    rungs = descended(Amplified(FINE, first=3), profile=openvino(INT8, byte_sums=False), depth=8)
    (short,) = (rung for rung in rungs if rung.name == "float beginning")
    assert not short.good
    assert len(short.outcome.plan.integer) == 6
    assert rungs[-1].good


def test_where_conversions_cost_something_no_beginning_is_tried() -> None:
    assert "float beginning" not in descend(Amplified(FINE, first=1))


def test_whoever_insists_goes_no_step_down() -> None:
    assert descend(Trials(WRECK), replace(INT8, accept_loss=True)) == ["integers"]
    assert descend(Trials(WRECK), replace(INT8, full_integer=True)) == ["integers"]


def test_weights_alone_are_no_rung_where_the_target_computes_them_at_each_call() -> None:
    assert "weights only" not in descend(Trials(FINE), profile=tensorrt(INT8))


@pytest.mark.parametrize(
    ("options", "refused", "way"),
    [
        (INT8, True, "--eval"),
        (replace(INT8, full_integer=True), True, "without --full-integer"),
        (replace(INT8, accept_loss=True), True, "without --accept-loss"),
        (replace(INT8, full_integer=True, max_drop=1.0), False, ""),
    ],
)
def test_below_ten_decibels_only_a_gate_delivers(options: ExportOptions, refused: bool, way: str) -> None:
    refuse_ruin(FINE, options)
    refuse_ruin(None, options)
    if not refused:
        refuse_ruin(WRECK, options)
        return
    with pytest.raises(ParityError, match=r"4\.6 dB and 79\.0 % agreement") as caught:
        refuse_ruin(WRECK, options)
    assert way in str(caught.value)
    assert caught.value.exit_code == 3


def test_statistics_end_at_products() -> None:
    model = canonicalize(ir.from_proto(gain_invariant_classifier()))
    units = find_units(model.graph, tflite(INT8))
    assert statistics_units(units) == {"square", "mean", "epsilon"}


def test_nothing_is_left_of_what_is_not_delivered(tmp_path) -> None:
    """Every fourth sample, which no range is measured on, is fifty times louder: clipped."""
    rng = np.random.default_rng(0)
    weights = {f"w{place}": rng.normal(0, 0.2, (16, 16, 3, 3)).astype(np.float32) for place in range(2)}
    nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"conv{i}", pads=[1] * 4) for i in range(2)]
    model = model_of(nodes, weights, {"x0": [1, 16, 24, 24]}, {"x2": [1, 16, 24, 24]})
    data = rng.normal(0, 1, (40, 16, 24, 24)).astype(np.float32)
    data[list(held_out_positions(len(data)))] *= 50
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x0=data)
    line = ["export", tmp_path / "model.onnx", "--int8", "--full-integer", "--calib", tmp_path / "data.npz"]
    said = here(*line, "--target", "tflite", "--output", tmp_path / "out")
    assert said.code == 3
    assert "below 10 dB nothing is delivered" in said.err
    assert "--int8 without --full-integer" in said.err
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "data.npz"}
