"""Forms of ``examples/convertkit-rknn`` compute what the graph computes: no toolkit is needed to know that."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from convertkit.errors import Unsupported


@pytest.mark.parametrize("is_quantized", [True, False], ids=["int8", "float"])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_a_dense_layer_becomes_one_operator_and_computes_the_same(module, rank, is_quantized):
    """The toolkit ends with an exception, or not at all, on the product and the sum."""
    shape = [2, 1, 3, 5][-rank:]
    ports = [helper.make_tensor_value_info("x", 1, shape), helper.make_tensor_value_info("y", 1, [*shape[:-1], 4])]
    weights = np.random.default_rng(1).integers(-127, 128, (5, 4)).astype(np.int8)
    constants = {
        "w": weights, "s": np.float32(0.02), "z": np.int8(0), "b": np.arange(4, dtype=np.float32),
        "t": np.float32(0.03), "k": np.int8(-3), "u": np.float32(0.06), "l": np.int8(7),
    }  # fmt: skip
    given, made = ("d", "f") if is_quantized else ("x", "y")
    pairs = [
        [
            helper.make_node("QuantizeLinear", [source, *steps], [f"{result}q"], f"{result}q"),
            helper.make_node("DequantizeLinear", [f"{result}q", *steps], [result], result),
        ]
        for source, result, steps in (("x", "d", ("t", "k")), ("f", "y", ("u", "l")))
    ]
    nodes = [
        *(pairs[0] if is_quantized else ()),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"], "weights"),
        helper.make_node("MatMul", [given, "v"], ["p"], "product"),
        helper.make_node("Add", ["p", "b"], [made], "bias"),
        *(pairs[1] if is_quantized else ()),
    ]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    written = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    assert module("forms").write_products(written) == 1
    assert {node.op_type for node in written.graph} & {"MatMul", "Add"} == set()
    (node,) = (each for each in written.graph if each.op_type in ("Gemm", "Conv"))
    assert node.op_type == ("Gemm" if rank == 2 else "Conv")
    if is_quantized:
        assert node.inputs[0].producer().op_type == "DequantizeLinear"
        assert [reader.op_type for reader, _ in node.outputs[0].uses()] == ["QuantizeLinear"]
    value = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    before, after = (ReferenceEvaluator(each).run(None, {"x": value}) for each in (model, ir.to_proto(written)))
    np.testing.assert_allclose(before[0], after[0], rtol=1e-6)
    assert [each.name for each in written.graph.outputs] == ["y"]


@pytest.mark.parametrize("leading", [(), (3,), (1,), (2, 1, 3)], ids=str)
def test_a_product_of_computed_integers_has_four_axes_and_computes_the_same(module, leading):
    """The toolkit takes no other number of them: it does not come to an end."""
    sizes = {"a": [*leading, 2, 5], "b": [*leading, 5, 4], "y": [*leading, 2, 4]}
    steps = {"a": (0.02, -3), "b": (0.03, 5), "y": (0.06, 7)}
    constants = {f"{name}s": np.float32(scale) for name, (scale, _) in steps.items()}
    constants |= {f"{name}z": np.int8(point) for name, (_, point) in steps.items()}
    nodes = [helper.make_node("MatMul", ["ad", "bd"], ["m"], "product")]
    for place, (source, name, result) in enumerate((("a", "a", "ad"), ("b", "b", "bd"), ("m", "y", "y"))):
        pair = [
            helper.make_node("QuantizeLinear", [source, f"{name}s", f"{name}z"], [f"{name}q"], f"{name}q"),
            helper.make_node("DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], [result], f"{name}_read"),
        ]
        nodes = [*pair, *nodes] if place < 2 else [*nodes, *pair]
    ports = {name: helper.make_tensor_value_info(name, 1, size) for name, size in sizes.items()}
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", [ports["a"], ports["b"]], [ports["y"]], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    written = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    assert module("forms").write_products(written) == 1
    (product,) = (node for node in written.graph if node.op_type == "MatMul")
    assert [len(value.shape) for value in (*product.inputs, *product.outputs)] == [4, 4, 4]
    assert [value.producer().op_type for value in product.inputs] == ["DequantizeLinear"] * 2
    rng = np.random.default_rng(3)
    feed = {name: rng.normal(size=sizes[name]).astype(np.float32) for name in "ab"}
    before, after = (ReferenceEvaluator(each).run(None, feed) for each in (model, ir.to_proto(written)))
    np.testing.assert_array_equal(before[0], after[0])
    assert module("forms").write_products(written) == 0


def recurrent(layout: int) -> ir.Model:
    sizes = {"w": (1, 12, 3), "r": (1, 12, 4)}
    stored = [numpy_helper.from_array(np.zeros(size, np.float32), name) for name, size in sizes.items()]
    ports = [helper.make_tensor_value_info("x", 1, [5, 1, 3]), helper.make_empty_tensor_value_info("y")]
    node = helper.make_node("GRU", ["x", "w", "r"], ["y"], "gru", hidden_size=4, layout=layout)
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], stored)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))


def test_a_recurrent_layer_does_not_state_its_layout(module):
    """The simulator ends where it is stated; the other one it does not take."""
    model = recurrent(0)
    assert module("recurrent").leave_out_layout(model) == 1
    assert set(model.graph[0].attributes) == {"hidden_size"}
    with pytest.raises(Unsupported, match=r"^gru \(GRU\): layout 1") as found:
        module("recurrent").leave_out_layout(recurrent(1))
    assert "--target onnxruntime" in found.value.ways_out


def test_zero_points_of_0_are_moved_and_the_numbers_stay(module):
    """The toolkit would make every step 128/127 of itself."""
    ports = [helper.make_tensor_value_info(name, 1, [7, 31]) for name in ("x", "y")]
    constants = {"s": np.float32(0.03), "z": np.int8(0), "t": np.float32(0.05), "k": np.int8(-3)}
    kinds = ("QuantizeLinear", "DequantizeLinear") * 2
    names = ["x", "a", "b", "c", "y"]
    nodes = [
        helper.make_node(kind, [names[at], *(("s", "z") if at < 2 else ("t", "k"))], [names[at + 1]], f"n{at}")
        for at, kind in enumerate(kinds)
    ]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    written = ir.from_proto(model)
    assert module("zero_points").move_zero_points(written) == 1
    assert module("zero_points").move_zero_points(written) == 0
    zeros = [int(node.inputs[2].const_value.numpy()) for node in written.graph]
    assert zeros == [1, 1, -3, -3]
    value = np.random.default_rng(2).uniform(-3.9, 3.7, (7, 31)).astype(np.float32)  # within the range
    before, after = (ReferenceEvaluator(each).run(None, {"x": value}) for each in (model, ir.to_proto(written)))
    np.testing.assert_array_equal(before[0], after[0])


def test_stored_weights_become_those_of_the_graph_as_the_toolkit_takes_them(module):
    """It maps 128 steps of the scale to 127, and rounds to these: each weight was up to half a step off."""
    weights = np.arange(-126, 127, dtype=np.int8).reshape(11, 23)
    scale = np.linspace(0.01, 0.3, 11).astype(np.float32)
    given = {"w": weights, "s": scale, "z": np.zeros(11, np.int8), "u": np.ones(2, np.int8), "one": np.int8(1)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], "w", axis=0),
        helper.make_node("DequantizeLinear", ["u", "t", "one"], ["e"], "u"),
        helper.make_node("Gemm", ["x", "d"], ["y"]),
    ]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in given.items()]
    stored.append(numpy_helper.from_array(np.float32(0.5), "t"))
    ports = [helper.make_tensor_value_info(*port) for port in (("x", 1, [2, 11]), ("y", 1, [2, 23]), ("e", 1, [2]))]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], stored)
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    assert module("weight_steps").write_weight_steps(model) == 1
    first = next(node for node in model.graph if node.name == "w")
    written, steps = (first.inputs[place].const_value.numpy() for place in (0, 1))
    taken = steps.astype(np.float64) * 128 / 127
    np.testing.assert_array_equal(np.rint(written * (steps / taken)[:, None]), weights)
    np.testing.assert_allclose(taken, scale, rtol=1e-6)
    assert set(model.graph.initializers) == {"w_taken", "w_taken_scale", "z", "u", "t", "one"}
    assert module("profile").profile(None).weight_range == (-126, 126)


def of_text(text: str, **stored: np.ndarray) -> onnx.ModelProto:
    """A model in ONNX's text form, with all shapes, and values for those that it calls stored."""
    model = onnx.parser.parse_model(text)
    kept = [each for each in model.graph.initializer if each.name not in stored]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, *(numpy_helper.from_array(value, name) for name, value in stored.items())])
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def of_operator(
    kind: str, sizes: tuple[int, ...], other: tuple[int, ...], place: int, is_stored: bool
) -> onnx.ModelProto:
    """One operator of arithmetic, with the other operand at ``place``: stored or an input."""
    y, rng = np.zeros(sizes) + np.zeros(other), np.random.default_rng(4)
    ports = [helper.make_tensor_value_info("x", 1, sizes)]
    stored = [numpy_helper.from_array(rng.uniform(0.5, 2, other).astype(np.float32), "o")] if is_stored else []
    if not is_stored:
        ports.append(helper.make_tensor_value_info("o", 1, other))
    names = ["x", "o"] if place else ["o", "x"]
    result = [helper.make_tensor_value_info("y", 1, y.shape)]
    graph = helper.make_graph([helper.make_node(kind, names, ["y"], "n")], "g", ports, result, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def computed(model: onnx.ModelProto) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    sizes = {port.name: [size.dim_value for size in port.type.tensor_type.shape.dim] for port in model.graph.input}
    feed = {name: rng.uniform(0.5, 2, size).astype(np.float32) for name, size in sizes.items()}
    return ReferenceEvaluator(model).run(None, feed)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(
    ("sizes", "other", "is_stored"),
    [
        ((7,), (7,), True),
        ((1, 7), (7,), True),
        ((1, 5, 7), (5, 7), True),
        ((1, 5, 7), (1, 5, 1), True),
        ((1, 5, 7), (1, 5, 1), False),
        ((1, 5, 1), (1, 1, 7), False),
        ((1, 3, 5, 7), (5, 1), True),
        ((1, 3, 5, 7), (1, 3, 1, 1), False),
        ((1, 2, 3, 5, 7), (2, 3, 5, 7), True),
        ((1, 2, 3, 5, 7), (1, 2, 3, 1, 1), False),
        ((1, 2, 3, 5, 7), (5, 1), False),
        ((1, 2, 2, 3, 5, 7), (5, 7), True),
    ],
    ids=str,
)
@pytest.mark.parametrize("place", [0, 1])
def test_arithmetic_of_different_operands_has_four_axes_and_computes_the_same(
    module, kind, sizes, other, is_stored, place
):
    """The toolkit crashes on any other number of them, and on stored values that are subtracted or divided by."""
    model = of_operator(kind, sizes, other, place, is_stored)
    written = ir.from_proto(model)
    module("arithmetic").write_arithmetic(written)
    (node,) = (each for each in written.graph if each.op_type in ("Add", "Sub", "Mul", "Div"))
    assert [
        len(value.const_value.shape if value.const_value is not None else value.shape) for value in node.inputs
    ] == [4, 4]
    assert len(node.outputs[0].shape) == 4
    if is_stored and place:
        assert node.op_type in ("Add", "Mul")
    np.testing.assert_allclose(computed(model)[0], computed(ir.to_proto(written))[0], rtol=1e-6)
    assert [each.name for each in written.graph.outputs] == ["y"]
    assert module("arithmetic").write_arithmetic(written) == 0


@pytest.mark.parametrize(
    ("sizes", "other", "is_stored"),
    [
        ((1, 3, 5, 7), (1, 3, 5, 7), False),
        ((1, 5, 7), (1, 5, 7), False),
        ((1, 5, 7), (), True),
        ((1, 5, 7), (1,), True),
        ((1, 2, 3, 5, 7), (2, 1, 1, 1), False),
    ],
    ids=str,
)
def test_other_arithmetic_stays_as_it_is(module, sizes, other, is_stored):
    """That of equal sizes, or a single value, the toolkit takes; the last has no four axes."""
    assert module("arithmetic").write_arithmetic(ir.from_proto(of_operator("Sub", sizes, other, 1, is_stored))) == 0


CONVOLUTIONS = {
    "patches": ("2, 3, 64, 48", "5, 3, 16, 16", "strides = [16, 16]"),
    "overlapping": ("2, 3, 66, 50", "5, 3, 12, 10", "strides = [8, 8]"),
    "shorter": ("2, 3, 65, 49", "5, 3, 3, 5", "strides = [8, 9]"),
    "padded": ("2, 3, 41, 37", "5, 3, 9, 9", "strides = [8, 8], pads = [4, 3, 2, 5]"),
    "one axis long": ("2, 3, 40, 20", "5, 3, 8, 3", "strides = [8, 1], pads = [0, 1, 0, 1]"),
    "groups": ("2, 6, 35, 33", "4, 3, 9, 9", "strides = [8, 10], group = 2"),
    "signal": ("2, 3, 163", "5, 3, 20", "strides = [10], pads = [5, 5]"),
    "signal, a prime": ("2, 3, 163", "5, 3, 11", "strides = [11]"),
    "signal, one channel each": ("2, 3, 100", "3, 1, 16", "strides = [16], group = 3"),
    "volume": ("1, 2, 9, 17, 17", "3, 2, 2, 8, 8", "strides = [2, 8, 8], pads = [0, 0, 0, 1, 0, 0]"),
}


def convolution_of(sizes: str, kernel: str, attributes: str) -> onnx.ModelProto:
    weights = np.random.default_rng(1).normal(size=[int(size) for size in kernel.split(", ")]).astype(np.float32)
    result = ", ".join("?" * weights.ndim)
    head = f'<ir_version: 9, opset_import: ["": 19]> g (float[{sizes}] x) => (float[{result}] y) <float[{kernel}] w>'
    return of_text(f"{head} {{ y = Conv<{attributes}>(x, w) }}", w=weights)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_long_stride_becomes_a_short_one_of_blocks_and_computes_the_same(module, case):
    model = convolution_of(*CONVOLUTIONS[case])
    written = ir.from_proto(model)
    module("long_strides").write_long_strides(written)
    (node,) = (each for each in written.graph if each.op_type == "Conv")
    assert max(node.attributes.get_ints("strides")) <= 7
    onnx.checker.check_model(ir.to_proto(written), full_check=True)
    np.testing.assert_allclose(computed(model)[0], computed(ir.to_proto(written))[0], rtol=1e-4, atol=1e-5)
    is_square = case in ("patches", "overlapping", "padded")
    assert ("SpaceToDepth" in {each.op_type for each in written.graph}) == is_square


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [("5, 4, 8, 8", "strides = [7, 7]"), ("4, 1, 8, 8", "strides = [8, 8], group = 4")],
    ids=["short", "one channel each"],
)
def test_strides_that_the_toolkit_takes_stay(module, kernel, attributes):
    model = convolution_of("1, 4, 33, 33", kernel, attributes)
    written = ir.from_proto(model)
    module("long_strides").write_long_strides(written)
    (node,) = written.graph
    assert list(node.attributes.get_ints("strides")) == list(model.graph.node[0].attribute[0].ints)


def test_scores_of_three_axes_get_four(module):
    """Of three the toolkit does not come to an end, also where the result is not rounded."""
    model = of_text(
        """<ir_version: 9, opset_import: ["": 19]> g (int8[2, 3, 4] a, int8[2, 4, 3] b) => (float[2, 3, 3] y)
        <float s = {0.1}, int8 z = {3}> {
            c = DequantizeLinear(a, s, z)
            d = DequantizeLinear(b, s, z)
            m = MatMul(c, d)
            y = Softmax(m)
        }"""
    )
    written = ir.from_proto(model)
    assert module("forms").write_products(written) == 1
    (product,) = (node for node in written.graph if node.op_type == "MatMul")
    assert [len(value.shape) for value in (*product.inputs, *product.outputs)] == [4, 4, 4]
    rng = np.random.default_rng(7)
    feed = {name: rng.integers(-9, 9, sizes).astype(np.int8) for name, sizes in (("a", (2, 3, 4)), ("b", (2, 4, 3)))}
    before, after = (ReferenceEvaluator(each).run(None, feed) for each in (model, ir.to_proto(written)))
    np.testing.assert_array_equal(before[0], after[0])


def test_scores_reach_the_softmax_unrounded(module):
    """The toolkit crashes on a Softmax of integers between two products of them."""
    model = of_text(
        """<ir_version: 9, opset_import: ["": 19]> g (float[1, 2, 3, 4] a, float[1, 2, 4, 3] b) => (float[1, 2, 3, 3] y)
        <float s = {0.1}, int8 z = {3}> {
            m = MatMul(a, b)
            q = QuantizeLinear(m, s, z)
            d = DequantizeLinear(q, s, z)
            y = Softmax(d)
        }"""
    )
    written = ir.from_proto(model)
    assert module("scores").leave_scores_float(written) == 1
    assert [node.op_type for node in written.graph] == ["MatMul", "Softmax"]
    assert module("scores").leave_scores_float(written) == 0


def test_a_layer_norm_states_its_defaults(module):
    """The toolkit ends with a KeyError without its epsilon."""
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[2, 3] x, float[3] s) => (float[2, 3] y, float[2, 3] z) {
        y = LayerNormalization(x, s)
        z = LayerNormalization<epsilon = 0.5, axis = 1>(x, s)
    }"""
    model = ir.from_proto(of_text(text))
    before = computed(ir.to_proto(model))
    module("norms").state_defaults(model)
    stated = [(node.attributes.get_int("axis"), node.attributes.get_float("epsilon")) for node in model.graph]
    assert stated == [(-1, pytest.approx(1e-5)), (1, 0.5)]
    np.testing.assert_array_equal(before, computed(ir.to_proto(model)))


@pytest.mark.parametrize(
    ("reads", "written"),
    [
        ("f = Softmax(s)", ["Add", "Add", "Softmax"]),
        ("f = Identity(s)", ["Add", "Add", "Identity"]),
        ("f = Softmax(d)", ["Add", "Softmax"]),
    ],
    ids=["computed", "read as it is", "rounded for all"],
)
def test_what_integers_and_floats_read_is_computed_for_each(module, reads, written):
    """The toolkit rounds it for both."""
    text = f"""<ir_version: 9, opset_import: ["": 19]> g (float[2, 3] x) => (float[2, 3] d, float[2, 3] f)
    <float c = {{0.3}}, float t = {{0.1}}, int8 z = {{3}}> {{
        s = Add(x, c)
        q = QuantizeLinear(s, t, z)
        d = DequantizeLinear(q, t, z)
        {reads}
    }}"""
    model = ir.from_proto(of_text(text))
    before = computed(ir.to_proto(model))
    assert module("twice").compute_twice(model) == (written.count("Add") - 1)
    assert sorted(node.op_type for node in model.graph if "Linear" not in node.op_type) == sorted(written)
    for value in [node.outputs[0] for node in model.graph]:
        assert len({use.node.op_type == "QuantizeLinear" for use in value.uses()}) < 2
    np.testing.assert_array_equal(before, computed(ir.to_proto(model)))


def test_an_output_that_integers_read_is_computed_for_each(module):
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[2, 3] x) => (float[2, 3] s, int8[2, 3] q)
    <float c = {0.3}, float t = {0.1}, int8 z = {3}> {
        s = Add(x, c)
        q = QuantizeLinear(s, t, z)
    }"""
    model = ir.from_proto(of_text(text))
    assert module("twice").compute_twice(model) == 1
    assert [value.name for value in model.graph.outputs] == ["s", "q"]
    assert not tuple(model.graph.outputs[0].uses())


def test_two_moves_of_one_value_have_names_of_their_own(module):
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[2, 3] x)
        => (int8[6] q, float[6] f, int8[3, 2] p, float[3, 2] h)
    <float t = {0.1}, int8 z = {3}, int64[1] n = {-1}, int64[2] o = {3, 2}> {
        s = Sigmoid(x)
        a = Reshape(s, n)
        q = QuantizeLinear(a, t, z)
        f = Relu(a)
        b = Reshape(s, o)
        p = QuantizeLinear(b, t, z)
        h = Relu(b)
    }"""
    model = ir.from_proto(of_text(text))
    before = computed(ir.to_proto(model))
    assert module("twice").compute_twice(model) == 2
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    for one, other in zip(before, computed(ir.to_proto(model)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_moved_is_computed_for_each_but_a_product(module):
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[2, 3] x, float[3, 4] w)
        => (float[8] f, float[8] g, int8[8] q, int8[8] p)
    <float t = {0.1}, int8 z = {3}, int64[1] n = {-1}> {
        m = MatMul(x, w)
        flat = Reshape(m, n)
        q = QuantizeLinear(flat, t, z)
        f = Relu(flat)
        s = Sigmoid(m)
        other = Reshape(s, n)
        p = QuantizeLinear(other, t, z)
        g = Relu(other)
    }"""
    model = ir.from_proto(of_text(text))
    assert module("twice").compute_twice(model) == 1
    assert [node.op_type for node in model.graph].count("Sigmoid") == 2
    assert [node.op_type for node in model.graph].count("Reshape") == 3
