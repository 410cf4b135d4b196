"""Transposes of many dimensions as several of few."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.coreml.builder import MOST_DIMENSIONS
from convertkit.targets.coreml.ranks import lower_ranks, moves


@pytest.mark.parametrize("shape", [(2, 3, 4, 5, 6, 7), (2, 1, 3, 4, 5, 2), (1, 1, 1, 1, 1, 1)], ids=str)
def test_every_order_of_six_axes(shape: tuple[int, ...]):
    given = np.arange(np.prod(shape)).reshape(shape)
    for perm in itertools.permutations(range(6)):
        moved = given
        for move in moves(shape, perm):
            assert len(move.shape) <= MOST_DIMENSIONS
            moved = moved.reshape(move.shape).transpose(move.perm)
        assert np.array_equal(moved.ravel(), given.transpose(perm).ravel()), perm


def test_axes_that_stay_neighbours_are_one():
    assert list(moves((2, 4, 2, 3, 2, 8), (0, 1, 3, 2, 4, 5))) == [((8, 2, 3, 16), (0, 2, 1, 3))]


def test_eight_axes_take_several_moves():
    shape, perm = (2, 3, 2, 3, 2, 3, 2, 3), (7, 2, 5, 0, 3, 6, 1, 4)
    given = moved = np.arange(np.prod(shape)).reshape(shape)
    made = list(moves(shape, perm))
    for move in made:
        moved = moved.reshape(move.shape).transpose(move.perm)
    assert len(made) > 1
    assert np.array_equal(moved.ravel(), given.transpose(perm).ravel())


def test_reshapes_move_past_what_does_the_same_to_every_element():
    """Six dimensions in a quantized graph: at the end only the transpose's own reshapes have them, and those go."""
    body = """test (float[1,4,4,8] x) => (float[4,4,8] y) {
        a = Reshape(x, s) q = QuantizeLinear(a, scale, zero) d = DequantizeLinear(q, scale, zero) r = Relu(d)
        t = Transpose<perm=[0,1,3,2,4,5]>(r) u = QuantizeLinear(t, scale, zero) e = DequantizeLinear(u, scale, zero)
        z = Reshape(e, w) y = Relu(z)
    }"""
    stored = {
        "s": np.array([1, 2, 2, 2, 2, 8], np.int64), "w": np.array([4, 4, 8], np.int64),
        "scale": np.float32(0.05), "zero": np.int8(3),
    }  # fmt: skip
    given = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{body}')
    given.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items())
    model = canonicalize(ir.from_proto(given))
    feed = {"x": np.random.default_rng(0).standard_normal((1, 4, 4, 8)).astype(np.float32)}
    lower_ranks(model)
    assert all(len(value.shape) <= MOST_DIMENSIONS for node in model.graph for value in node.outputs)
    assert [node.op_type for node in model.graph].count("Transpose") == 1
    found = ir.to_proto(model)
    onnx.checker.check_model(found, full_check=True)
    wanted, got = (ReferenceEvaluator(each).run(None, feed)[0] for each in (given, found))
    assert np.array_equal(got, wanted)


def test_a_scale_for_each_channel_stays_where_it_is():
    body = """test (float[1,4,4,8] x) => (float[4,4,8] y) {
        a = Reshape(x, s) q = QuantizeLinear<axis=5>(a, scale, zero) d = DequantizeLinear<axis=5>(q, scale, zero)
        t = Transpose<perm=[0,1,3,2,4,5]>(d) y = Reshape(t, w)
    }"""
    stored = {
        "s": np.array([1, 2, 2, 2, 2, 8], np.int64), "w": np.array([4, 4, 8], np.int64),
        "scale": np.linspace(0.02, 0.1, 8, dtype=np.float32), "zero": np.zeros(8, np.int8),
    }  # fmt: skip
    given = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{body}')
    given.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items())
    model = canonicalize(ir.from_proto(given))
    before = [node.op_type for node in model.graph]
    lower_ranks(model)
    assert [node.op_type for node in model.graph] == before
