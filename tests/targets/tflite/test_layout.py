"""Channels-last: the parts it is made of, and what is left of it in whole graphs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.passes.layout.cut import Choice
from convertkit.targets.tflite.passes.layout.regroup import carried
from tests.targets.tflite.compiled import compiled, numbers

HEAD = '<ir_version: 8, opset_import: ["" : 20]>'


def test_the_cut_is_the_cheapest_choice():
    random = np.random.default_rng(1)
    for _ in range(300):
        count = int(random.integers(1, 7))
        choice = Choice()
        alone = [tuple(int(v) for v in random.integers(-5, 9, 2)) for _ in range(count)]
        for pair in alone:
            choice.pays(choice.node(), *pair)
        pairs = []
        for _ in range(int(random.integers(0, 10))):
            first, second, one, other = (int(v) for v in random.integers(0, [count, count, 9, 9]))
            if first != second:
                pairs.append((first, second, one, other))
                choice.differs(first, second, one, other)

        def cost(worlds, alone=alone, pairs=pairs):
            apart = sum(
                one if worlds[a] < worlds[b] else other if worlds[a] > worlds[b] else 0 for a, b, one, other in pairs
            )
            return apart + sum(pair[world] for pair, world in zip(alone, worlds, strict=True))

        assert cost(choice.worlds()) == min(cost(worlds) for worlds in itertools.product((0, 1), repeat=count))


def test_a_reshape_carries_a_permutation_only_where_no_element_moves():
    random = np.random.default_rng(2)
    kept = 0
    for _ in range(1000):
        fine = [int(size) for size in random.choice([1, 2, 3], random.integers(1, 6))]
        coarse, place = [], 0
        while place < len(fine):
            width = int(random.integers(1, 3))
            coarse.append(int(np.prod(fine[place : place + width])))
            place += width
        before, after = (fine, coarse) if random.random() < 0.5 else (coarse, fine)
        perm = tuple(int(axis) for axis in random.permutation(len(before)))
        result = carried(tuple(before), tuple(after), perm)
        if result is not None:
            kept += 1
            x = np.arange(np.prod(before)).reshape(before)
            stored = x.transpose(perm).reshape([after[axis] for axis in result])
            assert np.array_equal(stored, x.reshape(after).transpose(result))
    assert kept > 500


@pytest.mark.parametrize(
    ("body", "output", "transposes"),
    [
        ("r = Relu(c) y = Add(r, x)", "float[1,3,8,8] y", 1),
        ("d = Conv<pads=[1,1,1,1]>(c, w) y = Concat<axis=1>(c, d)", "float[1,6,8,8] y", 0),
        ("y = Softmax<axis=1>(c)", "float[1,3,8,8] y", 0),
        ("t = Transpose<perm=[0,2,3,1]>(c) y = Relu(t)", "float[1,8,8,3] y", 0),
        ("a = ReduceMean<keepdims=0>(c, axes) y = Relu(a)", "float[1,3] y", 0),
        ("s = Split<axis=1, num_outputs=3>(c) y = Relu(s)", "float[1,1,8,8] y", 0),
        ("m = MatMul(c, k) y = Relu(m)", "float[1,3,8,4] y", 1),
    ],
)
def test_transposes_left(body, output, transposes):
    from onnx import numpy_helper, parser

    text = f"""{HEAD} g (float[1,3,8,8] x) => ({output}) {{
        c = Conv<pads=[1,1,1,1]>(x, w)
        {body.replace("s = Split", "s, s2, s3 = Split")} }}"""
    proto = parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(numbers(3, 3, 3, 3, seed=3), "w"))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "axes"))
    proto.graph.initializer.append(numpy_helper.from_array(numbers(8, 4, seed=4), "k"))
    case = compiled(proto)
    assert case.operators["TRANSPOSE"] == transposes
    assert case.compiled.inputs[0].perm == ((0, 2, 3, 1) if "x)" not in body else ())
    case.agree({"x": numbers(1, 3, 8, 8)})


@pytest.mark.parametrize("layout", ["auto", "nchw", "nhwc"])
def test_interfaces_are_what_the_flag_says(layout):
    from onnx import numpy_helper, parser

    text = f"""{HEAD} g (float[1,3,8,8] x) => (float[1,3,8,8] y) {{
        s = Mul(x, half)
        y = Conv<pads=[1,1,1,1]>(s, w) }}"""
    proto = parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(numbers(3, 3, 3, 3, seed=3), "w"))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "half"))
    case = compiled(proto, Options(input_layout=layout))
    assert case.compiled.inputs[0].perm == ((0, 2, 3, 1) if layout == "nhwc" else ())
    assert case.operators["TRANSPOSE"] == {"auto": 1, "nchw": 2, "nhwc": 0}[layout]
    case.agree({"x": numbers(1, 3, 8, 8)})


@pytest.mark.parametrize(
    ("body", "output", "layout", "why"),
    [
        ("y = Relu(c)", "float[1,3,8,8] y", "auto", []),
        (
            "y = Relu(c)",
            "float[1,3,8,8] y",
            "nchw",
            ["input x leaves the source's layout, the_conv (Conv) takes its axes as 0, 2, 3, 1",
             "output y keeps the source's layout"],
        ),
        (
            "m = MatMul(c, k) y = Relu(m)",
            "float[1,3,8,4] y",
            "auto",
            ["the_conv (Conv) leaves its axes as 0, 2, 3, 1, the_matmul (MatMul) takes the source's layout"],
        ),
        ("r = Reshape(c, flat) y = Transpose<perm=[1,0]>(r)", "float[8,24] y", "auto",
         ["the_conv (Conv) leaves its axes as 0, 2, 3, 1, the_reshape (Reshape) takes the source's layout",
          "the model transposes here itself"]),
        ("y = Softmax<axis=2>(c)", "float[1,3,8,8] y", "auto",
         ["TFLite's kernels compute Softmax along other axes than the model does"] * 2),
    ],
)  # fmt: skip
def test_each_transpose_that_is_left_has_a_reason(body, output, layout, why):
    from onnx import numpy_helper, parser

    text = f"""{HEAD} g (float[1,3,8,8] x) => ({output}) {{
        c = Conv<pads=[1,1,1,1]>(x, w)
        {body} }}"""
    proto = parser.parse_model(text)
    for node in proto.graph.node:
        node.name = f"the_{node.op_type.lower()}"
    constants = {"w": numbers(3, 3, 3, 3, seed=3), "k": numbers(8, 4, seed=4), "flat": np.array([24, 8])}
    used = {name for node in proto.graph.node for name in node.input}
    for name in constants.keys() & used:
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(constants[name]), name))
    case = compiled(proto, Options(input_layout=layout))
    assert [row["why"] for row in case.compiled.transposes] == why
    assert len(why) == case.operators["TRANSPOSE"]


def test_a_flattened_image_reorders_the_weights_instead():
    from onnx import numpy_helper, parser

    text = f"""{HEAD} g (float[N,3,8,8] x) => (float[N,5] y) {{
        c = Conv<pads=[1,1,1,1]>(x, w)
        f = Flatten(c)
        r = Relu(f)
        y = Gemm<transB=1>(r, k) }}"""
    proto = parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(numbers(3, 3, 3, 3, seed=3), "w"))
    proto.graph.initializer.append(numpy_helper.from_array(numbers(5, 192, seed=4), "k"))
    case = compiled(proto)
    assert case.operators["TRANSPOSE"] == 0
    case.agree({"x": numbers(1, 3, 8, 8)}, {"x": numbers(4, 3, 8, 8)})


@pytest.mark.parametrize(
    ("part", "kind"), [("<start=1>", "int64[3] s"), ("<end=-1>", "int64[3] s"), ("", "int64[4] s")]
)
def test_sizes_are_put_in_order_instead_of_the_image(part: str, kind: str) -> None:
    case = compiled(f"""{HEAD} g (float[n,3,h,w] x) => (float[n,2,a,b] y, {kind}, int64 all)
        <float[2,3,1,1] k = {{1.0,2.0,3.0,4.0,5.0,6.0}}> {{
        y = Conv(x, k)  s = Shape{part}(y)  all = Size(y) }}""")
    assert case.operators["TRANSPOSE"] == 0
    case.agree({"x": numbers(2, 3, 4, 5)}, {"x": numbers(1, 3, 7, 2)})
