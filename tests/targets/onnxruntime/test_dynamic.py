"""Stored int8 weights of many rows are multiplied as integers, with activations that are quantized on the fly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.onnx.unsigned import widen_weights
from convertkit.targets.onnxruntime import stored
from convertkit.targets.onnxruntime.dynamic import make_dynamic
from convertkit.targets.onnxruntime.profile import costs
from tests.targets.onnxruntime.optimized import executed

RNG = np.random.default_rng(0)
DEEP, WIDE = 96, 160
INTEGERS = RNG.integers(-127, 128, (DEEP, WIDE)).astype(np.int8)
SCALES = RNG.uniform(0.001, 0.01, WIDE).astype(np.float32)
BIAS = RNG.standard_normal(WIDE).astype(np.float32)


def product(op: str, shape: list[int | str], **attributes: object) -> onnx.ModelProto:
    """``y = x W`` with W behind DequantizeLinear, one scale per column; Gemm adds a bias."""
    flipped = attributes.get("transB") == 1
    rows = shape[1:] if attributes.get("transA") == 1 else shape[:-1]
    constants = {"w": INTEGERS.T if flipped else INTEGERS, "s": SCALES, "b": BIAS}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["r"], axis=0 if flipped else 1),
        helper.make_node(op, ["x", "r", *(["b"] if op == "Gemm" else [])], ["y"], "product", **attributes),
    ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [*rows, WIDE])],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def rewritten(model: onnx.ModelProto) -> tuple[int, onnx.ModelProto]:
    changed = ir.from_proto(model)
    count = make_dynamic(changed, costs())
    widen_weights(changed)  # as a file for any processor is delivered
    made = ir.to_proto(changed)
    onnx.checker.check_model(made, full_check=True)
    return count, made


@pytest.mark.parametrize(
    "model",
    [
        product("MatMul", [2, 32, DEEP]),
        product("MatMul", [1, "tokens", DEEP]),
        product("MatMul", ["batch", DEEP]),
        product("Gemm", [64, DEEP]),
        product("Gemm", [64, DEEP], transB=1),
    ],
    ids=["matrices", "dynamic length", "dynamic batch", "Gemm", "Gemm, transposed"],
)
def test_integer_kernels_and_eight_bits_of_activations(model: onnx.ModelProto, tmp_path: Path) -> None:
    count, made = rewritten(model)
    assert count == 1
    kinds = set(executed(made.SerializeToString(), tmp_path))
    assert kinds & {"DynamicQuantizeMatMul", "MatMulIntegerToFloat"}
    assert not kinds & {"MatMul", "Gemm", "DequantizeLinear", "MatMulNBits"}
    sizes = [dim.dim_value or 32 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = RNG.standard_normal(sizes).astype(np.float32)
    expected, got = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(["y"], {"x": x})[0].astype(np.float64)
        for each in (model, made)
    )
    assert 10 * np.log10(np.square(expected).sum() / np.square(expected - got).sum()) > 38


def test_rows_that_are_read_by_several_products_are_quantized_once() -> None:
    model = product("MatMul", [1, 64, DEEP])
    model.graph.node.append(helper.make_node("MatMul", ["x", "r"], ["z"], "second"))
    model.graph.output.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [1, 64, WIDE]))
    count, made = rewritten(model)
    assert count == 2
    assert [node.op_type for node in made.graph.node].count("DynamicQuantizeLinear") == 1
    assert "DequantizeLinear" not in {node.op_type for node in made.graph.node}


@pytest.mark.parametrize(
    "model",
    [
        product("MatMul", [1, 1, DEEP]),
        product("MatMul", [1, 2, DEEP]),
        product("Gemm", ["batch", DEEP]),
        product("Gemm", [64, DEEP], alpha=0.5),
        product("Gemm", [DEEP, 64], transA=1),
    ],
    ids=["one row", "too small", "dynamic batch of a classifier", "factor", "transposed rows"],
)
def test_left_alone(model: onnx.ModelProto) -> None:
    assert rewritten(model)[0] == 0


def test_a_large_gemm_of_a_dynamic_batch_is_not_made_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float weights take four times the memory, and twice the time of one row and of many."""
    model = product("Gemm", ["batch", DEEP], transB=1)
    monkeypatch.setattr(stored, "_LARGE", INTEGERS.size + 1)
    assert rewritten(model)[0] == 0
    monkeypatch.setattr(stored, "_LARGE", INTEGERS.size)
    count, made = rewritten(model)
    assert count == 1
    assert "MatMulInteger" in {node.op_type for node in made.graph.node}


@pytest.mark.parametrize("precision", ["w8", "int8"])
def test_a_product_in_front_of_a_softmax_computes_in_integers(tmp_path: Path, precision: str) -> None:
    """Between float operators no static integers pay, and float would leave half of the speed."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], "up"),
        helper.make_node("Softmax", ["h"], ["p"], "softmax"),
        helper.make_node("MatMul", ["p", "b"], ["y"], "down"),
    ]
    constants = {"a": RNG.standard_normal((DEEP, WIDE)) / 10, "b": RNG.standard_normal((WIDE, DEEP)) / 10}
    for node in nodes:
        entry = node.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.stack_trace", 'File "model.py", line 3, in forward'
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64, DEEP]) for name in "xy"]
    weights = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "attention", ends[:1], ends[1:], weights)
    source = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), source)
    samples = RNG.standard_normal((16, 64, DEEP)).astype(np.float32)
    result = convertkit.export(
        source, "onnxruntime", output=tmp_path / "out", calib={"x": samples}, **{precision: True}
    )
    kinds = executed(result.artifact.path, tmp_path)
    assert kinds.count("DynamicQuantizeMatMul") + kinds.count("MatMulIntegerToFloat") == 2
    stored = [value for value in ir.load(result.artifact.path).graph.initializers.values() if len(value.shape) == 2]
    # Beside rounded activations weights are chosen to fit; alone they keep their full range.
    assert {value.dtype for value in stored} == {ir.DataType.INT8 if precision == "int8" else ir.DataType.UINT8}
    last = result.report["steps"][-1]
    assert "on the fly" in last["parity"]["versus_previous"]["tolerance"]["reason"]
    assert not any(node.metadata_props for node in onnx.load(result.artifact.path).graph.node)
