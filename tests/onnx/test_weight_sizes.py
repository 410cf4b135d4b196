"""Files that call every dimension dynamic, of which the weights take one size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import convertkit
from convertkit.converters.onnx.source import OnnxSource
from convertkit.converters.onnx.weight_sizes import sizes_of_weights
from convertkit.recipe import ExportOptions

_HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
_CASES = {
    "Conv": ("float[N,C,H,W] x", {"w": (4, 3, 2, 2)}, "y = Conv<group = 2>(x, w)", {"C": 6}),
    "ConvTranspose": ("float[N,C,L] x", {"w": (3, 4, 2)}, "y = ConvTranspose(x, w)", {"C": 3}),
    "MatMul": ("float[N,T,F] x", {"w": (5, 2)}, "y = MatMul(x, w)", {"F": 5}),
    "MatMul with a vector": ("float[N,T,F] x", {"w": (5,)}, "y = MatMul(x, w)", {"F": 5}),
    "Gemm": ("float[N,F] x", {"w": (2, 5)}, "y = Gemm<transB = 1>(x, w)", {"F": 5}),
    "behind others": (
        "float[N,T,F] x",
        {"w": (5, 2)},
        "r = Relu(x) t = Transpose<perm = [1, 0, 2]>(r) y = MatMul(t, w)",
        {"F": 5},
    ),
    "BatchNormalization": (
        "float[N,C,H] x",
        {"w": (3,)},
        "y = BatchNormalization(x, w, w, w, w)",
        {"C": 3},
    ),
    "GRU": ("float[T,N,F] x", {"w": (1, 6, 3), "r": (1, 6, 2)}, "y, h = GRU<hidden_size = 2>(x, w, r)", {"F": 3}),
    "a node's constant": (
        "float[N,F] x",
        {},
        "w = Constant<value = float[3,1] {1, 2, 3}>() y = MatMul(x, w)",
        {"F": 3},
    ),
    "weights of integers": (
        "float[N,F] x",
        {"s": ()},
        "q = Constant<value = int8[3,1] {1, 2, 3}>() w = DequantizeLinear(q, s) y = MatMul(x, w)",
        {"F": 3},
    ),
    "sizes that are dynamic on both sides": ("float[N,T,F] x, float[N,F,S] z", {}, "y = MatMul(x, z)", {}),
    "broadcast": ("float[N,C] x", {"w": (3,)}, "y = Add(x, w)", {}),
    "two that differ": (
        "float[N,F] x",
        {"w": (5, 2), "v": (4, 2)},
        "a = MatMul(x, w) b = MatMul(x, v) y = Add(a, b)",
        {},
    ),
}


def _model(declared: str, weights: dict[str, tuple[int, ...]], body: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f"{_HEAD} ({declared}) => (float y) {{ {body} }}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    rng = np.random.default_rng(0)
    for name, shape in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.random(shape).astype(np.float32), name))
    return proto


@pytest.mark.parametrize("name", _CASES)
def test_sizes(name: str) -> None:
    declared, weights, body, expected = _CASES[name]
    assert sizes_of_weights(ir.from_proto(_model(declared, weights, body))) == expected


def test_a_file_that_is_read_again_has_them_too(tmp_path: Path) -> None:
    """A second stage of the same source reads the file anew."""
    proto = _model("float[N,C,H,W] x", {"w": (4, 5, 3, 3)}, "c = Conv(x, w) y = Relu(c)")
    onnx.save(onnx.shape_inference.infer_shapes(proto), tmp_path / "net.onnx")
    source = OnnxSource(tmp_path / "net.onnx", ExportOptions(source=str(tmp_path / "net.onnx")))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made = source.stage().run(source.artifact, tmp_path / name)
        assert [spec.shape for spec in made.inputs] == [("N", 5, "H", "W")]


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_a_net_of_five_channels(target: str, tmp_path: Path) -> None:
    proto = _model("float[N,C,H,W] x", {"w": (4, 5, 3, 3)}, "c = Conv(x, w) y = Relu(c)")
    onnx.save(onnx.shape_inference.infer_shapes(proto), tmp_path / "net.onnx")
    result = convertkit.export(tmp_path / "net.onnx", target, output=tmp_path / "made", no_cache=True)
    (given,) = result.interface.inputs
    assert given.source_shape == ("N", 5, "H", "W")
    assert "dimension C of the input is 5: the weights take no other" in result.notes
