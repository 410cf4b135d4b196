"""Models that compute in float16: widened, with the interface they had."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.halves import widen_bfloats, widen_halves
from tests.targets.tflite.compiled import compiled, numbers

HALF, FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT


def layers(weights=HALF):
    """Convolution, Relu and product in float16, from float16 to float16."""
    kind = helper.tensor_dtype_to_np_dtype(weights)
    stored = {"w": numbers(8, 3, 3, 3).astype(kind), "f": numbers(8, 5).astype(kind)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "f"], ["y"]),
    ]
    infos = helper.make_tensor_value_info("x", HALF, ["n", 3, 6, 5]), helper.make_tensor_value_info("y", HALF, ["n", 5])
    graph = helper.make_graph(
        nodes, "g", infos[:1], infos[1:], [numpy_helper.from_array(value, name) for name, value in stored.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_all_is_float_but_the_interface():
    model = canonicalize(ir.from_proto(layers()))
    assert widen_halves(model)
    assert [value.dtype for value in (*model.graph.inputs, *model.graph.outputs)] == [ir.DataType.FLOAT16] * 2
    inner = {value.dtype for node in model.graph for value in node.outputs if not value.is_graph_output()}
    assert inner == {ir.DataType.FLOAT}
    assert not widen_halves(model), "what is wide stays as it is"
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_tflite_computes_them_in_float_and_keeps_the_weights():
    case = compiled(layers())
    assert case.compiled.from_halves
    assert case.operators["CAST"] == 2, "at the interface alone"
    assert [spec.dtype for spec in (*case.compiled.inputs, *case.compiled.outputs)] == ["float16", "float16"]
    case.agree(*({"x": numbers(n, 3, 6, 5).astype(np.float16)} for n in (2, 1, 5)), tolerance=1e-3)
    stored = {str(op.inputs[0].dtype) for graph in case.compiled.program.subgraphs for op in graph.operations
              if op.code == "DEQUANTIZE" and op.inputs[0] is not None}  # fmt: skip
    assert stored == {"float16"}


def test_halves_in_the_middle_of_a_float_model():
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y, float16[2,3] z) {
        h = Cast<to=10>(x)
        s = Mul(h, h)
        z = Sqrt(s)
        y = Cast<to=1>(s) }""")
    case.agree({"x": numbers(2, 3)}, tolerance=2e-3)


UNKNOWN = ("Concat<axis=1>(h, h)", "Max(h, low, h)")
"""Of several computed values no more is known than that they are halves."""


@pytest.mark.parametrize(
    "between",
    [
        "Relu(h)",
        "Clip(h, low, high)",
        "Max(h, low)",
        "MaxPool<kernel_shape = [2, 2]>(h)",
        "Abs(h)",
        *UNKNOWN,
    ],
)
def test_rounding_stays_where_nothing_rounds_again(between):
    """The bounds are -0.3 and 1.2."""
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[1,3,4,5] x) => (float[a,b,c,d] y)
        <float16 low = {{46285}}, float16 high = {{15565}}> {{
        h = Cast<to=10>(x)
        s = {between}
        y = Cast<to=1>(s) }}""")
    assert case.compiled.from_halves, "ONNX Runtime computes some of them in float32, without rounding"
    feed = {"x": 3 * numbers(1, 3, 4, 5) + 0.013}
    ((_, found),) = case.both([feed])
    rounded = found["y"].astype(np.float16).astype(np.float32)
    assert np.array_equal(rounded, found["y"]) == (between not in UNKNOWN)
    wanted = onnx.reference.ReferenceEvaluator(case.proto).run(None, feed)[0]
    np.testing.assert_allclose(found["y"], wanted, rtol=0, atol=2e-3 if between in UNKNOWN else 0)


def test_branches_too():
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float16[2,3] x, bool c) => (float16[2,3] y) {
        y = If (c) <then_branch = a () => (float16[2,3] t) { t = Add(x, x) },
                    else_branch = b () => (float16[2,3] e) { e = Exp(x) }> }""")
    feed = numbers(2, 3).astype(np.float16)
    case.agree({"x": feed, "c": np.array(True)}, {"x": feed, "c": np.array(False)}, tolerance=1e-3)


@pytest.mark.parametrize("result", ["int16", "float16"])
def test_bits_are_those_of_halves(result):
    other = {"int16": "float16", "float16": "int16"}[result]
    code = {"int16": 5, "float16": 10}[result]
    before, after = ("Neg(x)", "Abs(bits)")
    model = onnx.parser.parse_model(f"""<ir_version: 13, opset_import: ["" : 26]> g ({other}[3] x) => ({result}[3] y) {{
        n = {before} bits = BitCast<to={code}>(n) y = {after} }}""")
    x = np.array([1.5, -2.0, 0.25], np.float16)
    feed = x if result == "int16" else x.view(np.int16)
    reference = onnx.reference.ReferenceEvaluator(model)
    wide = canonicalize(ir.from_proto(model))
    widen_halves(wide)
    onnx.checker.check_model(ir.to_proto(wide), full_check=True)
    got = onnx.reference.ReferenceEvaluator(ir.to_proto(wide)).run(None, {"x": feed})[0]
    np.testing.assert_array_equal(got, reference.run(None, {"x": feed})[0])


@pytest.mark.parametrize("precision", ["int8", "w8"])
def test_a_model_of_halves_is_quantized(precision, tmp_path):
    onnx.save(layers(), tmp_path / "half.onnx")
    np.save(tmp_path / "calib.npy", numbers(8, 3, 6, 5).astype(np.float16))
    result = convertkit.export(
        str(tmp_path / "half.onnx"),
        "tflite",
        **{precision: True},
        calib=str(tmp_path / "calib.npy"),
        output=str(tmp_path / "out"),
    )
    (output,) = result.run({"x": numbers(2, 3, 6, 5, seed=3).astype(np.float16)}).values()
    assert output.dtype == np.float16
    assert output.shape == (2, 5)


_IN_BFLOAT16 = {
    "casts around, as from JAX": "b = Cast<to=1>(a) c = MatMul(b, w) d = Cast<to=16>(c) y = Cast<to=1>(d)",
    "operators": "v = Cast<to=16>(w) c = MatMul(a, v) r = Relu(c) s = Transpose(r) y = Cast<to=1>(s)",
}


@pytest.mark.parametrize("name", _IN_BFLOAT16)
def test_tflite_computes_bfloat16_in_float(name, tmp_path):
    body = f"a = Cast<to=16>(x) {_IN_BFLOAT16[name]}"
    text = f'<ir_version: 10, opset_import: ["" : 22]> g (float[4,4] x) => (float[4,4] y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(numbers(4, 4, seed=3), "w"))
    case = compiled(proto)
    assert "CAST" not in case.operators
    onnx.save(proto, tmp_path / "short.onnx")
    result = convertkit.export(tmp_path / "short.onnx", "tflite", output=tmp_path / "made", no_cache=True)
    assert result.verified


def test_bfloat16_stays_at_inputs_and_outputs():
    for inputs, outputs in (("bfloat16[4] x", "float[4] y"), ("float[4] x", "bfloat16[4] y")):
        proto = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 22]> g ({inputs}) => ({outputs}) '
            f"{{ a = Cast<to=16>(x) b = Add(a, a) y = Cast<to={16 if 'bf' in outputs else 1}>(b) }}"
        )
        model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
        assert not widen_bfloats(model)
        assert ir.to_proto(model).graph.node == ir.to_proto(ir.from_proto(proto)).graph.node


def test_bfloat16_weights_alone_are_only_stored():
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> g (float[n,4] x) => (float[n,4] y) '
        "{ v = Cast<to=1>(w) y = MatMul(x, v) }"
    )
    weights = numpy_helper.to_array(numpy_helper.from_array(numbers(4, 4), "w"))
    proto.graph.initializer.append(helper.make_tensor("w", onnx.TensorProto.BFLOAT16, (4, 4), weights.reshape(-1)))
    case = compiled(proto)
    assert not widen_bfloats(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))
    case.agree({"x": numbers(2, 4)})
