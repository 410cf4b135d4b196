"""ONNX Runtime's own operators: canonical and in TFLite, against ONNX Runtime on the operator itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from tests.onnx_models import uncut
from tests.targets.tflite.compiled import Case, numbers

CONTRIB = "com.microsoft"


@dataclass(frozen=True)
class Row:
    """One node; a tuple is the shape of seeded numbers, None an input that is left out."""

    op: str
    inputs: Sequence[object]
    constants: Sequence[object] = ()
    attributes: dict[str, object] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    opset: int = 17

    @property
    def feed(self) -> dict[str, np.ndarray]:
        return {f"x{place}": _array(value, place) for place, value in enumerate(self.inputs) if value is not None}

    @property
    def model(self) -> onnx.ModelProto:
        stored = {f"k{place}": _array(value, place + 5) for place, value in enumerate(self.constants)
                  if value is not None}  # fmt: skip
        names = [f"x{place}" if value is not None else "" for place, value in enumerate(self.inputs)]
        names += [f"k{place}" if value is not None else "" for place, value in enumerate(self.constants)]
        node = helper.make_node(self.op, names, list(self.outputs), name="it", domain=CONTRIB, **self.attributes)
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in self.feed.items()
        ]
        declared = [helper.make_empty_tensor_value_info(name) for name in self.outputs if name]
        initializers = [numpy_helper.from_array(value, name) for name, value in stored.items()]
        graph = helper.make_graph([node], "g", infos, declared, initializers)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _array(value: object, seed: int) -> np.ndarray:
    return numbers(*value, seed=seed) if isinstance(value, tuple) else np.asarray(value)


def whole(*values: int) -> np.ndarray:
    """Lengths, or one of them alone."""
    return np.array(values if len(values) > 1 else values[0], np.int32).reshape(-1)


X = (2, 5, 8)
FOUR_BITS = np.random.default_rng(0).integers(0, 256, (6, 2, 8)).astype(np.uint8)
HEADS = {"num_heads": 2}
PLACES = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
ODD_PLACES = np.array([[2, 1, 0, -1, 0], [1, 3, 1, 1, -7]], np.int32)
WIDE_PLACES = np.array([[0, 1, 1, 1, 1, 1, 1, 0], [1] * 8], np.int32)
WORDS, SEGMENTS = np.array([[1, 2, 0], [3, 1, 1]], np.int32), np.array([[0, 0, 1], [0, 1, 1]], np.int32)
RNG = np.random.default_rng(3)
BYTES, WEIGHT = RNG.integers(0, 256, (2, 5, 8)).astype(np.uint8), RNG.integers(-100, 100, (8, 24)).astype(np.int8)
COLUMNS = {"scale": np.linspace(0.01, 0.02, 24).astype(np.float32), "zero": RNG.integers(-9, 9, 24).astype(np.int8)}
ONE, STEP = np.float32(0.02), np.uint8(120)
TABLE, BLOCKS = (
    RNG.integers(0, 256, (9, 16)).astype(np.uint8),
    np.linspace(0.01, 0.03, 18).astype(np.float32).reshape(9, 2),
)
BLOCK_ZEROS = RNG.integers(0, 256, (9, 1)).astype(np.uint8)
ANGLES, AT = [(9, 2), (9, 2)], RNG.integers(0, 9, (2, 5))
GROUPS = {"num_heads": 4, "kv_num_heads": 2}
PAST, NEW = [(2, 2, 6, 16)] * 2, [(2, 1, 64), (2, 1, 32), (2, 1, 32)]
TURNS = [(12, 8), (12, 8)]
GROUPED = [
    ([(2, 5, 64), (2, 5, 32), (2, 5, 32)], [None, None, whole(4, 4), whole(5)], {}),
    ([(2, 5, 64), (2, 5, 32), (2, 5, 32)], [None, None, whole(4, 4), whole(5), *TURNS], {"do_rotary": 1}),
    ([(2, 5, 128)], [None, None, None, None, whole(4, 4), whole(5), *TURNS], {"do_rotary": 1, "rotary_interleaved": 1}),
    ([*NEW, *PAST], [whole(6, 6), whole(7), *TURNS], {"do_rotary": 1}),
    ([*NEW, *PAST], [whole(3, 6), whole(7), *TURNS], {"do_rotary": 1, "scale": 0.3}),
    ([*NEW, *PAST], [whole(3, 5), whole(6)], {}),
    ([*NEW, *PAST], [whole(6, 6), whole(7)], {"local_window_size": 3, "softcap": 0.7}),
    ([*NEW, *PAST], [whole(6, 6), whole(7)], {"smooth_softmax": 1}),
    ([*NEW, *PAST], [whole(6, 6), whole(7), None, None, None, (2, 4, 1, 7)], {}),
    ([*NEW, *PAST], [whole(6, 6), whole(7), None, None, None, None, (4,)], {}),
    (
        [(1, 3, 64), (1, 3, 32), (1, 3, 32), (1, 2, 4, 16), (1, 2, 4, 16)],
        [whole(6), whole(7), *TURNS],
        {"do_rotary": 1},
    ),
    (
        [(1, 3, 64), (1, 3, 32), (1, 3, 32), (1, 2, 9, 16), (1, 2, 9, 16)],
        [whole(2), whole(3), *TURNS],
        {"do_rotary": 1},
    ),
    ([*NEW, *PAST, whole(3, 6), whole(7), *TURNS], [], {"do_rotary": 1}),
    ([*NEW, *PAST, whole(3, 6)], [whole(7), *TURNS, np.array([[3], [6]])], {"do_rotary": 1}),
]
ROWS = [
    Row("Gelu", [X], opset=11),
    Row("BiasGelu", [X], [(8,)]),
    Row("FastGelu", [X]),
    Row("FastGelu", [X], [(8,)], opset=12),
    Row("QuickGelu", [X]),
    Row("QuickGelu", [X], attributes={"alpha": 1.1}),
    Row("FusedMatMul", [(2, 3, 4), (2, 3, 5)], attributes={"transA": 1, "alpha": 0.3}),
    Row("FusedMatMul", [(2, 3, 4), (5, 4)], attributes={"transB": 1}),
    Row("FusedMatMul", [(3, 2, 4), (2, 4, 5)], attributes={"transBatchA": 1}),
    Row("FusedMatMul", [(2, 3, 4), (5, 2, 4)], attributes={"transBatchB": 1, "transB": 1, "alpha": 0.3}),
    Row("FusedMatMul", [(4, 2, 3, 6), (4, 2, 3, 5)], attributes={"transBatchA": 1, "transA": 1, "transBatchB": 1}),
    Row("TransposeMatMul", [(2, 4, 3), (2, 4, 5)], attributes={"transA": 1}),
    Row("FusedGemm", [(3, 4)], [(5, 4), (5,)], {"transB": 1, "alpha": 0.5, "activation": "Relu"}),
    Row("FusedGemm", [(3, 4)], [(4, 5), (5,)], {"activation": "LeakyRelu", "activation_alpha": 0.2}),
    Row("FusedConv", [(1, 3, 6, 5)], [(4, 3, 3, 3), (4,)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    Row("FusedConv", [(1, 3, 6, 5)], [(4, 3, 3, 3)], {"activation": "Clip", "activation_params": [0.0, 0.5]}),
    Row("FusedConv", [(1, 3, 6, 5)], [(4, 3, 3, 3), None, (1, 4, 4, 3)], {"activation": "Relu"}),
    Row("FusedConv", [(1, 3, 6, 5)], [(4, 3, 3, 3)], {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    Row("NhwcMaxPool", [BYTES.reshape(1, 5, 4, 4)], attributes={"kernel_shape": [2, 3], "strides": [2, 1]}),
    Row("NhwcMaxPool", [BYTES.reshape(1, 5, 4, 4)], attributes={"kernel_shape": [3, 3], "pads": [1, 1, 0, 2]}),
    Row("SkipLayerNormalization", [X, X], [(8,), (8,), (8,)], {"epsilon": 1e-3}),
    Row("SkipLayerNormalization", [X, X], [(8,), (8,)], outputs=("y", "", "", "sum")),
    Row("SkipSimplifiedLayerNormalization", [X, X], [(8,)], {"epsilon": 1e-3}, ("y", "", "", "sum")),
    Row("EmbedLayerNormalization", [WORDS, SEGMENTS], [(4, 8), (6, 8), (2, 8), (8,), (8,), PLACES[:, :3]],
        outputs=("y", "lengths")),
    Row("EmbedLayerNormalization", [WORDS, SEGMENTS],
        [(4, 8), (6, 8), (2, 8), (8,), (8,), np.array([[1, 2, 1], [0, 1, -1]], np.int32)], outputs=("y", "lengths")),
    Row("EmbedLayerNormalization", [WORDS, SEGMENTS], [(4, 8), (6, 8), (2, 8), (8,), (8,)], outputs=("y", "lengths")),
    Row("MatMulNBits", [(3, 32)], [FOUR_BITS, np.linspace(0.01, 0.03, 12).astype(np.float32)],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16}),
    Row("MatMulNBits", [(3, 32)],
        [FOUR_BITS, np.linspace(0.01, 0.03, 12).astype(np.float32), np.arange(6, dtype=np.uint8) * 17],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16}),
    *(Row("CDist", [(5, 4)], [(3, 4)], {"metric": metric}) for metric in ("euclidean", "sqeuclidean")),
    Row("QuantizeLinear", [X], [np.float32(0.03), np.uint8(120)]),
    Row("QuantizeLinear", [X], [np.float32(1e-4), np.int16(0)], opset=21),
    Row("DequantizeLinear", [BYTES], [np.float32(0.03), np.uint8(120)]),
    Row("DequantizeLinear", [BYTES.reshape(8, 10).astype(np.int8)],
        [np.linspace(0.01, 0.03, 10).astype(np.float32), np.zeros(10, np.int8)], {"axis": 1}),
    Row("DequantizeLinear", [BYTES.reshape(8, 10).astype(np.int32)], [np.float32(0.25), np.int32(0)]),
    Row("DequantizeLinear", [BYTES.astype(np.int16)], [np.float32(1e-4), np.int16(0)], opset=21),
    Row("Attention", [X], [(8, 24), (24,)], HEADS),
    Row("Attention", [X], [(8, 24), (24,), PLACES], HEADS),
    Row("Attention", [X], [(8, 24), (24,), np.array([3, 5], np.int32)], HEADS),
    Row("Attention", [X], [(8, 24), (24,), ODD_PLACES], HEADS),
    Row("MultiHeadAttention", [X, X, X], [None, ODD_PLACES], HEADS),
    Row("Attention", [X], [(8, 24), (24,), np.array([4, 5, 1, 0], np.int32)], HEADS),
    Row("Attention", [X], [(8, 24), (24,)], {**HEADS, "unidirectional": 1}),
    Row("Attention", [X], [(8, 24), (24,), PLACES], {**HEADS, "unidirectional": 1}),
    Row("Attention", [X], [(8, 24), (24,), PLACES[:, ::-1]], {**HEADS, "unidirectional": 1}),
    Row("Attention", [X], [(8, 24), (24,)], HEADS, ("y", "present")),
    Row("Attention", [X], [(8, 24), (24,), None, (2, 2, 2, 3, 4)], {**HEADS, "unidirectional": 1}, ("y", "present")),
    Row("Attention", [X], [(8, 24), (24,), WIDE_PLACES, (2, 2, 2, 3, 4)], HEADS, ("y", "present")),
    Row("Attention", [X], [(8, 28), (28,)], {**HEADS, "qkv_hidden_sizes": [8, 8, 12]}),
    Row("Attention", [X], [(8, 24), (24,), None, None, (2, 2, 5, 5)], {**HEADS, "scale": 0.3}),
    Row("MultiHeadAttention", [X, (2, 7, 8), (2, 7, 8)], attributes=HEADS),
    Row("MultiHeadAttention", [X, (2, 7, 8), (2, 7, 8)], [(24,)], HEADS),
    Row("MultiHeadAttention", [X, X, X], [None, PLACES], {**HEADS, "mask_filter_value": -500.0}),
    Row("MultiHeadAttention", [X, X, X], [None, None, (2, 2, 5, 5)], HEADS),
    Row("MultiHeadAttention", [X, X, X], attributes={**HEADS, "unidirectional": 1}),
    Row("MultiHeadAttention", [X, (2, 2, 6, 4), (2, 2, 6, 4)], attributes=HEADS),
    Row("MultiHeadAttention", [X, (2, 6, 8), (2, 6, 12)], attributes=HEADS),
    Row("MultiHeadAttention", [X, X, X, None, None, None, (2, 2, 3, 4), (2, 2, 3, 4)], attributes=HEADS,
        outputs=("y", "keys", "values")),
    Row("MultiHeadAttention", [X, X, X], attributes=HEADS, outputs=("y", "keys", "values")),
    *(Row("GroupQueryAttention", inputs, constants, {**GROUPS, **attributes}, ("y", "keys", "values"))
      for inputs, constants, attributes in GROUPED),
    Row("RotaryEmbedding", [(2, 5, 12), AT], ANGLES),
    Row("RotaryEmbedding", [(2, 5, 12), AT], ANGLES, {"interleaved": 1}),
    Row("RotaryEmbedding", [(2, 3, 5, 4), AT], ANGLES),
    Row("RotaryEmbedding", [(2, 5, 12), np.array([2])], ANGLES),
    Row("RotaryEmbedding", [(2, 5, 18), AT], ANGLES, {"num_heads": 3, "rotary_embedding_dim": 4}),
    Row("DynamicQuantizeMatMul", [X], [WEIGHT, ONE]),
    Row("DynamicQuantizeMatMul", [X], [WEIGHT, COLUMNS["scale"], COLUMNS["zero"], (24,)]),
    Row("MatMulIntegerToFloat", [BYTES], [WEIGHT, ONE, ONE, STEP, np.int8(3), (24,)]),
    Row("MatMulIntegerToFloat", [BYTES], [WEIGHT.view(np.uint8), ONE, COLUMNS["scale"]]),
    Row("QAttention", [BYTES], [WEIGHT, (24,), ONE, ONE, None, STEP, np.int8(0)], HEADS),
    Row("QAttention", [BYTES], [WEIGHT, (24,), ONE, ONE, np.array([3, 5], np.int32), STEP, np.int8(0)], HEADS),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op}-{len(row.inputs) + len(row.constants)}")
def test_computes_what_the_fused_operator_does(row: Row):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    fused = ort.InferenceSession(uncut(row.model), options, providers=["CPUExecutionProvider"])
    wanted = fused.run(None, row.feed)
    canonical = canonicalize(ir.from_proto(row.model))
    assert {node.domain for node in canonical.graph} == {""}
    proto = ir.to_proto(canonical)
    onnx.checker.check_model(proto)
    case = Case(proto, compile_model(ir.from_proto(proto), Options(input_layout="nchw")))
    ((plain, tflite),) = case.both([row.feed])
    assert list(plain) == [name for name in row.outputs if name]
    for want, *results in zip(wanted, plain.values(), tflite.values(), strict=True):
        for have in results:
            assert have.shape == want.shape
            np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 * np.abs(want).max(initial=0))


def found(row: Row) -> np.ndarray:
    """What the canonical form and TFLite make of a node that has no kernel here."""
    proto = ir.to_proto(canonicalize(ir.from_proto(row.model)))
    ((plain, tflite),) = Case(proto, compile_model(ir.from_proto(proto), Options(input_layout="nchw"))).both([row.feed])
    np.testing.assert_allclose(tflite["y"], plain["y"], rtol=0, atol=1e-5 * np.abs(plain["y"]).max())
    return tflite["y"]


@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_convolutions_with_channels_last_are_those_with_channels_first(op: str):
    """ONNX Runtime's CPU has no kernels of these: held against its FusedConv."""
    pads, constants = {"pads": [1, 0, 1, 0]}, [(4, 3, 3, 3), (4,)]
    image, other = numbers(1, 6, 5, 3), numbers(1, 6, 3, 4, seed=9)
    fused = op == "NhwcFusedConv"
    attributes = {**pads, "activation": "Relu"} if fused else pads
    last = Row(op, [image], [*constants, other] if fused else constants, attributes)
    added = [other.transpose(0, 3, 1, 2)] if fused else []
    first = Row("FusedConv", [image.transpose(0, 3, 1, 2)], [*constants, *added], attributes)
    session = ort.InferenceSession(first.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, first.feed)
    np.testing.assert_allclose(found(last), want.transpose(0, 2, 3, 1), rtol=0, atol=1e-5)


def test_biases_of_diffusion_models():
    """No kernels here either: held against their text."""
    x, bias, skip = numbers(2, 5, 8), numbers(8, seed=6), numbers(2, 5, 8, seed=7)
    np.testing.assert_allclose(found(Row("BiasAdd", [x], [bias, skip])), x + bias + skip, rtol=0, atol=1e-6)
    left, right = np.split((x + bias).astype(np.float64), 2, -1)
    curve = np.vectorize(math.erf)(right / math.sqrt(2))
    want = left * right * (1 + curve) / 2
    np.testing.assert_allclose(found(Row("BiasSplitGelu", [x], [bias])), want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("packed", ["keys and values", "all"])
def test_packed_operands_are_what_they_pack(packed: str):
    """ONNX Runtime's CPU kernels take no packed operands: held against the same attention of split ones."""
    parts = [numbers(2, 5, 2, 4, seed=seed) for seed in range(3)]
    flat = [part.reshape(2, 5, 8) for part in parts]
    inputs = [np.stack(parts, 3)] if packed == "all" else [flat[0], np.stack(parts[1:], 3)]
    results = []
    for row in (Row("MultiHeadAttention", flat, attributes=HEADS), Row("MultiHeadAttention", inputs, attributes=HEADS)):
        proto = ir.to_proto(canonicalize(ir.from_proto(row.model)))
        ((_, found),) = Case(proto, compile_model(ir.from_proto(proto), Options())).both([row.feed])
        results.append(found["y"])
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("bits", "zeros"), [(4, False), (4, True), (8, False)])
def test_rows_of_a_quantized_table(bits: int, zeros: bool):
    scales = BLOCKS if bits == 4 else BLOCKS[:, :1]  # 32 columns, or 16
    stored = {"table": TABLE, "scales": scales, **({"zeros": BLOCK_ZEROS} if zeros else {})}
    names, blocks = ["table", "at", *list(stored)[1:]], {"bits": bits, "quantize_axis": 1, "block_size": 16}
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain=CONTRIB, **blocks)
    initializers = [numpy_helper.from_array(value, name) for name, value in stored.items()]
    infos = [helper.make_tensor_value_info("at", TensorProto.INT64, ["n", 5])]
    declared = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", infos, declared, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    canonical = ir.to_proto(canonicalize(ir.from_proto(proto)))
    ((plain, tflite),) = Case(canonical, compile_model(ir.from_proto(canonical), Options())).both([{"at": AT}])
    (want,) = session.run(None, {"at": AT})
    for have in (plain["y"], tflite["y"]):
        np.testing.assert_array_equal(have, want)


TRANSFORMER = """<ir_version: 8, opset_import: ["" : 14, "com.microsoft" : 1]>
g (int32[batch,length] ids, int32[batch,length] mask) => (float[batch,length,8] y) {
    e, lengths = com.microsoft.EmbedLayerNormalization <epsilon = 1e-12> (ids, , words, places, , s1, b1, mask)
    a = com.microsoft.Attention <num_heads = 2> (e, w1, bias, lengths)
    m = com.microsoft.FusedMatMul <alpha = 0.5> (a, w2)
    n = com.microsoft.SkipLayerNormalization (e, m, s1, b1)
    g = com.microsoft.BiasGelu (n, b1)
    k = Add (n, g)
    c = com.microsoft.Attention <num_heads = 2, unidirectional = 1> (k, w1, bias)
    h = com.microsoft.FastGelu (c, b1)
    l = LayerNormalization <axis = -1, epsilon = 1e-05> (h, s1, b1)
    y = SimplifiedLayerNormalization <axis = -1, epsilon = 1e-05> (l, s1)
}"""
MIXED = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[batch,length,8] x, int32[ends] mask) => (float[batch,length,8] y) {
    y = com.microsoft.Attention <num_heads = 2> (x, w1, bias, mask)
}"""
WEIGHTS = {"words": (9, 8), "places": (12, 8), "s1": (8,), "b1": (8,), "w1": (8, 24), "bias": (24,), "w2": (8, 8)}


def agrees_with_onnx_runtime(text: str, feeds: list[dict[str, np.ndarray]]) -> None:
    proto = onnx.parser.parse_model(text)
    initializers = [numpy_helper.from_array(numbers(*shape), name) for name, shape in WEIGHTS.items()]
    proto.graph.initializer.extend(each for each in initializers if each.name in text)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    canonical = ir.to_proto(canonicalize(ir.from_proto(proto)))
    case = Case(canonical, compile_model(ir.from_proto(canonical), Options()))
    for feed, results in zip(feeds, case.both(feeds), strict=True):
        (want,) = session.run(None, feed)
        for result in results:
            np.testing.assert_allclose(result["y"], want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_what_the_transformer_optimizer_writes_for_any_batch_and_length():
    """Nothing tells the size of the mask but that EmbedLayerNormalization made it; no value has a stated shape."""
    feeds = []
    for batch, length in ((2, 5), (1, 1), (3, 12)):
        words = np.arange(batch * length, dtype=np.int32).reshape(batch, length) % 9
        kept = np.arange(length)[None] < np.maximum(length - 2 * np.arange(batch)[:, None], 1)
        feeds.append({"ids": words, "mask": kept.astype(np.int32)})
    agrees_with_onnx_runtime(TRANSFORMER, feeds)


def test_one_vector_may_hold_ends_or_ends_and_starts():
    x = numbers(2, 5, 8)
    agrees_with_onnx_runtime(MIXED, [{"x": x, "mask": whole(3, 5)}, {"x": x, "mask": whole(4, 5, 1, 0)}])


REFUSALS = [
    (Row("MultiHeadAttention", [X, X], attributes=HEADS), "nothing is packed"),
    (Row("MultiHeadAttention", [X, (2, 2, 6, 4), (2, 2, 6, 4)], [(24,)], HEADS), "a bias for keys or values"),
    (Row("RotaryEmbedding", [(2, 5, 12), AT], ANGLES, {"is_packed_batching": 1}), "packed batches"),
    (
        Row("GroupQueryAttention", [*NEW, *PAST], [whole(6, 6), whole(7)], {**GROUPS, "sliding_window_cache": 1}),
        "a cache that evicts",
    ),
    (Row("FusedConv", [(1, 3, 6, 5)], [(4, 3, 3, 3)], {"activation": "Softplus"}), "activation Softplus"),
    (Row("Attention", [X], [(8, 24), (24,)], {**HEADS, "do_rotary": 1}), "rotary positions"),
    (Row("Attention", [X], [(8, 24), (24,), None, None, None, whole(3)], HEADS), "a cache of fixed size"),
    (Row("SkipLayerNormalization", [X, X], [(8,), (8,)], outputs=("y", "mean")), "output 1 is used"),
]


@pytest.mark.parametrize(("row", "reason"), REFUSALS, ids=[row.op for row, _ in REFUSALS])
def test_forms_without_a_rule_are_refused_by_name(row: Row, reason: str):
    with pytest.raises(Unsupported, match=rf"^it \({CONTRIB}.{row.op}\): .*{reason}"):
        canonicalize(ir.from_proto(row.model))
