"""QDQ graphs as integer kernels: what is folded, what stays float, and the integers themselves."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from convertkit.errors import Unsupported
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import Case, compiled, numbers

SCALE = 0.05


class Qdq:
    """Writes QDQ graphs: every helper returns the name of a float value."""

    def __init__(self, *, kind=np.int8):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.kind = kind

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def quantized(self, x, scale=SCALE, zero=3):
        zero = zero + 128 if self.kind == np.uint8 else 0 if self.kind == np.int16 else zero
        params = self.constant(np.float32(scale)), self.constant(np.array(zero, self.kind))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *params), *params)

    def weight(self, *shape, axis=0, seed=1):
        integers = np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)
        scales = np.linspace(0.002, 0.004, shape[axis]).astype(np.float32)
        zeros = self.constant(np.zeros(shape[axis], np.int8))
        return self.node("DequantizeLinear", self.constant(integers), self.constant(scales), zeros, axis=axis), scales

    def bias(self, scales, seed=2):
        integers = np.random.default_rng(seed).integers(-900, 900, scales.shape).astype(np.int32)
        return self.node("DequantizeLinear", self.constant(integers), self.constant(np.float32(SCALE) * scales), axis=0)

    def case(self, y, shape, options=None) -> Case:
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return compiled(onnx.shape_inference.infer_shapes(model), options)


def within_one_lsb(case: Case, shape, scale, seeds=range(3), share=0.02):
    for expected, result in case.both([{"x": numbers(*shape, seed=seed) * 3} for seed in seeds]):
        steps = np.abs(np.rint((result["y"] - expected["y"]) / scale))
        assert steps.max() <= 1
        assert (steps > 0).mean() < share


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("group", [1, 4])
def test_convolution_with_bias_and_relu(kind, group):
    q = Qdq(kind=kind)
    x = q.quantized("x")
    channels = 16 if group == 1 else group  # with fewer, several pixels of a row would be taken as one
    w, scales = q.weight(8, channels // group, 3, 3)
    y = q.node("Conv", x, w, q.bias(scales), pads=[1, 1, 1, 1], group=group, strides=[2, 2])
    case = q.case(q.quantized(q.node("Relu", y), scale=0.08, zero=-128), (1, channels, 9, 7))
    kernel = "CONV_2D" if group == 1 else "DEPTHWISE_CONV_2D"
    assert case.operators == {"QUANTIZE": 1, kernel: 1, "DEQUANTIZE": 1}
    within_one_lsb(case, (1, channels, 9, 7), 0.08)


WIDE = [
    pytest.param(np.int16, 100, id="int16-asymmetric"),
    pytest.param(np.uint16, 32768, id="uint16"),
    pytest.param(np.uint16, 30000, id="uint16-asymmetric"),
]


@pytest.mark.parametrize(("kind", "zero"), WIDE)
@pytest.mark.parametrize("op", ["Conv", "MatMul", "Add", "MaxPool", "Sigmoid", "ReduceMax"])
def test_sixteen_bits_without_integer_kernels_are_computed_as_the_graph_says(op, kind, zero):
    """int16 kernels know no zero point, and none takes uint16."""
    q = Qdq()

    def rounded(x, scale):
        params = q.constant(np.float32(scale)), q.constant(np.array(zero, kind))
        return q.node("DequantizeLinear", q.node("QuantizeLinear", x, *params), *params)

    x = rounded("x", 2e-4)
    more = {
        "Conv": lambda: [q.weight(8, 4, 3, 3)[0]],
        "MatMul": lambda: [q.weight(5, 7, axis=1)[0]],
        "Add": lambda: [rounded(q.node("Relu", "x"), 3e-4)],
        "ReduceMax": lambda: [q.constant(np.array([3]))],
    }.get(op, list)()
    options = {"kernel_shape": [2, 2]} if op == "MaxPool" else {}
    case = q.case(rounded(q.node(op, x, *more, **options), 3e-4), (1, 4, 6, 5))
    within_one_lsb(case, (1, 4, 6, 5), 3e-4)


def test_the_largest_of_integers_keeps_their_scale():
    q = Qdq(kind=np.int16)
    y = q.node("ReduceMax", q.quantized("x", scale=2e-4), q.constant(np.array([2])))
    case = q.case(q.quantized(y, scale=3e-4), (2, 3, 4))
    assert case.operators == {"QUANTIZE": 2, "REDUCE_MAX": 1, "DEQUANTIZE": 1}
    within_one_lsb(case, (2, 3, 4), 3e-4)


@pytest.mark.parametrize("op", ["Conv", "Gemm"])
@pytest.mark.parametrize(
    "weights",
    [
        pytest.param((np.uint8, [120, 125, 128, 131]), id="uint8-per-channel"),
        pytest.param((np.uint8, [120] * 4), id="uint8"),
        pytest.param((np.int8, [-3, 0, 2, 5]), id="int8-per-channel"),
        pytest.param((np.int16, [0] * 4), id="int16"),
        pytest.param((np.int16, [-3, 0, 2, 5]), id="int16-asymmetric"),
    ],
)
def test_weights_that_no_kernel_takes_as_they_are(op, weights):
    kind, zeros = weights
    q = Qdq()
    x = q.quantized("x")
    shape = (4, 3, 2, 2) if op == "Conv" else (4, 6)
    integers = np.random.default_rng(1).integers(-100 if kind != np.uint8 else 28, 128, shape).astype(kind)
    scales = np.linspace(0.002, 0.004, 4).astype(np.float32)
    w = q.node("DequantizeLinear", *(q.constant(each) for each in (integers, scales, np.array(zeros, kind))), axis=0)
    y = q.node(op, x, w, q.bias(scales), **({"transB": 1} if op == "Gemm" else {}))
    sizes = (2, 3, 5, 4) if op == "Conv" else (2, 6)
    within_one_lsb(q.case(q.quantized(y, scale=0.08), sizes), sizes, 0.08)


def test_quantized_activations_are_not_quantized_again_by_the_kernel():
    """The graph says to what integers; a dynamic-range kernel would choose others."""
    q = Qdq()
    w, _ = q.weight(64, 32, axis=1)
    x = q.node("Reshape", q.quantized("x", scale=0.2), q.constant(np.array([-1, 64])))
    q.case(q.node("MatMul", x, w), (3, 1, 64)).agree({"x": numbers(3, 1, 64)})


def test_int16_activations():
    q = Qdq(kind=np.int16)
    x = q.quantized("x", scale=2e-4)
    w, _ = q.weight(8, 4, 3, 3)
    case = q.case(q.quantized(q.node("Conv", x, w), scale=3e-4), (1, 4, 9, 7))
    assert case.operators["CONV_2D"] == 1
    within_one_lsb(case, (1, 4, 9, 7), 3e-4, share=0.2)  # int16 kernels rescale in fixed point


@pytest.mark.parametrize("axis", [1, None])
def test_matmul_with_integer_bias_is_one_layer(axis):
    q = Qdq()
    x = q.quantized("x")
    w, scales = q.weight(6, 5, axis=1)
    y = q.node("MatMul", x, w)
    if axis is not None:
        y = q.node("Add", y, q.bias(scales))
    case = q.case(q.quantized(y, scale=0.09), (2, 6))
    assert case.operators == {"QUANTIZE": 1, "FULLY_CONNECTED": 1, "DEQUANTIZE": 1}
    within_one_lsb(case, (2, 6), 0.09)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_arithmetic(op):
    q = Qdq()
    x = q.quantized("x")
    other = q.quantized(q.node("Relu", x), scale=0.03, zero=-100)
    case = q.case(q.quantized(q.node(op, x, other), scale=0.11, zero=-5), (2, 3, 4))
    assert case.operators[op.upper()] == 1
    within_one_lsb(case, (2, 3, 4), 0.11)


def test_concat_of_other_scales_is_requantized_first():
    q = Qdq()
    x = q.quantized("x")
    other = q.quantized(q.node("Relu", x), scale=0.03, zero=-100)
    case = q.case(q.quantized(q.node("Concat", x, other, axis=1), scale=0.07), (2, 3, 4))
    assert case.operators["CONCATENATION"] == 1
    within_one_lsb(case, (2, 3, 4), 0.07)


@pytest.mark.parametrize("op", ["Concat", "Min"])
def test_integers_of_other_scales_are_those_of_the_graph(op):
    """XNNPACK's kernel from integers to integers makes a tenth of these others."""
    q = Qdq()
    other = q.quantized(q.node("Relu", "x"), scale=0.447, zero=-5)
    y = q.node(op, q.quantized("x", scale=0.35), other, **({"axis": 1} if op == "Concat" else {}))
    case = q.case(q.quantized(y, scale=0.447, zero=-5), (1, 256))
    assert case.operators[{"Concat": "CONCATENATION", "Min": "MINIMUM"}[op]] == 1
    every = (np.float32(0.35) * (np.arange(256) - 128 - 3).astype(np.float32))[None]
    ((expected, result),) = case.both([{"x": every}])
    np.testing.assert_allclose(result["y"], expected["y"], atol=1e-4)


def test_softmax_stays_float_unless_everything_must_be_integer():
    for full, kernels in ((False, 2), (True, 1)):
        q = Qdq()
        y = q.node("Softmax", q.quantized("x"))
        case = q.case(q.quantized(y, scale=1 / 256, zero=-128), (2, 7), Options(full_integer=full))
        assert case.operators["DEQUANTIZE"] == kernels
        within_one_lsb(case, (2, 7), 1 / 256)


@pytest.mark.parametrize("layout", ["auto", "nchw"])
def test_full_integer_leaves_floats_at_the_interface_only(layout):
    q = Qdq()
    w, _ = q.weight(8, 4, 3, 3)
    case = q.case(q.quantized(q.node("Conv", q.quantized("x"), w)), (1, 4, 9, 7), Options(layout, full_integer=True))
    assert case.operators["QUANTIZE"] == case.operators["DEQUANTIZE"] == 1
    within_one_lsb(case, (1, 4, 9, 7), SCALE)


@pytest.mark.parametrize(
    ("nodes", "kernel"),
    [(["Softmax"], "SOFTMAX"), (["Abs", "Exp"], "ABS"), (["quantized", "Softmax", "Neg"], "SOFTMAX")],
)
def test_full_integer_refuses_the_first_float_operator_by_name(nodes, kernel):
    q = Qdq()
    y = q.quantized("x")
    for kind in nodes:
        y = q.quantized(y) if kind == "quantized" else q.node(kind, y)
        q.nodes[-1].name = f"the_{kind.lower()}"
    named = next(kind for kind in nodes if kind != "quantized").lower()
    with pytest.raises(Unsupported, match=rf"^the_{named} \({kernel}\): computes in float32.*--full-integer") as caught:
        q.case(y, (2, 7), Options(full_integer=True))
    assert caught.value.ways_out == ("--int8 without --full-integer", "--target onnxruntime")


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_integer_interface(kind):
    q = Qdq()
    w, _ = q.weight(8, 4, 3, 3)
    y = q.quantized(q.node("Conv", q.quantized("x"), w), scale=0.08)
    case = q.case(y, (1, 4, 9, 7), Options(io_dtype=kind))
    assert [spec.dtype for spec in (*case.compiled.inputs, *case.compiled.outputs)] == [kind, kind]
    assert "DEQUANTIZE" not in case.operators
    within_one_lsb(case, (1, 4, 9, 7), 0.08)


def test_integer_interface_of_a_float_model_is_refused():
    with pytest.raises(Unsupported, match="--io-dtype: input x is used in float"):
        compiled(
            '<ir_version: 8, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }',
            Options(io_dtype="int8"),
        )


def test_weight_only_layers_keep_integer_weights():
    q = Qdq()
    w, _ = q.weight(64, 320, axis=1)
    case = q.case(q.node("MatMul", "x", w), (3, 64))
    assert case.operators == {"FULLY_CONNECTED": 1}
    for expected, result in case.both([{"x": numbers(3, 64)}]):
        assert np.abs(result["y"] - expected["y"]).max() < 0.02 * np.abs(expected["y"]).max()


def test_half_weights_are_stored_as_halves():
    text = """<ir_version: 8, opset_import: ["" : 21]> g (float[3,64] x) => (float[3,32] y) {
        f = Cast<to=1>(w)
        y = MatMul(x, f) }"""
    proto = parser.parse_model(text)
    half = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float16)
    proto.graph.initializer.append(numpy_helper.from_array(half, "w"))
    proto = onnx.shape_inference.infer_shapes(proto)  # what `--fp16` makes comes after simplification
    case = Case(proto, compile_model(ir.from_proto(proto), Options()))
    assert case.operators == {"DEQUANTIZE": 1, "FULLY_CONNECTED": 1}
    case.agree({"x": numbers(3, 64)})


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "ConvTranspose", "Conv"])
def test_halves_that_a_kernel_wants_as_constants_or_in_another_order(kind):
    """A recurrent kernel takes constants only, and others want weights in another order: the file keeps halves."""
    rng = np.random.default_rng(0)
    rows = {"GRU": 24, "LSTM": 32}.get(kind, 0)
    shapes = {"w": (1, rows, 8), "r": (1, rows, 8)} if rows else {"w": (8, 8, 3)}
    nodes = [helper.make_node("Cast", [name], [f"{name}_wide"], to=1) for name in shapes]
    names = ["x", *(f"{name}_wide" for name in shapes)]
    nodes.append(helper.make_node(kind, names, ["y"], **({"hidden_size": 8} if rows else {})))
    x = helper.make_tensor_value_info("x", 1, [5, 2, 8] if rows else [2, 8, 6])
    y = helper.make_tensor_value_info("y", 1, None)
    stored = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float16), name) for name, shape in shapes.items()
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)
    proto = onnx.shape_inference.infer_shapes(proto)
    case = Case(proto, compile_model(ir.from_proto(proto), Options()))
    case.agree({"x": numbers(*([5, 2, 8] if rows else [2, 8, 6]))})
    constants = {
        t for g in case.compiled.program.subgraphs for op in g.operations for t in op.inputs if t and t.size >= 64
    }
    assert {t.dtype for t in constants if t.constant is not None} == {"float16"}


def test_sizes_are_asked_of_the_integers():
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[n,8] x) => (int64[2] y)
        <float scale = {0.1}, int8 zero = {0}> {
        q = QuantizeLinear(x, scale, zero)  f = DequantizeLinear(q, scale, zero)  y = Shape(f) }""")
    assert "DEQUANTIZE" not in case.operators
    case.agree({"x": numbers(3, 8)})


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_the_largest_element_is_found_among_the_integers(kind):
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,8] x) => (int64[n] y)
        <float scale = {{0.1}}, int8 zero = {{3}}> {{
        q = QuantizeLinear(x, scale, zero)  f = DequantizeLinear(q, scale, zero)
        y = {kind}<axis=1, keepdims=0>(f) }}""")
    assert "DEQUANTIZE" not in case.operators
    case.agree({"x": numbers(30, 8)})


def test_an_integer_interface_whose_size_the_model_reads():
    text = """<ir_version: 8, opset_import: ["" : 21]> g (float[n,8] x) => (float[n,8] y, int64[2] s)
        <float scale = {0.1}, int8 zero = {3}> {
        s = Shape(x)  q = QuantizeLinear(x, scale, zero)  y = DequantizeLinear(q, scale, zero) }"""
    made = compile_model(ir.from_proto(parser.parse_model(text)), Options(io_dtype="int8", full_integer=True))
    assert [spec.dtype for spec in made.inputs] == ["int8"]


@pytest.mark.parametrize("op", ["Add", "Sub"])
@pytest.mark.parametrize(
    ("other", "result"), [(1.3e36, 1.3e36), (1e6, 1e6), (1.3e-36, SCALE), (SCALE, 1e-8), (1e9, 1e2)]
)
def test_sums_of_scales_worlds_apart_stay_float(op: str, other: float, result: float):
    """The integer kernel ends the process: scores meet a mask of -1e38 in transformers that quantize_static made."""
    q = Qdq()
    far = q.quantized(q.constant(numbers(1, 5, seed=4) * np.float32(other)), scale=other)
    case = q.case(q.quantized(q.node(op, q.quantized("x"), far), scale=result), (1, 5))
    assert case.operators["DEQUANTIZE"] >= 2
    within_one_lsb(case, (1, 5), result, share=0.5)
