"""Integers where they leave int32, which is all that Core ML has: exact, refused by name, or told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from convertkit.errors import Unsupported
from convertkit.targets.coreml.options import TARGETS, Choices
from convertkit.workers.process import Worker
from tests.targets.coreml.apple_packages import Row, compile_text, numbers

ROWS = [
    Row(
        "division-of-the-least",
        "int32[4] x",
        "int32[4] q, int32[4] r",
        "q = Div(x, o) r = Mod<fmod=1>(x, o)",
        {"o": np.int32([2, -3, -(2**31), 7])},
        {"x": np.int32([-(2**31), -(2**31) + 1, 5, 2**31 - 1])},
    ),
    Row(
        "unsigned-within-32-bits",
        "uint32[4] x, uint32[4] o",
        "uint32[4] q, uint32[4] r, bool[4] l, uint32[4] m, float[4] f",
        "q = Div(x, o) r = Mod(x, o) l = Less(x, o) m = Max(x, o) f = Cast<to=1>(x)",
        feed={"x": np.uint32([2**31 - 1, 5, 0, 123456789]), "o": np.uint32([3, 2**31 - 1, 9, 1000])},
    ),
    Row(
        "bytes-of-a-float",
        "float[3] x",
        "float[3] y",
        "q = Cast<to=2>(x) y = Cast<to=1>(q)",
        feed={"x": np.float32([0.9, 200.5, 255])},
        expect=("cast", "mod"),
    ),
    Row(
        "bytes-without-bounds",
        "int8[3] x",
        "int8[3] y",
        "c = Clip(x) y = Clip(c, a)",
        {"a": np.int8(-5)},
        {"x": np.int8([-7, 100, -128])},
    ),
    Row(
        "bytes-within-bounds",
        "float[3] x",
        "uint8[3] y",
        "c = Clip(x, a, e) y = Cast<to=2>(c)",
        {"a": np.float32(0), "e": np.float32(255)},
        {"x": np.float32([-7, 200.5, 999])},
        expect=("clip", "cast", "identity"),
    ),
    Row(
        "scattered-bytes",
        "uint8[3] x, uint8[2] u",
        "uint8[3] y",
        'y = ScatterElements<reduction="add">(x, i, u)',
        {"i": np.int64([0, 2])},
        {"x": np.uint8([200, 3, 255]), "u": np.uint8([100, 1])},
    ),
    Row(
        "mean-of-large-integers",
        "int32[2,3] x",
        "int32[2,1] y",
        "y = ReduceMean<keepdims=1>(x, a)",
        {"a": np.int64([1])},
        {"x": np.int32([[100000001, 100000002, 100000006], [-5, 2, 1]])},
    ),
    Row(
        "places-up-to-the-end",
        "float[2,6,5] x",
        "int64[2,5] y",
        "m = ArgMax<axis=2, keepdims=0>(x) y = Slice(m, s, e, a)",
        {"s": np.int64([1]), "e": np.int64([2**63 - 1]), "a": np.int64([1])},
        {"x": np.random.default_rng(5).normal(size=(2, 6, 5)).astype(np.float32)},
    ),
    Row(
        "large-integers-around",
        "int32[2] x",
        "int32[4] y",
        "y = Pad(x, p, v)",
        {"p": np.int64([1, 1]), "v": np.int32(123456789)},
        {"x": np.int32([1, 2])},
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row, worker: Worker, tmp_path: Path):
    row.check(worker, tmp_path / "c")


LARGE = "l = Constant<value=int64[1]{4294967295}>() "
REFUSED = [
    ("uint32[3] x", "uint32[3] y", "y = Add(x, x)", "uint32 results from 0 to 4294967294: Core ML holds those from 0"),
    ("uint32[3] x", "uint32[3] y", "y = Sub(x, x)", "uint32 results from -2147483647"),
    ("uint32[3] x", "uint32[3] y", "y = Mul(x, x)", "uint32 results from 0 to 46"),
    ("uint64[3] x", "uint64[3] y", "y = Mul(x, x)", "uint64 results from 0 to 46"),
    ("uint32[3] x", "uint32 y", "y = ReduceSum<keepdims=0>(x)", "uint32 results from 0 to 6442450941"),
    ("float[3] x", "uint32[3] y", "y = Cast<to=12>(x)", "uint32 results of any size"),
    ("int64[3] x", "uint64[3] y", "y = Cast<to=13>(x)", "uint64 results from -2147483648"),
    ("int64[3] x", "bool[3] y", LARGE + "y = Less(x, l)", "the integer 4294967295: Core ML's have 32 bits"),
    ("int64[3] x", "int64[3] y", LARGE + "y = BitwiseAnd(x, l)", "the integer 4294967295: Core ML's have 32 bits"),
    (
        "float[9,3] x",
        "int64[3] y",
        "a = ArgMax<axis=0, keepdims=0>(x) c = Constant<value_int=1000000000>() y = Mul(a, c)",
        "int64 results from 0 to 9000000000",
    ),
]


@pytest.mark.parametrize(("inputs", "outputs", "body", "reason"), REFUSED)
def test_what_cannot_be_shown_to_fit_is_refused(inputs, outputs, body, reason, worker: Worker, tmp_path: Path):
    with pytest.raises(Unsupported, match=reason):
        compile_text(worker, f"test ({inputs}) => ({outputs}) {{ {body} }}", tmp_path / "c")


def test_int64_of_the_data_is_told(worker: Worker, tmp_path: Path):
    """Results that leave 32 bits for some inputs alone; not those that cannot."""
    body = "c = Cast<to=7>(b) s = Mul(c, x) t = Add(x, c) y = Sub(t, s) m = Constant<value_int=4>() w = Mod(y, m)"
    made = compile_text(
        worker, f"test (int64[3] x, bool[3] b) => (int64[3] y, int64[3] w) {{ {body} }}", tmp_path / "c"
    )
    (note,) = made.notes
    assert "(Add-14) and 1 more: int64 is computed in Core ML's 32 bits" in note
    assert "right from -2147483648 to 2147483647 alone" in note
    fits = "test (int64[3] x, bool[3] b) => (int64[3] y) { c = Cast<to=7>(b) y = Mul(c, x) }"
    assert not compile_text(worker, fits, tmp_path / "d").notes


def test_sizes_that_leave_32_bits_are_refused(worker: Worker, tmp_path: Path):
    """Whatever the packages' sizes in between give: it runs at the least, the middle and the greatest alone."""
    body = "s = Shape<start=1, end=2>(x) a = Mul(s, s) m = Mul(a, s) p = Mod(m, t) f = Cast<to=1>(p) y = Add(x, f)"
    graph = f"test (float[2,T] x) => (float[2,T] y) {{ t = Constant<value=int64[1]{{97}}>() {body} }}"
    with pytest.raises(Unsupported, match="int64 results from 0 to 8000000000"):
        compile_text(worker, graph, tmp_path / "c", Choices(TARGETS["iOS17"], shapes=("T=2..2000",)))


def test_what_is_computed_from_sizes_is_small(worker: Worker, tmp_path: Path):
    """A size that may be any of several, and places that are computed from it; a byte of it is still held to a byte."""
    body = (
        "s = Shape<start=1, end=2>(x) a = Add(s, t) m = Mul(a, s) p = Sub(a, m) f = Cast<to=1>(p) y = Add(x, f)"
        " u = Cast<to=2>(m) b = Cast<to=1>(u)"
    )
    made = compile_text(
        worker,
        f"test (float[2,T] x) => (float[2,T] y, float[1] b) {{ t = Constant<value=int64[1]{{1}}>() {body} }}",
        tmp_path / "c",
        Choices(TARGETS["iOS17"], shapes=("T=2..40",)),
    )
    assert not made.notes
    for size in (2, 40):
        made.agree({"x": numbers(2, size)})
