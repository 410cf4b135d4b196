"""All elements that are read in order, and matrices that are turned in three axes, take one operator."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser

from convertkit.onnx.canonical import canonicalize

ARRAYS = {
    "zero": np.array(0), "one": np.array(1), "down": np.array(-1), "two": np.array(2), "first": np.array([0]),
    "second": np.array([1]),
    "last": np.array([-1]),
    "middle": np.array([1, 2]), "third": np.array([3]), "columns": np.arange(6).reshape(1, 1, 1, 6),
    "back": np.arange(6)[::-1].reshape(1, 1, 1, 6).copy(), "few": np.arange(5).reshape(1, 1, 1, 5),
    "flat": np.array([-1, 4, 5]), "swapped": np.array([-1, 5, 4]), "heads": np.array([3]), "sides": np.array([5, 4]),
    "matrix": np.array([4, 5]),
}  # fmt: skip


def written(inputs: str, outputs: str, body: str, known: str = "") -> onnx.ModelProto:
    proto = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => ({outputs}) {known} {{ {body} }}'
    )
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in ARRAYS.items() if k in used)
    return proto


def places(rows: str = "zero, l, one", columns: str = "columns", parts: str = "r, c") -> str:
    return f"""h = Shape (x) l = Gather (h, zero) top = Sub (l, one) n = Range ({rows}) m = Unsqueeze (n, middle)
        w = Unsqueeze (m, third) b = Max (w, {columns}) s = Shape (b) e = Expand (w, s) r = Unsqueeze (e, last)
        f = Expand ({columns}, s) c = Unsqueeze (f, last) p = Concat <axis = -1> ({parts}) y = GatherND (x, p)"""


def kinds(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def same(proto: onnx.ModelProto, x: np.ndarray) -> list[str]:
    """The operators of the canonical model, which computes the same."""
    made = ir.to_proto(canonicalize(ir.from_proto(proto)))
    onnx.checker.check_model(made, full_check=True)
    sessions = (ort.InferenceSession(each.SerializeToString()) for each in (proto, made))
    wanted, got = (session.run(None, {"x": x})[0] for session in sessions)
    np.testing.assert_array_equal(got, wanted)
    return kinds(made)


READ, COUNTED = "float[N,1,1,6] y", "<int64[N] n>"


@pytest.mark.parametrize("rows", [1, 3])
def test_a_mask_that_is_indexed_by_all_its_places(rows: int) -> None:
    proto = written("float[N,6] x", READ, places(), COUNTED)
    assert same(proto, np.random.default_rng(0).normal(size=(rows, 6)).astype("f4")) == ["Unsqueeze"]


@pytest.mark.parametrize(("parts", "kept"), [("r, c", False), ("c, r", True)])
def test_a_square_is_read_as_it_is_and_not_the_other_way_round(parts: str, kept: bool) -> None:
    body = f"""h = Shape (x) l = Gather (h, zero) n = Range (zero, l, one) m = Unsqueeze (n, second)
        w = Unsqueeze (n, first) b = Max (m, w) s = Shape (b) e = Expand (m, s) f = Expand (w, s)
        r = Unsqueeze (e, last) c = Unsqueeze (f, last) p = Concat <axis = -1> ({parts})
        t = GatherND (x, p) y = Neg (t)"""
    proto = written("float[N,N] x", "float[N,N] y", body, COUNTED)
    found = same(proto, np.random.default_rng(0).normal(size=(4, 4)).astype("f4"))
    assert ("GatherND" in found) is kept
    assert kept or found == ["Neg"]


OTHERWISE = {
    "backwards": places(columns="back"),
    "from the last row on": places(rows="top, down, down"),
    "without the last column": places(columns="few"),
    "columns first": places(parts="c, r"),
    "rows alone": places(parts="r"),
}


@pytest.mark.parametrize("why", OTHERWISE)
def test_other_places_are_read(why: str) -> None:
    proto = written("float[N,6] x", "float y", OTHERWISE[why], COUNTED)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert "GatherND" in same(proto, np.random.default_rng(0).normal(size=(6, 6)).astype("f4"))


def turned(parts: str = "n, heads, sides") -> str:
    return f"""h = Shape (x) n = Slice (h, first, second) m = Reshape (x, flat) t = Transpose <perm = [0, 2, 1]> (m)
        e = Concat <axis = 0> ({parts}) y = Reshape (t, e)"""


def test_keys_are_turned_in_one_step() -> None:
    proto = written("float[N,3,4,5] x", "float[N,3,5,4] y", turned())
    assert same(proto, np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("f4")) == ["Transpose"]


@pytest.mark.parametrize(("parts", "shape"), [("n, heads, matrix", "N,3,4,5"), ("heads, n, sides", "3,N,5,4")])
def test_what_has_other_axes_afterwards_is_left(parts: str, shape: str) -> None:
    proto = written("float[N,3,4,5] x", f"float[{shape}] y", turned(parts))
    kept = same(proto, np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("f4"))
    assert kept.count("Reshape") == 2
