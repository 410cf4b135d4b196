"""Weights that float operators read are made real when ONNX Runtime loads the model, not at each call."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.targets.onnxruntime.foldable import make_foldable
from tests.targets.onnxruntime.optimized import executed

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 6, 5, 7)).astype(np.float32)
INTEGERS = RNG.integers(-127, 128, (4, 6, 3, 3)).astype(np.int8)
SCALES = RNG.uniform(0.01, 0.1, 4).astype(np.float32)


def conv(*, zero: int = 0, integer: bool = False) -> onnx.ModelProto:
    """A convolution with a stored weight; with integers on both sides it is an integer one."""
    constants = {"w": INTEGERS, "s": SCALES, "z": np.full(4, zero, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"], axis=0),
        helper.make_node("Conv", ["xd" if integer else "x", "r"], ["c" if integer else "y"]),
    ]
    if integer:
        constants |= {"xs": np.asarray(0.03, np.float32), "xz": np.asarray(128, np.uint8)}
        nodes.insert(0, helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]))
        nodes.insert(1, helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]))
        nodes.append(helper.make_node("QuantizeLinear", ["c", "xs", "xz"], ["cq"]))
        nodes.append(helper.make_node("DequantizeLinear", ["cq", "xs", "xz"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "conv",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4, 3, 5])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def answer(model: onnx.ModelProto) -> np.ndarray:
    """By ONNX's definition; ONNX Runtime sums in another order once it sees a constant weight."""
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": X})[0])


def test_the_same_numbers_and_nothing_left_to_do_at_each_call(tmp_path: Path) -> None:
    plain = conv()
    model = ir.from_proto(plain)
    assert make_foldable(model) == 1
    made = ir.to_proto(model)
    onnx.checker.check_model(made, full_check=True)
    assert "DequantizeLinear" in executed(plain.SerializeToString(), tmp_path)
    assert not {"DequantizeLinear", "Cast", "Mul"} & set(executed(made.SerializeToString(), tmp_path))
    np.testing.assert_array_equal(answer(made), answer(plain))
    assert {each.data_type for each in made.graph.initializer} >= {onnx.TensorProto.INT8}


@pytest.mark.parametrize("plain", [conv(integer=True), conv(zero=3)], ids=["integer operator", "zero point"])
def test_left_alone(plain: onnx.ModelProto) -> None:
    model = ir.from_proto(plain)
    assert make_foldable(model) == 0
    assert ir.to_proto(model).graph == ir.to_proto(ir.from_proto(plain)).graph


def matrix(shape: list[int | str], *, bits: int = 8, deep: int = 64, wide: int = 48) -> onnx.ModelProto:
    """``y = x W``: int8 with a scale per column, or int4 with one per 32 rows of a column."""
    array = np.random.default_rng(1).integers(-7, 8, (deep, wide)).astype(np.int8)
    scales = np.random.default_rng(2).uniform(0.01, 0.1, (deep // 32, wide)).astype(np.float32)
    attributes = {"axis": 0, "block_size": 32} if bits == 4 else {"axis": 1}
    constants = {
        "w": array.astype(ml_dtypes.int4) if bits == 4 else array,
        "s": scales if bits == 4 else scales[0],
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["r"], **attributes),
        helper.make_node("MatMul", ["x", "r"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "matrix",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [*shape, deep])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [*shape, wide])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("model", "folded"),
    [
        (matrix([1, 16], bits=4), 1),
        (matrix(["N", 16], bits=4), 1),
        (matrix([1, "length"], bits=4), 0),
        (matrix([1, 1], bits=4), 1),
        (matrix([1, 1], bits=4, deep=256, wide=256), 0),
        (matrix([1, 2]), 1),
        (matrix([1, "length"]), 1),
        (matrix([1], deep=256, wide=256), 0),
    ],
    ids=[
        "rows",
        "dynamic batch",
        "dynamic length",
        "small",
        "one row",
        "int8",
        "int8, dynamic length",
        "int8, one row",
    ],
)
def test_matrices_keep_the_form_that_has_a_kernel_where_that_is_fast(
    model: onnx.ModelProto, folded: int, tmp_path: Path
) -> None:
    changed = ir.from_proto(model)
    assert make_foldable(changed) == folded
    made = ir.to_proto(changed)
    onnx.checker.check_model(made, full_check=True)
    kinds = set(executed(made.SerializeToString(), tmp_path))
    assert ("MatMulNBits" in kinds) == (not folded)
    assert not kinds & {"Cast", "Mul", "DequantizeLinear"}
    sizes = [dim.dim_value or 3 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = RNG.standard_normal(sizes).astype(np.float32)
    expected, got = (ReferenceEvaluator(each).run(None, {"x": x})[0] for each in (model, made))
    np.testing.assert_array_equal(got, expected)


def added(rank: int, addend: str) -> onnx.ModelProto:
    """``y = x W + z`` of one row, where ``z`` is another product, as in an LSTM's gates, or a bias."""
    deep = 256
    lead = [1] * (rank - 1)
    arrays = {name: RNG.integers(-127, 128, (deep, deep)).astype(np.int8) for name in "wu"}
    scales = {name: np.full(deep, 0.01, np.float32) for name in ("s", "t")}
    constants = {**arrays, **scales, "row": np.ones(deep, np.float32)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["wr"], axis=1),
        helper.make_node("MatMul", ["x", "wr"], ["m"]),
        helper.make_node("Add", ["m", addend], ["y"]),
    ]
    if addend == "n":
        nodes[2:2] = [
            helper.make_node("DequantizeLinear", ["u", "t"], ["ur"], axis=1),
            helper.make_node("MatMul", ["x", "ur"], ["n"]),
        ]
    graph = helper.make_graph(
        nodes,
        "added",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [*lead, deep])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [*lead, deep])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
        value_info=[helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [*lead, deep]) for n in "mn"],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("model", "folded"),
    [(added(2, "n"), 2), (added(3, "n"), 0), (added(2, "row"), 0)],
    ids=["sum of products", "of rank 3", "bias"],
)
def test_a_product_that_becomes_a_gemm_does_not_make_its_weight_real_at_each_call(
    model: onnx.ModelProto, folded: int, tmp_path: Path
) -> None:
    """ONNX Runtime's MatMulAddFusion hides DequantizeLinear from MatMulNBits: an LSTM's step took 4.7 times as long."""
    changed = ir.from_proto(model)
    assert make_foldable(changed) == folded
    kinds = set(executed(ir.to_proto(changed).SerializeToString(), tmp_path))
    assert "DequantizeLinear" not in kinds
    assert ("MatMulNBits" in kinds) == (not folded)


WIDE, DEEP = 256, 512


def gemm(
    *,
    transposed: int = 1,
    bias: int | None = 1,
    bits: int = 4,
    block: int = 32,
    twice: bool = False,
    alpha: float = 1.0,
) -> onnx.ModelProto:
    """``y = alpha x W + b`` of a dynamic batch; ``bias`` is its rank."""
    shape, along = ((WIDE, DEEP), 1) if transposed else ((DEEP, WIDE), 0)
    array = np.random.default_rng(1).integers(-7, 8, shape).astype(np.int8)
    count = [size // (block if place == along else 1) for place, size in enumerate(shape)] if block else [WIDE]
    constants = {
        "w": array.astype(ml_dtypes.int4) if bits == 4 else array,
        "s": 2.0 ** np.random.default_rng(2).integers(-6, -2, count).astype(np.float32),
        "b": np.ones([1] * (bias - 1) + [WIDE] if bias else [], np.float32),
    }
    attributes = {"axis": along, "block_size": block} if block else {"axis": 1 - along}
    row = [] if bias is None else ["b"]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["r"], **attributes),
        helper.make_node("Gemm", ["x", "r", *row], ["y"], transB=transposed, alpha=alpha),
    ]
    if twice:
        nodes.append(helper.make_node("Gemm", ["x", "r", *row], ["z"], transB=transposed))
    graph = helper.make_graph(
        nodes,
        "gemm",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", DEEP])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", WIDE]) for name in "yz"[: 1 + twice]],
        [numpy_helper.from_array(array, name) for name, array in constants.items() if name != "b" or row],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("model", "folded"),
    [
        (gemm(), 0),
        (gemm(transposed=0), 0),
        (gemm(bias=None), 0),
        (gemm(block=0), 0),
        (gemm(bias=2), 1),
        (gemm(alpha=0.5), 1),
        (gemm(twice=True), 1),
        (gemm(transposed=0, twice=True), 1),
        (gemm(bits=8, block=0), 1),
    ],
    ids=[
        "transposed", "plain", "no bias", "scale per column", "bias of rank 2", "factor", "read twice transposed",
        "read twice", "int8",
    ],
)  # fmt: skip
def test_a_large_gemm_reads_4_bits_from_memory_where_a_kernel_does(
    model: onnx.ModelProto, folded: int, tmp_path: Path
) -> None:
    """Made real, a model of such layers takes four times its float size while ONNX Runtime loads it."""
    changed = ir.from_proto(model)
    assert make_foldable(changed) == folded
    made = ir.to_proto(changed)
    onnx.checker.check_model(made, full_check=True)
    kinds = set(executed(made.SerializeToString(), tmp_path))
    assert ("MatMulNBits" in kinds) == (not folded)
    assert "DequantizeLinear" not in kinds
    x = RNG.integers(-8, 9, (3, DEEP)).astype(np.float32)  # no sum is rounded, in whatever order a processor adds
    for expected, got in zip(*(ReferenceEvaluator(each).run(None, {"x": x}) for each in (model, made)), strict=True):
        assert np.abs(expected).max() > 1
        np.testing.assert_array_equal(got, expected)


def depthwise(path: Path) -> Path:
    """A depthwise convolution, which ONNX Runtime multiplies faster in float, behind a small dense one."""
    arrays = {"a": RNG.standard_normal((64, 3, 1, 1)), "b": RNG.standard_normal((64, 1, 7, 7)) / 7}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"]),
        helper.make_node("Conv", ["c", "b"], ["y"], pads=[3] * 4, group=64),
    ]
    graph = helper.make_graph(
        nodes,
        "depthwise",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 64, 16, 16])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10), path)
    return path


def test_where_integers_do_not_pay_they_only_store_weights(tmp_path: Path) -> None:
    source = depthwise(tmp_path / "net.onnx")
    images = RNG.standard_normal((16, 3, 16, 16)).astype(np.float32)
    result = convertkit.export(source, "onnxruntime", int8=True, calib={"x": images}, output=tmp_path / "out")
    model = onnx.load(result.artifact.path)
    assert "QuantizeLinear" not in {node.op_type for node in model.graph.node}
    stored = {each.name: each.data_type for each in model.graph.initializer if len(each.dims) == 4}
    assert onnx.TensorProto.INT8 in stored.values()
    kinds = executed(result.artifact.path, tmp_path)
    assert not {"QLinearConv", "QuantizeLinear", "DequantizeLinear", "Mul"} & set(kinds)


def test_recurrent_weights_are_integers_that_cost_nothing(tmp_path: Path) -> None:
    arrays = {"w": RNG.standard_normal((1, 96, 32)) / 6, "r": RNG.standard_normal((1, 96, 32)) / 6}
    graph = helper.make_graph(
        [helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=32)],
        "gru",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [5, 1, 32])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [5, 1, 1, 32])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    source = tmp_path / "gru.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), source)
    steps = RNG.standard_normal((16, 5, 1, 32)).astype(np.float32)
    feeds = [{"x": each} for each in steps]
    result = convertkit.export(source, "onnxruntime", int8=True, calib=feeds, output=tmp_path / "out")
    stored = [each.data_type for each in onnx.load(result.artifact.path).graph.initializer if len(each.dims) == 3]
    assert stored.count(onnx.TensorProto.INT8) == 2
    assert executed(result.artifact.path, tmp_path) == ["GRU"]


def test_weights_of_operators_without_integer_kernel_are_stored_too(tmp_path: Path) -> None:
    arrays = {"a": RNG.standard_normal((16, 3, 1, 1)), "b": RNG.standard_normal((16, 16, 3, 3)) / 12}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "a"], ["c"]),
            helper.make_node("ConvTranspose", ["c", "b"], ["y"], strides=[2, 2]),
        ],
        "up",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 16, 13, 13])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    source = tmp_path / "up.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), source)
    maps = RNG.standard_normal((16, 3, 6, 6)).astype(np.float32)
    result = convertkit.export(source, "onnxruntime", int8=True, calib={"x": maps}, output=tmp_path / "out")
    stored = {tuple(each.dims): each.data_type for each in onnx.load(result.artifact.path).graph.initializer}
    assert stored[16, 16, 3, 3] == onnx.TensorProto.INT8
    kinds = executed(result.artifact.path, tmp_path)
    assert "ConvTranspose" in kinds
    assert not {"DequantizeLinear", "Cast", "Mul"} & set(kinds)
