"""Timing in turns: what else the machine does must not decide which of two is the faster."""

from __future__ import annotations

import time
from typing import Self

import pytest

import convertkit
from convertkit.converters.onnx.source import OnnxSource
from convertkit.findings import latency
from convertkit.findings.latency import compared
from convertkit.findings.values import Latency
from convertkit.formatting import latency_text
from convertkit.recipe import ExportOptions
from convertkit.stage import Feed, Outputs
from convertkit.turns import in_turns
from tests.onnx_models import mlp, write


@pytest.mark.parametrize(
    ("ours", "float32", "told"),
    [
        (1.0, 2.3, "2.3 × faster than float32"),
        (1.5, 1.0, "1.5 × SLOWER than float32 here"),
        (1.0, 1.02, "about as fast as float32"),
    ],
)
def test_the_verdict_is_a_factor(ours, float32, told) -> None:
    made = compared([ours] * 9, [float32] * 9)
    assert made.verdict == told
    assert made.slower == ("SLOWER" in told)


def test_turns_that_disagree_are_not_called_equal() -> None:
    """Where something else uses the machine now and then, quartiles may lie on both sides of 1."""
    made = compared([1.0, 9.0, 1.0, 9.0, 1.0], [2.0, 2.0, 8.0, 8.0, 8.0])
    assert made.speedup == 2.0
    assert made.spread is not None
    assert made.spread[0] < 1
    assert made.verdict == "times vary too much here to say which is faster"
    assert not made.slower


def test_load_that_comes_and_goes_does_not_decide() -> None:
    """While a machine gets busier, every call takes longer: the second of each pair must not pay for that alone."""
    slowdown = [1.0 + 0.1 * index for index in range(40)]
    ours = [0.5e-3 * factor for factor in slowdown]
    float32 = [1.0e-3 * factor for factor in reversed(slowdown)]  # its quiet turns were the other's busy ones
    paired = [1.0e-3 * factor for factor in slowdown]
    assert compared(ours, paired).speedup == pytest.approx(2.0)
    assert compared(ours, float32).speedup == pytest.approx(2.0, rel=0.1)


def test_turns_alternate() -> None:
    order: list[str] = []

    def call(name: str, seconds: float) -> None:
        order.append(name)
        time.sleep(seconds)

    times = in_turns({"a": lambda: call("a", 0.02), "b": lambda: call("b", 0.04)}, 0.8, least=5, most=200)
    ours, float32 = times["a"].tolist(), times["b"].tolist()
    assert len(ours) == len(float32) >= 5
    turns = "".join(order[4:])  # each is called twice beforehand
    assert turns.startswith("abbaabba")
    assert compared(ours, float32).speedup == pytest.approx(2.0, rel=0.3)


@pytest.mark.parametrize(("large", "most"), [(False, 2), (True, 1)])
def test_of_large_artifacts_one_is_open_at_a_time(tmp_path, monkeypatch, large, most) -> None:
    path = write(tmp_path, mlp())
    artifact = OnnxSource(path, ExportOptions(str(path), ("onnxruntime",), tmp_path)).artifact
    is_open, counts = list[object](), list[int]()

    class Runner:
        def __enter__(self) -> Self:
            is_open.append(self)
            return self

        def __exit__(self, *error: object) -> None:
            is_open.remove(self)

        def run(self, feed: Feed) -> Outputs:
            counts.append(len(is_open))
            return {}

    monkeypatch.setattr(latency.plugins, "runner", lambda artifact: Runner())
    monkeypatch.setattr(latency, "is_small", lambda artifact: not large)
    found = latency.measure_latency(artifact, {}, artifact)
    assert found.speedup is not None
    assert max(counts) == most


@pytest.mark.parametrize("flags", [{}, {"w8": True}, {"fp16": True}, {"prune": 0.5}])
def test_every_precision_is_timed(tmp_path, flags) -> None:
    made = convertkit.export(write(tmp_path, mlp()), output=tmp_path / "out", **flags)
    found = made.report["latency"]
    assert found["artifact_ms"] > 0
    assert (found["float32_ms"] is None) == (not flags)
    assert bool(found["verdict"]) == bool(flags)


def test_slower_comes_with_the_way_out() -> None:
    slow = Latency(2.0, 9, 1.0, 0.5, (0.4, 0.6))
    told = latency_text({"artifact_ms": 2.0, "float32_ms": 1.0, "verdict": slow.verdict, "slower": slow.slower})
    assert told == (
        "2.000 ms, float32 1.000 ms: 2 × SLOWER than float32 here; "
        "for size alone that may do, else leave the precision flag out"
    )
