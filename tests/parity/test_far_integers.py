"""Integers of untold range are compared below zero and far above, as far as the source takes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import convertkit
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import SourceError
from convertkit.parity.far_integers import is_far, where_roundings_decide, with_far_integers
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import Recording
from convertkit.stage import FLOAT32, LOSSY

FAR = ["2^20 and more", "2^24 and more", "below zero", "far below zero"]
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
TABLE = "t = Constant <value = float[4,2] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0}> ()"
FOUR = "four = Constant <value = int64[1] {4}> ()"
MODELS = {
    "quotients": (f"(int64[N,5] x) => (int64[N,5] y) {{ {FOUR} y = Div (x, four) }}", FAR),
    "of 32 bits": ("(int32[N,5] x) => (int32[N,5] y) { y = Mul (x, x) }", FAR),
    "pixels": ("(uint8[N,3,4,4] x) => (float[N,3,4,4] y) { y = Cast <to = 1> (x) }", ["all that its type holds"]),
    "16 bits": ("(int16[N,5] x) => (float[N,5] y) { y = Cast <to = 1> (x) }", ["all that its type holds", *FAR[2:]]),
    "rows of a table": (f"(int64[N,5] x) => (float[N,5,2] y) {{ {TABLE} y = Gather (t, x) }}", []),
    "divisors": (f"(int64[N,5] x) => (int64[N,5] y) {{ {FOUR} y = Div (four, x) }}", []),
    "masked scores": (
        "(int64[N,5] x) => (float[N,5] y) { c = Cast <to = 1> (x) m = Constant <value = float {-3e38}> ()"
        " s = Mul (c, m) y = Softmax (s) }",
        [],
    ),
    "how often": (
        "(int64 x, float[4] v) => (float[4] y) { c = Constant <value = bool {1}> ()"
        " h = Constant <value = float {0.5}> ()"
        " y = Loop (x, c, v) <body = b (int64 i, bool k, float[4] a) => (bool ko, float[4] r) { ko = Identity (k)"
        " t = Mul (a, h) r = Sin (t) }> }",
        [],
    ),
    "until a count": (
        "(int64 x, float[4] v) => (float[4] y) { m = Constant <value = int64 {9223372036854775807}> ()"
        " o = Constant <value = int64 {1}> () s = Constant <value = int64 {64}> ()"
        " h = Constant <value = float {0.5}> () c = Less (x, s)"
        " y, n = Loop (m, c, v, x) <body = b (int64 i, bool k, float[4] a, int64 j) =>"
        " (bool ko, float[4] r, int64 q) { q = Add (j, o) ko = Less (q, s) t = Mul (a, h) r = Sin (t) }> }",
        FAR,
    ),
    "endless below zero": (
        "(int64 x, float[4] v) => (float[4] y) { m = Constant <value = int64 {9223372036854775807}> ()"
        " o = Constant <value = int64 {1}> () h = Constant <value = float {0.5}> ()"
        " c = Equal (o, o) y, n = Loop (m, c, v, x) <body = b (int64 i, bool k, float[4] a, int64 j) =>"
        " (bool ko, float[4] r, int64 q) { q = Add (j, o) ko = Less (q, i) t = Mul (a, h) r = Sin (t) }> }",
        ["2^20 and more", "2^24 and more"],
    ),
}
"""Graphs, and the edge inputs of theirs that are compared."""


@pytest.mark.parametrize("case", MODELS)
def test_integers_are_compared_as_far_as_the_source_takes_them(case: str, tmp_path: Path):
    text, expected = MODELS[case]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEAD + text)), path)
    made = convertkit.export(path, target="onnxruntime", output=tmp_path / "out")
    edges = made.report["steps"][0]["parity"]["versus_source"]["edges"]
    assert [each for each in edges if is_far(each)] == [f"x: {name}" for name in expected]


class Function:
    """A runner of a function of NumPy arrays."""

    def __init__(self, function):
        self._function = function

    def run(self, feed):
        return {"y": self._function(feed["x"])}


SPEC = TensorSpec("x", (2, 6), "int64")
FEEDS = tuple({"x": np.random.default_rng(place).integers(0, 4, (2, 6))} for place in range(3))


def recording(function, feeds=FEEDS, edges=(), dtype="float32") -> Recording:
    artifact = Artifact(Path("m.onnx"), "onnx", (SPEC,), (TensorSpec("y", (2, 6), dtype),), "")
    return Recording("m", artifact, feeds, tuple(Function(function).run(each) for each in feeds), edges)


def far_of(function) -> Recording:
    return with_far_integers(recording(function), (SPEC,), Function(function))


def refusing_from(most: int):
    def function(x):
        if x.max() >= most or x.min() < 0:
            raise SourceError("index out of range")
        return x.astype(np.float32)

    return function


@pytest.mark.parametrize(("most", "expected"), [(1 << 22, FAR[:1]), (4, []), (1 << 62, FAR[:2])])
def test_what_the_source_refuses_is_left_out(most: int, expected: list[str]):
    assert far_of(refusing_from(most)).edges == tuple(f"x: {name}" for name in expected)


@pytest.mark.parametrize(
    "function",
    [lambda x: np.zeros(int(x.clip(0, 1 << 20).sum()), np.float32), lambda x: np.where(x == x % 4, 1.0, np.inf)],
    ids=["counts", "is infinite"],
)
def test_other_sizes_and_infinities_are_left_out(function):
    assert far_of(function).edges == ()


def test_large_models_run_two():
    found = with_far_integers(recording(np.float32), (SPEC,), Function(np.float32), brief=True)
    assert found.edges == ("x: 2^24 and more", "x: below zero")


def test_masks_and_state_stay():
    masks = recording(np.float32, tuple({"x": each["x"] % 2} for each in FEEDS))
    assert with_far_integers(masks, (SPEC,), Function(np.float32)).edges == ()
    assert with_far_integers(recording(np.float32), (), Function(np.float32)).edges == ()


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (lambda x: np.where(x < 0, x + 1, x) // 4, "below zero"),
        (lambda x: x.astype(np.int32).astype(np.float32).astype(np.int64) // 4, "2^24 and more"),
    ],
    ids=["rounds towards zero", "goes through float32"],
)
def test_faults_that_small_numbers_do_not_show(wrong, names: str):
    """Of 0 to 3 both functions make the same."""
    before = far_of(lambda x: x // 4)
    assert all((wrong(each["x"]) == each["x"] // 4).all() for each in FEEDS)
    after = recording(wrong, before.feeds, before.edges, "int64")
    report = compare_recordings(before, after, FLOAT32)
    assert not report.passed
    assert any(names in each.feed for each in report.departures)
    assert all(is_far(each.feed) for each in report.departures)


def test_what_rounds_on_purpose_is_not_held_to_them():
    before = far_of(lambda x: x.astype(np.float32))
    after = recording(lambda x: np.where(x > 1000, np.inf, x).astype(np.float32), before.feeds, before.edges)
    assert not compare_recordings(before, after, FLOAT32).passed
    assert compare_recordings(before, after, LOSSY).passed
    assert compare_recordings(before, after, replace(FLOAT32, short_integers=True)).passed


def test_roundings_decide_where_they_move_a_tenth_of_an_output():
    values = {"y": np.linspace(-1, 1, 12).reshape(2, 6)}
    for spread, decides in ((0.5, True), (0.01, False)):
        truth = SimpleNamespace(values=values, spread={"y": np.full((2, 6), spread)}, placed=())
        assert bool(where_roundings_decide(truth, "y")) == decides
    assert not where_roundings_decide(None, "y")
