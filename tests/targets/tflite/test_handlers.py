"""Handlers in one-operator models: LiteRT against ONNX Runtime, twice in a row on one interpreter.

What the ONNX suite (tests/conformance) does not cover: other activations, long sequences, ragged
lengths, unusual attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options

Arrays = dict[str, np.ndarray]


OPSETS = {
    "CumProd": 26,
    "MaxRoiPool": 21,
    "GlobalLpPool": 18,
    "DequantizeLinear": 23,
    "QuantizeLinear": 23,
    "TensorScatter": 24,
}
"""Operators whose rows need another opset than 22."""


def model(
    op: str, inputs: Arrays, constants: Arrays, order: Sequence[str], outputs: int, **attributes
) -> onnx.ModelProto:
    """One node; ``order`` names its inputs, an empty name is an absent one."""
    names = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, list(order), names, **attributes)
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "g", declared, results, stored)
    opsets = [helper.make_opsetid("", OPSETS.get(op, 22))]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


def compiled(proto: onnx.ModelProto, folder: Path) -> Interpreter:
    path = folder / "model.tflite"
    compile_model(canonicalize(ir.from_proto(proto)), Options(input_layout="nchw")).write(path)
    return Interpreter(model_path=str(path), num_threads=1)


def agrees(proto: onnx.ModelProto, feeds: Sequence[Arrays], folder: Path, rtol: float = 1e-5) -> None:
    """Every call equals ONNX Runtime's: nothing is kept from one call to the next."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        oracle = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (ort.capi.onnxruntime_pybind11_state.NotImplemented, ort.capi.onnxruntime_pybind11_state.Fail):
        oracle = ReferenceEvaluator(proto)  # what ONNX Runtime has no kernel for
    runner = compiled(proto, folder).get_signature_runner()
    for feed in feeds:
        wanted = oracle.run(None, feed)
        found = runner(**feed)
        for value, want in zip(proto.graph.output, wanted, strict=True):
            have = found[value.name]
            assert have.dtype == want.dtype
            assert have.shape == want.shape
            scale = max(float(np.abs(want).max(initial=0)), 1e-6) if want.dtype.kind == "f" else 1
            np.testing.assert_allclose(have / scale, want / scale, rtol=0, atol=rtol)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RECURRENT = [
    pytest.param("LSTM", {}, 5, "", id="lstm"),
    pytest.param("LSTM", {"direction": "bidirectional"}, 5, "hcp", id="lstm-bidirectional-states-peepholes"),
    pytest.param("LSTM", {"direction": "reverse"}, 5, "lh", id="lstm-reverse-lengths"),
    pytest.param("LSTM", {"direction": "bidirectional", "clip": 0.3}, 40, "lhc", id="lstm-while-lengths-clip"),
    pytest.param("LSTM", {"input_forget": 1}, 4, "", id="lstm-coupled"),
    pytest.param(
        "LSTM",
        {"activations": ["HardSigmoid", "Softsign", "ScaledTanh"], "activation_alpha": [0.3, 1.5],
         "activation_beta": [0.4, 0.7]},
        4, "", id="lstm-activations",
    ),
    pytest.param("GRU", {}, 5, "h", id="gru"),
    pytest.param("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}, 6, "lh", id="gru-linear"),
    pytest.param("GRU", {"linear_before_reset": 1}, 40, "", id="gru-while"),
    pytest.param(
        "GRU", {"activations": ["ScaledTanh", "Affine"], "activation_alpha": [0.9, 0.5], "activation_beta": [0.8, 0.1],
                "clip": 0.7}, 4, "", id="gru-activations-clip"),
    pytest.param("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.25]}, 4, "",
                 id="rnn-affine"),
    pytest.param("RNN", {"direction": "bidirectional"}, 4, "", id="rnn-bidirectional"),
    pytest.param("GRU", {"direction": "reverse"}, 4, "", id="gru-reverse"),
    pytest.param("RNN", {"direction": "reverse", "clip": 0.5}, 5, "lh", id="rnn-reverse"),
    pytest.param("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.2]}, 4, "", id="rnn-leaky"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attributes", "steps", "extras"), RECURRENT)
def test_recurrent(op: str, attributes: dict, steps: int, extras: str, tmp_path: Path):
    batch, features, hidden = 3, 4, 5
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[op]
    constants = {
        "w": normal(ways, gates * hidden, features, seed=1) / 2,
        "r": normal(ways, gates * hidden, hidden, seed=2) / 2,
        "b": normal(ways, 2 * gates * hidden, seed=3) / 2,
    }
    inputs = {"x": normal(steps, batch, features)}
    order = ["x", "w", "r", "b", "", "", "", ""][: 8 if op == "LSTM" else 6]
    if "l" in extras:
        inputs["l"] = np.array([steps, steps - 2, 1], np.int32)
        order[4] = "l"
    if "h" in extras:
        inputs["h"] = normal(ways, batch, hidden, seed=4)
        order[5] = "h"
    if "c" in extras:
        inputs["c"] = normal(ways, batch, hidden, seed=5)
        order[6] = "c"
    if "p" in extras:
        constants["p"] = normal(ways, 3 * hidden, seed=6)
        order[7] = "p"
    outputs = 3 if op == "LSTM" else 2
    proto = model(op, inputs, constants, order, outputs, hidden_size=hidden, **attributes)
    other = {name: value if name == "l" else value[::-1].copy() for name, value in inputs.items()}
    agrees(proto, [inputs, other, inputs], tmp_path)


_WIDE = np.array([[0, 1, -1, 6], [1 << 40, -(1 << 40) - 5, np.iinfo(np.int64).max, np.iinfo(np.int64).min]])
_BOXES = np.array([[0, 0, 0, 5, 7], [1, 2, 1, 4, 3], [1, 3, 3, 3, 3], [0, -2.5, 4, 30, 9], [1, 6, 5, 2, 1],
                   [0, 20, 20, 30, 30], [1, 0.5, 1.5, 2.5, 7.5]], np.float32)  # fmt: skip
"""Images and corners: inside, of one pixel, reaching over the border, turned around, outside, halves."""
ROWS = [
    pytest.param("Slice", {"x": normal(4, 5, 6)}, {"s": np.array([-1]), "e": np.array([-9]), "a": np.array([1]),
                 "t": np.array([-2])}, "x s e a t", {}, id="slice-backwards"),
    pytest.param("Slice", {"x": normal(2, 3, 4, 2, 3, 2)}, {"s": np.array([1, 0]), "e": np.array([99, 2]),
                 "a": np.array([2, 5]), "t": np.array([2, 1])}, "x s e a t", {}, id="slice-rank-6"),
    pytest.param("Pad", {"x": normal(4, 5)}, {"p": np.array([-1, 2, 1, -2]), "v": np.float32(7)}, "x p v", {},
                 id="pad-and-cut"),
    pytest.param("Pad", {"x": normal(4, 5)}, {"p": np.array([1, 2, 3, 4])}, "x p", {"mode": "wrap"}, id="pad-wrap"),
    pytest.param("Mod", {"x": normal(4, 5), "y": normal(4, 5, seed=1)}, {}, "x y", {"fmod": 1}, id="mod-float"),
    *(pytest.param(op, {"x": _WIDE, "y": _WIDE[::-1].copy()}, {}, "x y", {}, id=f"{op}-int64")
      for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    pytest.param("BitwiseNot", {"x": _WIDE}, {}, "x", {}, id="not-int64"),
    *(pytest.param("BitwiseAnd", {"x": _WIDE.astype(kind)}, {"m": np.array(mask, kind)}, "x m", {},
                   id=f"mask-{mask}-{kind}")
      for kind in ("int32", "int64") for mask in (0, 1, 63, 64, -1, (1 << 31) - 1)),
    pytest.param("Pow", {"x": np.array([-3, -2, 0, 1, 2, 7], np.int64)}, {"y": np.array([3, 2, 4, 5, 6, 1], np.int64)},
                 "x y", {}, id="pow-int64"),
    pytest.param("TopK", {"x": np.array([[5, -3, 5, 2, -128]], np.int32)}, {"k": np.array([3])}, "x k",
                 {"largest": 0}, id="topk-smallest-int32"),
    pytest.param("TopK", {"x": np.array([[5, -3, 5, 32767, -32768]], np.int16)}, {"k": np.array([4])}, "x k",
                 {"largest": 0}, id="topk-smallest-int16"),
    pytest.param("ReduceLogSumExp", {"x": normal(3, 4) * 100}, {"a": np.array([1])}, "x a", {}, id="logsumexp-large"),
    pytest.param("ReduceLogSumExp", {"x": normal(3, 4)}, {"a": np.array([1])}, "x a", {"keepdims": 0}, id="logsumexp"),
    pytest.param("ReduceMin", {"x": np.array([[True, False], [True, True]])}, {"a": np.array([1])}, "x a", {},
                 id="reduce-bool"),
    pytest.param("CumSum", {"x": normal(4, 5)}, {"a": np.array(1)}, "x a", {"exclusive": 1, "reverse": 1}, id="cumsum"),
    pytest.param("Erf", {"x": np.linspace(-6, 6, 200, dtype=np.float32)}, {}, "x", {}, id="erf"),
    pytest.param("Sinh", {"x": np.array([-1e-4, 1e-6, -30, 88, 0.5], np.float32)}, {}, "x", {}, id="sinh"),
    pytest.param("Softplus", {"x": np.array([-90, -1e-3, 0, 5, 90], np.float32)}, {}, "x", {}, id="softplus"),
    pytest.param("GatherElements", {"x": normal(3, 4), "i": np.array([[-1, 0], [2, -3]])}, {}, "x i", {"axis": 0},
                 id="gather-elements"),
    pytest.param("GatherND", {"x": normal(2, 3, 4), "i": np.array([[[-1]], [[1]]])}, {}, "x i", {"batch_dims": 1},
                 id="gather-nd-batch"),
    pytest.param("GatherND", {"x": normal(5)}, {"i": np.array([-2])}, "x i", {}, id="gather-nd-scalar"),
    pytest.param("GatherND", {"x": normal(3, 4), "i": np.array([2, 1])}, {}, "x i", {}, id="gather-nd-one"),
    pytest.param("ScatterND", {"x": normal(4, 3), "i": np.array([[3], [-4]]), "u": normal(2, 3, seed=1)}, {}, "x i u",
                 {"reduction": "max"}, id="scatter-nd-max"),
    *(pytest.param("ScatterElements", {"x": np.array([[end, 1, end], [2, end, -end]], np.float32),
                   "i": np.array([[0, 1], [1, 1]]), "u": np.array([[end, 3], [-4, end]], np.float32)}, {}, "x i u",
                   {"axis": 1, "reduction": kind}, id=f"scatter-{kind}-onto-infinity")
      for kind, end in (("max", -np.inf), ("min", np.inf))),
    pytest.param("ScatterElements", {"x": np.arange(12).reshape(3, 4), "i": np.array([[-1, 0]]),
                 "u": np.array([[50, 60]])}, {}, "x i u", {"axis": 1}, id="scatter-int64"),
    pytest.param("Resize", {"x": normal(1, 2, 5, 7)}, {"s": np.array([1, 1, 0.6, 1.7], np.float32)}, "x  s",
                 {"mode": "cubic", "exclude_outside": 1}, id="resize-cubic"),
    pytest.param("Resize", {"x": normal(1, 2, 5, 7)}, {"z": np.array([1, 2, 10, 14])}, "x   z",
                 {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, id="resize-asymmetric"),
    pytest.param("Resize", {"x": normal(1, 2, 6, 6)}, {"z": np.array([1, 2, 12, 18])}, "x   z",
                 {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
                 id="resize-nearest"),
    pytest.param("GridSample", {"x": normal(2, 3, 5, 4), "g": normal(2, 3, 2, 2, seed=1)}, {}, "x g",
                 {"mode": "cubic", "padding_mode": "reflection", "align_corners": 1}, id="gridsample"),
    pytest.param("MaxRoiPool", {"x": normal(2, 3, 9, 8), "r": _BOXES}, {}, "x r",
                 {"pooled_shape": [2, 3], "spatial_scale": 0.7}, id="max-roi-scaled"),
    pytest.param("MaxRoiPool", {"x": normal(2, 3, 6, 13), "r": _BOXES}, {}, "x r", {"pooled_shape": [7, 1]},
                 id="max-roi"),
    pytest.param("AveragePool", {"x": normal(1, 2, 5, 6, 4)}, {}, "x",
                 {"kernel_shape": [2, 3, 2], "pads": [1, 1, 0, 0, 1, 1], "strides": [1, 2, 1], "count_include_pad": 1},
                 id="average-3d"),
    pytest.param("MaxPool", {"x": normal(1, 2, 7, 8)}, {}, "x",
                 {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]},
                 id="max-holes"),
    pytest.param("LpPool", {"x": normal(1, 2, 7, 8)}, {}, "x", {"kernel_shape": [3, 2], "p": 3}, id="lppool-3"),
    pytest.param("MatMul", {"x": np.arange(-12, 12).reshape(2, 3, 4), "y": np.arange(20).reshape(4, 5)}, {}, "x y", {},
                 id="matmul-int64"),
    pytest.param("MatMul", {"x": np.arange(4, dtype=np.int32)}, {"y": np.arange(20, dtype=np.int32).reshape(4, 5)},
                 "x y", {}, id="matmul-int32-vector"),
    pytest.param("DepthToSpace", {"x": normal(1, 8, 2, 3)}, {}, "x", {"blocksize": 2, "mode": "CRD"}, id="crd"),
    pytest.param("Einsum", {"x": normal(2, 3, 4), "y": normal(2, 5, 4, seed=1)}, {}, "x y",
                 {"equation": "bij,bkj->bik"}, id="einsum"),
    pytest.param("Einsum", {"x": normal(2, 3, 4), "y": normal(1, 5, 4, seed=1)}, {}, "x y",
                 {"equation": "bij,bkj->bik"}, id="einsum-one-for-all"),
    pytest.param("Einsum", {"x": normal(2, 3, 4), "y": normal(1, 5, 1, seed=1)}, {}, "x y",
                 {"equation": "bij,bkj->ki"}, id="einsum-ones-summed"),
    pytest.param("Einsum", {"x": normal(1, 3, 4), "y": normal(2, 3, 1, seed=1)}, {}, "x y",
                 {"equation": "...ij,...ij->...i"}, id="einsum-ones-on-both-sides"),
    pytest.param("Trilu", {"x": np.arange(24).reshape(2, 3, 4)}, {"k": np.array(-1)}, "x k", {"upper": 0}, id="trilu"),
    pytest.param("Cast", {"x": normal(3, 4) * 9}, {}, "x", {"to": TensorProto.INT8}, id="cast-int8"),
    pytest.param("QuantizeLinear", {"x": normal(2, 3, 4)}, {"s": np.array([0.1, 0.2, 0.05], np.float32),
                 "z": np.array([3, -4, 0], np.int8)}, "x s z", {"axis": 1}, id="quantize-per-axis"),
    pytest.param("CastLike", {"x": normal(3, 4) * 9, "y": np.zeros(2, np.int32)}, {}, "x y", {}, id="cast-like"),
    pytest.param("ConstantOfShape", {"x": np.array([2, 3])}, {}, "x",
                 {"value": numpy_helper.from_array(np.array([7], np.int32))}, id="constant-of-shape"),
    pytest.param("Conv", {"x": normal(1, 4, 7, 8)}, {"w": normal(6, 2, 2, 3, seed=1)}, "x w",
                 {"group": 2, "dilations": [2, 1], "pads": [1, 0, 1, 2]}, id="conv-groups-holes"),
    pytest.param("Conv", {"x": normal(1, 2, 7, 8)}, {"w": normal(3, 2, 2, 3, seed=1)}, "x w",
                 {"auto_pad": "SAME_LOWER"}, id="conv-same-lower"),
    pytest.param("Conv", {"x": normal(1, 2, 7, 8)}, {"w": normal(3, 2, 2, 3, seed=1)}, "x w", {"auto_pad": "VALID"},
                 id="conv-valid"),
    pytest.param("Conv", {"x": normal(1, 2, 7, 8)}, {"w": normal(3, 2, 2, 3, seed=1)}, "x w",
                 {"auto_pad": "SAME_UPPER", "strides": [2, 1]}, id="conv-same"),
    pytest.param("ConvTranspose", {"x": normal(1, 2, 3, 4)}, {"w": normal(2, 3, 1, 2, seed=1)}, "x w",
                 {"strides": [3, 3], "auto_pad": "SAME_LOWER"}, id="conv-transpose-stride-beyond-kernel"),
    pytest.param("ConvTranspose", {"x": normal(1, 2, 2, 3, 4)}, {"w": normal(2, 3, 1, 2, 2, seed=1)}, "x w",
                 {"strides": [2, 3, 1], "auto_pad": "SAME_UPPER"}, id="conv-transpose-3d-stride-beyond-kernel"),
    pytest.param("ConvTranspose", {"x": normal(1, 4, 3, 4, 2)}, {"w": normal(4, 3, 2, 3, 2, seed=1)}, "x w",
                 {"group": 2, "strides": [2, 1, 3], "pads": [0, 1, 0, 1, 0, 1], "output_padding": [1, 0, 2],
                  "dilations": [1, 2, 1]}, id="conv-transpose-volume"),
    pytest.param("ConvTranspose", {"x": normal(1, 4, 3, 4, 2), "w": normal(4, 3, 2, 3, 2, seed=1)}, {}, "x w",
                 {"group": 2, "strides": [2, 1, 3], "pads": [0, 1, 0, 1, 0, 1], "output_padding": [1, 0, 2],
                  "dilations": [1, 2, 1]}, id="conv-transpose-volume-computed"),
    pytest.param("ConvTranspose", {"x": normal(1, 4, 5, 4), "w": normal(4, 3, 2, 3, seed=1)}, {}, "x w",
                 {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [3, 2]},
                 id="conv-transpose-computed-holes"),
    pytest.param("ConvTranspose", {"x": normal(1, 2, 3, 4, 2)}, {"w": normal(2, 3, 3, 3, 3, seed=1)}, "x w",
                 {"auto_pad": "SAME_LOWER", "strides": [2, 1, 2]}, id="conv-transpose-volume-same"),
    pytest.param("ConvTranspose", {"x": normal(1, 2, 3, 4)}, {"w": normal(2, 3, 3, 3, seed=1)}, "x w",
                 {"auto_pad": "VALID", "strides": [2, 1]}, id="conv-transpose-valid"),
    pytest.param("Unique", {"x": np.array([2, 1, 1, 3, 4, 3], np.float32)}, {}, "x", {"sorted": 0}, id="unique"),
    pytest.param("CumProd", {"x": normal(3, 4)}, {"a": np.array(1)}, "x a", {"reverse": 1}, id="cumprod-reverse"),
    pytest.param("DeformConv", {"x": normal(1, 4, 6, 7), "o": normal(1, 8, 2, 3, seed=2)},
                 {"w": normal(2, 2, 2, 2, seed=1)}, "x w o", {"strides": [3, 2], "dilations": [1, 2], "group": 2},
                 id="deform-conv"),
    pytest.param("DeformConv", {"x": normal(2, 4, 5, 4), "o": normal(2, 24, 4, 2, seed=2)},
                 {"w": normal(3, 4, 2, 3, seed=1)}, "x w o", {"offset_group": 2}, id="deform-conv-offset-groups"),
    pytest.param("GlobalLpPool", {"x": normal(1, 2, 5, 4)}, {}, "x", {"p": 3}, id="global-lp"),
    pytest.param("LpPool", {"x": normal(1, 2, 6, 6)}, {}, "x",
                 {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, id="lppool-ceil"),
    pytest.param("LpPool", {"x": normal(1, 2, 6, 6)}, {}, "x", {"kernel_shape": [3, 2], "auto_pad": "VALID"},
                 id="lppool-valid"),
    pytest.param("MaxPool", {"x": normal(1, 2, 6, 6)}, {}, "x", {"kernel_shape": [3, 2], "auto_pad": "VALID"},
                 id="max-valid"),
    pytest.param("AveragePool", {"x": normal(1, 2, 6, 6)}, {}, "x", {"kernel_shape": [3, 2], "auto_pad": "VALID"},
                 id="average-valid"),
    pytest.param("Range", {"a": np.array(2), "b": np.array(11), "c": np.array(3)}, {}, "a b c", {}, id="range"),
    pytest.param("Reshape", {"x": normal(2, 0, 3)}, {"s": np.array([0, 6])}, "x s", {"allowzero": 1},
                 id="reshape-zero"),
    pytest.param("STFT", {"x": normal(1, 16, 1)}, {"t": np.array(4), "w": np.ones(8, np.float32), "l": np.array(8)},
                 "x t w l", {"onesided": 0}, id="stft-both-sides"),
    pytest.param("STFT", {"x": normal(2, 107, 1)}, {"t": np.array(16), "w": np.hanning(48).astype(np.float32)},
                 "x t w", {"onesided": 1}, id="stft-in-blocks"),
    pytest.param("STFT", {"x": normal(1, 33, 1)}, {"t": np.array(32), "w": np.hanning(32).astype(np.float32)},
                 "x t w", {"onesided": 1}, id="stft-of-one-block"),
    pytest.param("TensorScatter", {"x": normal(2, 3, 4, 5), "u": normal(2, 3, 2, 5, seed=1)}, {"i": np.array([1, 2])},
                 "x u i", {"axis": 2}, id="tensor-scatter-axis"),
    pytest.param("MaxUnpool", {"x": np.array([[[[5, 6], [7, 8]]]], np.float32)},
                 {"i": np.array([[[[5, 7], [9, 12]]]])}, "x i",
                 {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]}, id="max-unpool-pads"),
    pytest.param("TopK", {"x": np.array([[5, -3, 300, 2, -32768]], np.int16)}, {"k": np.array([3])}, "x k",
                 {"largest": 0}, id="topk-smallest-int16"),
    pytest.param("PRelu", {"x": np.array([[5, 2**32 - 1]], np.uint32)}, {"s": np.array([3, 4], np.uint32)}, "x s", {},
                 id="prelu-unsigned"),
    pytest.param("Sigmoid", {"x": normal(3, 4).astype(np.float16)}, {}, "x", {}, id="sigmoid-half"),
    pytest.param("ReduceMean", {"x": np.array([[-7, 2, 9, -8], [5, -1, -6, 0]], np.int32)}, {"a": np.array([1])},
                 "x a", {"keepdims": 0}, id="mean-int32"),
    *(
        pytest.param(op, {"x": np.abs(normal(3, 4)) + 1}, {}, "x", {"noop_with_empty_axes": 1}, id=f"{op}-no-axes")
        for op in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "constants", "order", "attributes"), ROWS)
def test_operator(op: str, inputs: Arrays, constants: Arrays, order: str, attributes: dict, tmp_path: Path):
    outputs = 2 if op == "TopK" else 1
    names = order.split(" ")
    proto = model(
        op, inputs, {name: np.asarray(value) for name, value in constants.items()}, names, outputs, **attributes
    )
    agrees(proto, [inputs, inputs], tmp_path)


def test_bytes_of_silence(tmp_path: Path) -> None:
    """A range of 0 has the scale 1, as in ONNX Runtime."""
    feeds = [{"x": array} for array in (np.zeros((2, 3), np.float32), normal(2, 3), np.full((2, 3), -2, np.float32))]
    agrees(model("DynamicQuantizeLinear", feeds[0], {}, ["x"], 3), feeds, tmp_path)


REFUSALS = [
    pytest.param("Det", {"x": normal(5, 5)}, "x", {}, "up to 4", id="det-5"),
    pytest.param(
        "MaxRoiPool",
        {"x": np.zeros((1, 1, 512, 512), np.float32), "r": _BOXES},
        "x r",
        {"pooled_shape": [2, 2]},
        "windows: their numbers",
        id="max-roi-of-a-large-image",
    ),
    pytest.param("Pow", {"x": np.arange(4), "y": normal(4)}, "x y", {}, "computed at run time", id="pow-int-float"),
    pytest.param("Pow", {"x": np.ones(4), "y": np.ones(4)}, "x y", {}, "float64 input: TFLite POW", id="pow-double"),
    pytest.param("Unique", {"x": normal(3, 4)}, "x", {"axis": 1}, "equal slices", id="unique-slices"),
    pytest.param("Ceil", {"x": np.arange(4)}, "x", {}, "ONNX does not allow", id="ceil-int64"),
    pytest.param("Tanh", {"x": normal(4).astype(np.float64)}, "x", {}, "float64", id="tanh-double"),
    pytest.param(
        "MatMul",
        {"x": np.ones((2, 1, 1, 2, 3), np.int64), "y": np.ones((3, 2), np.int64)},
        "x y",
        {},
        "operands of rank 5",
        id="matmul-int64-rank-5",
    ),
    pytest.param(
        "BitShift",
        {"x": np.ones(3, np.uint64), "y": np.ones(3, np.uint64)},
        "x y",
        {"direction": "LEFT"},
        "uint64",
        id="shift-uint64",
    ),
]


@pytest.mark.parametrize(("op", "inputs", "order", "attributes", "reason"), REFUSALS)
def test_refusal(op: str, inputs: Arrays, order: str, attributes: dict, reason: str, tmp_path: Path):
    proto = model(op, inputs, {}, order.split(" "), 1, **attributes)
    with pytest.raises(Unsupported, match=reason):
        compiled(proto, tmp_path)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("MatMul", [(2, 3, 0), (2, 0, 3)], {}),
        ("MaxPool", [(0, 2, 3, 3)], {"kernel_shape": [2, 2]}),
        ("AveragePool", [(0, 2, 3, 3)], {"kernel_shape": [2, 2]}),
        ("DepthToSpace", [(0, 4, 3, 3)], {"blocksize": 2}),
    ],
)
def test_kernels_that_fail_on_nothing_are_refused(op: str, shapes: list, attributes: dict, tmp_path: Path):
    inputs = {f"x{place}": normal(*shape) for place, shape in enumerate(shapes)}
    with pytest.raises(Unsupported, match="an operand without elements"):
        compiled(model(op, inputs, {}, list(inputs), 1, **attributes), tmp_path)


def test_a_product_of_doubles_with_weights_is_refused(tmp_path: Path):
    doubles = {"x": normal(2, 3).astype(np.float64)}, {"w": normal(3, 4).astype(np.float64)}
    with pytest.raises(Unsupported, match="float64 operands: TFLite FULLY_CONNECTED takes float32"):
        compiled(model("Gemm", *doubles, ["x", "w"], 1), tmp_path)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6])
def test_boxes_without_an_area_are_chosen_once(tmp_path, scale):
    """LiteRT's own kernel chooses such a box again and again."""
    boxes = np.array([[[0, 0, 1, 1], [1, 1, 1, 2], [1, 1, 1, 2], [0.1, 0, 1, 1], [3, 3, 4, 4], [0, 0, 0, 0]]])
    feed = {"b": (scale * boxes).astype(np.float32), "s": np.array([[[0.5, 0.9, 0.8, 0.6, 0.4, 0.7]]], np.float32)}
    limits = {"most": np.array([6]), "overlap": np.array([0.5], np.float32), "least": np.array([0.1], np.float32)}
    proto = model("NonMaxSuppression", feed, limits, ["b", "s", *limits], 1)
    agrees(proto, [feed], tmp_path)
