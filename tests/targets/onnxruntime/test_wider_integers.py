"""Integers of types that ONNX Runtime has no kernel of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.targets.onnxruntime.long_extremes import write_out_long_extremes
from convertkit.targets.onnxruntime.wider_integers import _TYPES, widen_integers

_BODIES = {
    "ArgMax": "y = ArgMax<axis = 1>(x)",
    "ArgMin": "y = ArgMin<axis = 1>(x)",
    "BitShift": 'y = BitShift<direction = "LEFT">(x, x)',
    "Clip": "y = Clip(x, x0, x1)",
    "CumSum": "a = Constant<value_int = 1>() y = CumSum(x, a)",
    "Max": "y = Max(x, x0)",
    "Min": "y = Min(x, x1)",
    "NonZero": "y = NonZero(x)",
    "Pad": "p = Constant<value_ints = [0, 1, 0, 0]>() y = Pad(x, p, x1)",
    "ReduceMax": "y = ReduceMax<keepdims = 0>(x)",
    "ReduceMin": "y = ReduceMin<keepdims = 0>(x)",
    "ReduceSum": "y = ReduceSum<keepdims = 0>(x)",
    "Relu": "y = Relu(x)",
    "TopK": "k = Constant<value_ints = [2]>() y, i = TopK(x, k)",
    "Trilu": "y = Trilu(x)",
    "Unique": "y, p, q, r = Unique(x)",
    "Where": "c = Constant<value = bool[3] {1, 0, 1}>() y = Where(c, x, x1)",
}
_CASES = [(operator, kind) for operator, kinds in _TYPES.items() for kind in kinds]


def _model(operator: str, kind: ir.DataType) -> onnx.ModelProto:
    """The scalars ``x0`` and ``x1`` are 2 and 9."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x) => (float y) {{ {_BODIES[operator]} }}'
    )
    dtype = kind.numpy()
    for name, number in (("x0", 2), ("x1", 9)):
        if any(name in node.input for node in proto.graph.node):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(number, dtype), name))
    proto.graph.input[0].type.tensor_type.elem_type = int(kind)
    del proto.graph.output[:]
    inferred = onnx.shape_inference.infer_shapes(proto)
    proto.graph.output.append(next(value for value in inferred.graph.value_info if value.name == "y"))
    return proto


@pytest.mark.parametrize(("operator", "kind"), _CASES, ids=[f"{each}-{kind.name}" for each, kind in _CASES])
def test_they_run(operator: str, kind: ir.DataType) -> None:
    proto = _model(operator, kind)
    with pytest.raises(Exception, match=r"Could not find an implementation|is invalid"):
        ort.InferenceSession(proto.SerializeToString())
    top = 11 if operator == "BitShift" else np.iinfo(kind.numpy()).max if kind.itemsize < 4 else 2**31 + 5
    x = np.array([[3, 0, 7], [top, 1, 3]], np.uint64).astype(kind.numpy())
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    widen_integers(model)
    write_out_long_extremes(model)  # of int64, which stand in for uint32
    (have,) = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, {"x": x})
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    assert have.dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(have, want)


def test_what_has_a_kernel_stays() -> None:
    model = ir.from_proto(onnx.shape_inference.infer_shapes(_model("Pad", ir.DataType.INT32)))
    widen_integers(model)
    assert "Cast" not in {node.op_type for node in model.graph}


@pytest.mark.parametrize(("operator", "kind"), [("Pad", ir.DataType.UINT16), ("CumSum", ir.DataType.UINT64)])
def test_an_export_delivers_them(operator: str, kind: ir.DataType, tmp_path: Path) -> None:
    """The file, which ONNX Runtime did not load, and its sums begin again at the other end."""
    onnx.save(_model(operator, kind), tmp_path / "model.onnx")
    made = convertkit.export(tmp_path / "model.onnx", "onnxruntime", output=tmp_path / "made", no_cache=True)
    x = np.array([[3, 0, 7], [np.iinfo(kind.numpy()).max, 1, 3]], kind.numpy())
    (want,) = ReferenceEvaluator(_model(operator, kind)).run(None, {"x": x})
    np.testing.assert_array_equal(made.run(x)["y"], want)
