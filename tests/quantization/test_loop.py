"""Integer weights for what stays float: taken where the held-out samples hardly notice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from convertkit.profile import QuantProfile
from convertkit.progress import Silent
from convertkit.quantization.loop import Loop, Outcome
from convertkit.quantization.plan import Plan, Ranges
from convertkit.quantization.trial import Score
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime.profile import profile as onnxruntime
from convertkit.targets.tensorrt.profile import profile as tensorrt
from convertkit.targets.tflite.profile import profile as tflite

INT8 = ExportOptions(source="x", precision="int8")


@dataclass
class Trials:
    """Integer weights cost ``loss_db`` and nothing else does."""

    loss_db: float

    def score(self, plan: Plan) -> Score:
        level = 30.0 - self.loss_db * plan.stored
        return Score(np.full((2, 8), 10 ** (-level / 10)), level, 0.0)


@pytest.mark.parametrize(
    ("profile", "loss_db", "stored"),
    [
        (tflite(INT8), 0.4, True),
        (tflite(INT8), 0.6, False),
        (onnxruntime(INT8), 0.4, True),
        (onnxruntime(INT8), 0.6, False),
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
