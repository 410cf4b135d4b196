"""Integer weights for what stays float: taken where the held-out samples hardly notice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.profile import QuantProfile
from convertkit.progress import Silent
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.search.loop import Loop, Outcome
from convertkit.quantization.search.plan import Plan, Ranges
from convertkit.quantization.search.trial import Score
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime.profile import profile as onnxruntime
from convertkit.targets.tensorrt.profile import profile as tensorrt
from convertkit.targets.tflite.profile import profile as tflite
from tests.quantization.models import model_of

INT8 = ExportOptions(source="x", precision="int8")


@dataclass
class Trials:
    """Integer weights cost ``loss_db`` and nothing else does."""

    loss_db: float

    def score(self, plan: Plan) -> Score:
        level = 30.0 - self.loss_db * plan.stored
        return Score(np.full((2, 8), 10 ** (-level / 10)), level, 0.0, np.full(8, level))


@pytest.mark.parametrize(
    ("profile", "loss_db", "stored"),
    [
        (tflite(INT8), 0.9, True),
        (tflite(INT8), 1.1, False),
        (onnxruntime(INT8), 0.9, True),
        (onnxruntime(INT8), 1.1, False),
        (tensorrt(INT8), 0.0, False),
    ],
    ids=["tflite", "tflite, loss", "onnxruntime", "onnxruntime, loss", "tensorrt"],
)
def test_weights_are_stored_as_integers(profile: QuantProfile, loss_db: float, stored: bool) -> None:
    trials = Trials(loss_db)
    loop = Loop((), Ranges({}, profile), INT8, trials, Silent())  # type: ignore[arg-type]
    plan = Plan(frozenset(), "mse")
    kept = loop.with_stored_weights(Outcome(plan, trials.score(plan), {}, ()))
    assert kept.plan.stored is stored
    assert kept.score.snr_db == 30.0 - loss_db * stored


@dataclass
class Levels:
    """SNR in dB by what computes in integers; stored weights cost 30 dB of a float model's 80."""

    integers_db: float

    def score(self, plan: Plan) -> Score:
        level = self.integers_db if plan.integer else 50.0 if plan.stored else 80.0
        return Score(np.full((2, 8), 10 ** (-level / 10)), level, 0.0, np.full(8, level))


@pytest.mark.parametrize(("integers_db", "stored"), [(40.0, True), (60.0, False)])
def test_a_float_model_stores_weights_that_lose_less_than_integers_would(integers_db: float, stored: bool) -> None:
    trials = Levels(integers_db)
    loop = Loop((), Ranges({}, onnxruntime(INT8)), INT8, trials, Silent())  # type: ignore[arg-type]
    plan = Plan(frozenset(), "mse")
    outcome = Outcome(plan, trials.score(plan), {}, ())
    assert loop.with_stored_weights(outcome, frozenset({"conv"})).plan.stored is stored
    assert not loop.with_stored_weights(outcome).plan.stored


def test_a_unit_with_stored_weights_among_integers_is_an_integer_one() -> None:
    """Its numbers are the same, and ONNX Runtime would make it one by itself, with one scale for the weight."""
    profile = tflite(INT8)
    rng = np.random.default_rng(0)
    weights = {f"w{place}": rng.normal(0, 0.3, (40, 40, 1, 1)).astype(np.float32) for place in range(3)}
    names = ["x", "a", "b", "y"]
    nodes = [helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], f"conv{i}") for i in range(3)]
    model = model_of(nodes, weights, {"x": [1, 40, 4, 4]}, {"y": [1, 40, 4, 4]})
    graph = canonicalize(ir.from_proto(onnx.shape_inference.infer_shapes(model))).graph
    units = find_units(graph, profile)
    trials = Trials(0.0)
    loop = Loop(units, Ranges({}, profile), INT8, trials, Silent())  # type: ignore[arg-type]
    outer = Plan(frozenset({"conv0", "conv2"}), "mse")
    found = loop.with_stored_weights(Outcome(outer, trials.score(outer), {"conv1": "float wins"}, ()))
    assert found.plan.integer == {"conv0", "conv1", "conv2"}
    assert found.plan.tuned.keys() == {"conv1"}
    assert found.kept == {}
    first = Plan(frozenset({"conv0"}), "mse")
    assert loop.with_stored_weights(Outcome(first, trials.score(first), {}, ())).plan.integer == {"conv0"}


@dataclass
class Drops:
    """SNR is the same throughout; ``points`` of accuracy are won where the unit is float."""

    points: float
    affordable: int = 8

    def score(self, plan: Plan) -> Score:
        return Score(np.full((2, 8), 0.1), 10.0, 1.0 if plan.integer else 1.0 - self.points, np.full(8, 10.0))


@pytest.mark.parametrize(
    ("points", "max_drop", "kept"), [(0.2, None, True), (0.05, None, False), (0.05, 0.2, True)], ids=str
)
def test_a_unit_is_float_for_accuracy_that_can_be_told(
    points: float, max_drop: float | None, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth of a point is no sample; where accuracy was asked for, all of it counts."""
    monkeypatch.setattr(Loop, "_gains", lambda *_, **__: [("conv", 0.1)])
    monkeypatch.setattr(Loop, "cost_ns", lambda *_: 1000.0)
    options = ExportOptions(source="x", precision="int8", max_drop=max_drop)
    loop = Loop((), Ranges({}, tflite(INT8)), options, Drops(points), Silent())  # type: ignore[arg-type]
    assert ("conv" in loop.run(Plan(frozenset({"conv"}), "mse")).kept) is kept
