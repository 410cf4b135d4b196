"""If, Loop and Scan as subgraphs, called more than once."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from convertkit.errors import Unsupported
from tests.targets.tflite.compiled import compiled, numbers

HEAD = '<ir_version: 8, opset_import: ["" : 21]>'


def test_if_with_captured_values():
    case = compiled(f"""{HEAD} g (float[2,3] x, bool c) => (float[2,3] y) {{
        h = Exp(x)
        y = If(c) <
            then_branch = t () => (float[2,3] a) {{ a = Add(h, x) }},
            else_branch = e () => (float[2,3] b) {{ b = Mul(h, x) }} > }}""")
    assert case.operators["IF"] == 1
    case.agree(*({"x": numbers(2, 3), "c": np.array(flag)} for flag in (True, False, True)))


def test_a_known_condition_leaves_its_branch():
    case = compiled(f"""{HEAD} g (float[2,3] x) => (float[2,3] y) <bool c = {{1}}> {{
        r = If(c) <
            then_branch = t () => (float[2,3] a) {{ a = Exp(x) }},
            else_branch = e () => (float[2,3] b) {{ b = Neg(x) }} >
        y = Relu(r) }}""")
    assert case.operators == {"EXP": 1, "RELU": 1}
    case.agree({"x": numbers(2, 3)})


@pytest.mark.parametrize(
    ("chosen", "reason", "ways"),
    [
        ("size = Shape<start=1, end=2>(x) one = Constant<value_ints=[1]>() c = Equal(size, one)",
         "of rank 1 and of rank 2, chosen by sizes that are dynamic", ("--static m=SIZE", "--target onnxruntime")),
        ("sum = ReduceSum<keepdims=0>(x) zero = Constant<value_float=0.0>() c = Less(zero, sum)",
         "of rank 1 and of rank 2: TFLite's IF gives one rank", ("--target onnxruntime",)),
    ],
    ids=["by sizes", "by values"],
)  # fmt: skip
def test_branches_of_two_ranks_name_the_sizes_that_choose(chosen: str, reason: str, ways: tuple[str, ...]):
    with pytest.raises(Unsupported, match=reason) as refusal:
        compiled(f"""{HEAD} g (float[n,m] x) => (float[k] y) {{
            {chosen}
            r = If(c) <
                then_branch = t () => (float[n] a) {{ axes = Constant<value_ints=[1]>() a = Squeeze(x, axes) }},
                else_branch = e () => (float[n,m] b) {{ b = Identity(x) }} >
            one_axis = Constant<value_ints=[-1]>() y = Reshape(r, one_axis) }}""")
    assert refusal.value.ways_out == ways


def test_loop_carries_and_collects():
    case = compiled(f"""{HEAD} g (float[3] x) => (float[3] last, float[5,3] all) <int64 n = {{5}}, bool go = {{1}}> {{
        last, all = Loop(n, go, x) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] w, float[3] s) {{
            c2 = Identity(c)
            f = Cast<to=1>(i)
            w = Add(v, f)
            s = Mul(w, x) }}> }}""")
    assert case.operators["WHILE"] == 1
    case.agree({"x": numbers(3)}, {"x": numbers(3, seed=1)})


def test_a_loop_s_counter_bounds_slices():
    """As tf2onnx writes ``tf.image.crop_and_resize``: a counter of one axis, and a bound that is cut from a list."""
    case = compiled(f"""{HEAD} g (float[4,3] x, int64[4] order) => (float[4,1,3] y)
        <int64 n = {{4}}, bool go = {{1}}, int64 one = {{1}}, int64[1] rows = {{0}}> {{
        y = Loop(n, go) <body = b (int64[1] i, bool c) => (bool c2, float[1,3] row) {{
            c2 = Identity(c)
            j = Add(i, one)
            place = Slice(order, i, j)
            next = Add(place, one)
            row = Slice(x, place, next, rows) }}> }}""")
    case.agree(*({"x": numbers(4, 3), "order": np.array(each)} for each in ([2, 0, 3, 1], [1, 1, 0, 3])))


def test_loop_that_stops_by_itself():
    case = compiled(f"""{HEAD} g (float[1] x) => (float[1] last)
        <int64 n = {{50}}, bool go = {{1}}, float ten = {{10.0}}> {{
        last = Loop(n, go, x) <body = b (int64 i, bool c, float[1] v) => (bool c2, float[1] w) {{
            w = Add(v, v)
            r = Squeeze(w)
            c2 = Less(r, ten) }}> }}""")
    case.agree({"x": np.array([1.0], np.float32)}, {"x": np.array([0.3], np.float32)})


def test_scan_both_ways():
    case = compiled(f"""{HEAD} g (float[2] s, float[4,2] x) => (float[2] last, float[4,2] y) {{
        last, y = Scan<num_scan_inputs=1, scan_input_directions=[1],
                       body = b (float[2] a, float[2] v) => (float[2] n, float[2] o) {{
            n = Add(a, v)
            o = Mul(n, v) }}>(s, x) }}""")
    case.agree({"s": numbers(2), "x": numbers(4, 2, seed=2)}, {"s": numbers(2, seed=3), "x": numbers(4, 2, seed=4)})


HALVING = """y = Loop(n, go, x) <body = b (int64 i, bool c, float[2,3] v) => (bool more, float[2,3] w) {
            w = Mul(v, half)
            a = Abs(w)
            m = ReduceMax<keepdims = 0>(a)
            more = Greater(m, one) }>"""


@pytest.mark.parametrize("limit", [2**63 - 1, 2**31, 2**31 - 1, 2, 0, -1, -(2**63)])
@pytest.mark.parametrize("constant", [True, False])
def test_while_by_a_limit_beyond_int32(limit, constant):
    """``while`` of TorchScript is a Loop of at most 2^63 - 1 turns, behind an If here, as its exporter writes it."""
    given = f", int64 n = {{{limit}}}" if constant else ""
    case = compiled(f"""{HEAD} g (float[2,3] x{"" if constant else ", int64 n"}) => (float[2,3] y)
        <float half = {{0.5}}, float one = {{1.0}}, bool go = {{1}}{given}> {{ {HALVING} }}""")
    more = {} if constant else {"n": np.array(limit)}
    case.agree(*({"x": numbers(2, 3, seed=seed) * scale, **more} for seed, scale in enumerate((1, 30, 0.1, 500))))


def test_a_loop_that_collects_until_it_stops():
    case = compiled(f"""{HEAD} g (float[3] x) => (float[3] last, float[k,3] all)
        <int64 n = {{9223372036854775807}}, bool go = {{1}}, float ten = {{10.0}}> {{
        last, all = Loop(n, go, x) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] w, float[3] s) {{
            w = Add(v, v)
            s = Exp(w)
            r = ReduceMax<keepdims = 0>(w)
            c2 = Less(r, ten) }}> }}""")
    case.agree(*({"x": np.array(numbers, np.float32)} for numbers in ([0.1, 1.0, -1.0], [0.3, 0, 0], [5.5, 1, 1])))


BODY = """body = b (int64 i, bool c, float[n,3] v) => (bool d, float[n,3] w, {kind}[{row}] s) {{
    d = Identity(c) w = Add(v, x) s = {made} }}"""


@pytest.mark.parametrize("turns", ["constant", "computed", "none"])
@pytest.mark.parametrize(
    ("kind", "row", "made"),
    [
        ("float", "n,3", "Neg(w)"),
        ("bool", "n,3", "Less(v, w)"),
        ("int64", "2", "Shape(w)"),
        ("float", "", "ReduceSum<keepdims=0>(w)"),
    ],
)
def test_rows_of_any_size_over_any_number_of_turns(turns: str, kind: str, row: str, made: str):
    limit = {"constant": ", int64 k = {4}", "none": ", int64 k = {0}", "computed": ""}[turns]
    more = ", int64 k" if turns == "computed" else ""
    case = compiled(f"""{HEAD} g (float[n,3] x{more}) => (float[n,3] last, {kind}[t{"," + row if row else ""}] all)
        <bool go = {{1}}{limit}> {{ last, all = Loop(k, go, x) <{BODY.format(kind=kind, row=row, made=made)}> }}""")
    given = [{"k": np.array(count)} if more else {} for count in (2, 0, 5)]
    case.agree(*({"x": numbers(size, 3), **each} for size, each in zip((2, 4, 1), given, strict=True)))


def test_scan_over_every_size():
    case = compiled(f"""{HEAD} g (float[n] s, float[t,n] x) => (float[n] last, float[t,n] y) {{
        last, y = Scan<num_scan_inputs=1, scan_input_directions=[1],
                       body = b (float[n] a, float[n] v) => (float[n] m, float[n] o) {{
            m = Add(a, v)
            o = Mul(m, v) }}>(s, x) }}""")
    case.agree(*({"s": numbers(n), "x": numbers(t, n, seed=2)} for n, t in ((2, 3), (1, 40), (4, 1))))


def test_shapes_that_nobody_states_behind_a_loop():
    """Each turn gives a value of the first one's shape: a BatchNormalization behind it knows its channels."""
    proto = parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[2,3,4,3] x) => (float[2,3,4,3] y)
        <float[3] s = {1.0,2.0,3.0}, float[3] b = {0.5,0.0,-1.0},
         float[3] m = {0.1,0.2,0.3}, float[3] v = {1.0,4.0,9.0}>
        { k = Constant<value_int=3>()
          z = Loop(k, , x) <body = turn (int64 i, bool go, float[] a) => (bool on, float[] o) {
              on = Identity(go)  o = Add(a, x) }>
          y = BatchNormalization(z, s, b, m, v) }""")
    body = proto.graph.node[1].attribute[0].g
    for value in (body.input[2], body.output[1]):
        value.type.tensor_type.ClearField("shape")
    compiled(proto).agree({"x": numbers(2, 3, 4, 3)})
