"""Masks of attention in ncnn, which computes in float32 alone: truths are 0 and 1, and infinity overflows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from convertkit.errors import Unsupported
from convertkit.targets.ncnn.compile import compile_model
from convertkit.targets.ncnn.runtime import SERVICE
from convertkit.workers.process import Worker
from tests import installed
from tests.targets.ncnn.test_layers import computed, parsed, real, whole

MASKS = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]])
ATTENTION = """g (int64[1,4] mask, float[1,2,4,4] s, float[1,2,4,3] v) => (float[1,2,4,3] y) {
  given = Cast<to=9>(mask) rows = Unsqueeze(given, ones) seen = And(causal, rows)
  bias = Where(seen, zero, least) t = Add(s, bias) p = Softmax<axis=-1>(t)
  bad = IsNaN(p) q = Where(bad, zero, p) a = MatMul(q, v)
  hidden = Not(seen) number = Cast<to=7>(hidden) all = ReduceMin<keepdims=1>(number, last) none = Cast<to=9>(all)
  y = Where(none, zero, a)
}"""
"""As PyTorch's attention is exported: rows in which nothing is seen give 0."""
TRUTHS = """g (int64[1,4] mask, float[1,4] x, float[1,4] z) => (y, b, c, d) {
  m = Cast<to=9>(mask) n = Cast<to=9>(x) either = Or(m, n) y = Where(either, x, z)
  turned = Not(either) b = Cast<to=1>(turned) pair = Concat<axis=1>(m, few) c = Where(pair, two, large)
  whole = Cast<to=6>(m) any = ReduceMax<keepdims=1>(whole, last) d = Cast<to=1>(any)
}"""
PLACES = """g (int64[2,3] ids) => (float[2,3,4] y) {
  flat = Reshape(ids, all) long = Unsqueeze(flat, ones) back = Reshape(long, sizes) y = Gather(table, back)
}"""


@pytest.fixture(scope="module")
def ncnn() -> Iterator[Worker]:
    installed.needs("ncnn")
    with Worker(SERVICE) as worker:
        yield worker


def _compare(ncnn, place, proto, feed):
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    wanted = session.run(None, feed)
    given = {name: each if name == "ids" else each.astype(np.float32) for name, each in feed.items()}
    found = computed(ncnn, place, compile_model(ir.from_proto(proto)), given, [each.shape for each in wanted])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("least", [-np.inf, np.finfo(np.float32).min], ids=["infinite", "finite"])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_masks_of_attention(ncnn, tmp_path, mask, least):
    stored = {"ones": whole(1), "last": whole(-1), "zero": np.float32(0), "least": np.float32(least)}
    proto = parsed(ATTENTION, causal=np.tri(4, dtype=bool), **stored)
    feed = {"mask": mask[None], "s": 5 * real(1, 2, 4, 4), "v": real(1, 2, 4, 3)}
    _compare(ncnn, tmp_path, proto, feed)


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_truths_are_numbers(ncnn, tmp_path, mask):
    few = np.array([[True, False, False, True]])
    stored = {"few": few, "two": np.float32([2]), "large": np.float32([[-7]]), "last": whole(-1)}
    x = real(1, 4) * [[0, 1, 0, 1e-30]]
    feed = {"mask": mask[None], "x": x.astype(np.float32), "z": real(1, 4)}
    _compare(ncnn, tmp_path, parsed(TRUTHS, **stored), feed)


def test_places_are_counted_otherwise(ncnn, tmp_path):
    stored = {"all": whole(-1), "ones": whole(1), "sizes": whole(2, 3), "table": real(9, 4)}
    _compare(ncnn, tmp_path, parsed(PLACES, **stored), {"ids": np.array([[1, 8, 0], [3, 3, 7]])})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("l = Log(x) y = Where(c, l, x)", "Where"),
        ("l = Where(c, x, least) y = Where(c, x, l)", "Where"),
        ("n = IsNaN(x) y = Where(n, x, x)", "IsNaN"),
        ("h = Softmax(x) n = IsNaN(h) y = Where(n, least, h)", "IsNaN"),
        ("i = Cast<to=7>(c) j = Add(i, i) y = Cast<to=1>(j)", "Cast"),
        ("i = Cast<to=7>(x) j = ReduceMax<keepdims=0>(i) k = Cast<to=9>(j) l = Cast<to=1>(k) y = Add(x, l)", "Cast"),
    ],
)
def test_what_zero_times_would_not_hide_is_refused(body, said):
    """The branch that is not chosen may be infinite or NaN, and integers are more than truths."""
    _check_refused(f"float[1,4] y) {{ c = Cast<to=9>(mask) {body} }}", said)


@pytest.mark.parametrize("made", ["bool[1,4] y) { y = Cast<to=9>(mask) }", "int64[1,1] y) { y = ReduceMax(mask) }"])
def test_truths_and_integers_are_not_delivered(made):
    _check_refused(made, "Cast|ReduceMax")


def _check_refused(rest, said):
    text = f"g (int64[1,4] mask, float[1,4] x) => ({rest}"
    with pytest.raises(Unsupported, match=said):
        compile_model(ir.from_proto(parsed(text, least=np.float32(-np.inf))))
