"""Operators replaced by function bodies: what is left in the graph, the checker, the numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled


def expanded(text: str, kept: set[str]) -> onnx.ModelProto:
    """The model with everything expanded that is not in ``kept``; it passes the checker."""
    model = canonicalize(ir.from_proto(parser.parse_model(text)))
    expand_functions(model, lambda node: node.op_type in kept)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def agree(text: str, proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> None:
    source = ReferenceEvaluator(parser.parse_model(text)).run(None, feed)
    result = ReferenceEvaluator(proto).run(None, feed)
    for want, have in zip(source, result, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


HEAD = '<ir_version: 8, opset_import: ["" : 21]>'


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def test_body_of_onnx_is_used_with_its_defaults():
    text = HEAD + "g (float[2,3] x) => (float[2,3] y) { y = Selu (x) }"
    proto = expanded(text, set())
    assert "Selu" not in operators(proto)
    agree(text, proto, {"x": numbers((2, 3))})


def test_handled_operators_stay():
    text = HEAD + "g (float[2,3] x) => (float[2,3] y) { y = Selu (x) }"
    assert operators(expanded(text, {"Selu"})) == ["Selu"]


def test_absent_outputs_of_a_body():
    text = HEAD + """g (float[3,5] x, int64[3] t) => (float y) { y = SoftmaxCrossEntropyLoss (x, t) }"""
    proto = expanded(text, {"LogSoftmax"})
    assert "SoftmaxCrossEntropyLoss" not in operators(proto)
    agree(text, proto, {"x": numbers((3, 5)), "t": np.array([1, 4, 0])})


def test_instance_normalization():
    text = (
        HEAD
        + """g (float[2,3,4,5] x, float[3] s, float[3] b) => (float[2,3,4,5] y) {
        y = InstanceNormalization <epsilon: float = 0.01> (x, s, b) }"""
    )
    proto = expanded(text, {"Relu"})
    assert operators(proto).count("ReduceMean") == 2
    agree(text, proto, {"x": numbers((2, 3, 4, 5)), "s": numbers((3,), 1), "b": numbers((3,), 2)})


EQUATIONS = [
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5)), ["MatMul"]),
    ("ij->ji", ((3, 4),), ["Transpose"]),
    ("ij->i", ((3, 4),), ["ReduceSum"]),
    ("ii->i", ((3, 3),), ["Mul", "ReduceSum"]),
    ("i,j->ij", ((3,), (4,)), None),
    ("ij,ij->", ((3, 4), (3, 4)), None),
    ("bhid,bhjd->bhij", ((2, 3, 4, 5), (2, 3, 6, 5)), None),
    ("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5)), None),
    ("...ij,jk->...ik", ((2, 3, 4, 5), (5, 6)), None),
    ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 5)), None),
    ("ij,jk", ((2, 3), (3, 4)), None),
    ("abc,cde,a->be", ((2, 3, 4), (4, 5, 6), (2,)), None),
]


@pytest.mark.parametrize(("equation", "shapes", "wanted"), EQUATIONS, ids=[equation for equation, *_ in EQUATIONS])
def test_einsum(equation: str, shapes: tuple[tuple[int, ...], ...], wanted: list[str] | None):
    feed = {f"x{place}": numbers(shape, place) for place, shape in enumerate(shapes)}
    result = np.einsum(equation, *feed.values())
    declared = ", ".join(f"float{list(shape)} x{place}" for place, shape in enumerate(shapes))
    text = f"""{HEAD} g ({declared}) => (float{list(result.shape) or ""} y) {{
        y = Einsum <equation: string = "{equation}"> ({", ".join(feed)}) }}"""
    proto = expanded(text, {"Relu"})
    kinds = [kind for kind in operators(proto) if kind != "Reshape"]
    assert "Einsum" not in kinds
    assert wanted is None or kinds == wanted
    (found,) = ReferenceEvaluator(proto).run(None, feed)
    np.testing.assert_allclose(found, result, rtol=1e-5, atol=1e-5)


FREE = [
    ("nij,nkj->nik", (("N", 3, 4), ("N", 5, 4)), ["MatMul", "Transpose"]),
    (
        "nchw,nkc->nkhw",
        (("N", 3, 2, 4), (1, 5, 3)),
        ["MatMul", "Reshape", "Reshape", "Squeeze", "Transpose", "Transpose", "Transpose"],
    ),
    ("nct,ncs->nts", (("N", 3, "T"), ("N", 3, "T")), ["MatMul", "Transpose"]),
    ("nhid,nhjd->nhij", (("N", 2, "T", 5), ("N", 2, 6, 5)), ["MatMul", "Transpose"]),
    ("...ij,jk->...ik", (("N", 3, 4, 5), (5, 6)), ["MatMul", "Reshape", "Reshape"]),
    ("nchw,cd->ndhw", (("N", 4, 3, 2), (4, 6)), ["MatMul", "Reshape", "Reshape", "Transpose", "Transpose"]),
    ("nd,nd->n", (("N", 4), ("N", 4)), ["MatMul", "Reshape", "Reshape", "Reshape"]),
    ("ntd,de->nte", (("N", "T", 4), (4, 6)), ["MatMul"]),
    ("nat,tb->nab", (("N", 3, "T"), ("T", 4)), ["MatMul"]),
    ("ntd,tne->de", (("N", "T", 4), ("T", "N", 5)), ["MatMul", "Reshape", "Reshape", "Transpose", "Transpose"]),
    ("nabcd,nabce->nabde", (("N", 2, 3, 4, 5), ("N", 2, 3, 4, 6)), ["MatMul", "Transpose"]),
]


@pytest.mark.parametrize(("equation", "shapes", "wanted"), FREE, ids=[equation for equation, *_ in FREE])
def test_einsum_over_free_sizes(equation: str, shapes: tuple, wanted: list[str]):
    declared = ", ".join(f"float[{', '.join(map(str, shape))}] x{place}" for place, shape in enumerate(shapes))
    names = ", ".join(f"x{place}" for place in range(len(shapes)))
    result = [f"D{letter}" for letter in equation.partition("->")[2].replace("...", "NM")]
    text = f"""{HEAD} g ({declared}) => (float[{", ".join(result)}] y) {{
        y = Einsum <equation: string = "{equation}"> ({names}) }}"""
    proto = expanded(text, {"Relu"})
    assert sorted(operators(proto)) == wanted
    for sizes in ({"N": 1, "T": 1}, {"N": 3, "T": 7}):
        given = [tuple(sizes.get(size, size) for size in shape) for shape in shapes]
        feed = {f"x{place}": numbers(shape, place) for place, shape in enumerate(given)}
        (found,) = ReferenceEvaluator(proto).run(None, feed)
        np.testing.assert_allclose(found, np.einsum(equation, *feed.values()), rtol=1e-5, atol=1e-5)


def test_einsum_that_merges_free_sizes_is_refused_by_name():
    text = (
        HEAD
        + """g (float[N,T,3,U] x, float[N,U,5] w) => (float[A,B,C,D] y) {
        [summing] y = Einsum <equation: string = "ntau,nub->ntab"> (x, w) }"""
    )
    with pytest.raises(Unsupported, match=r"summing \(Einsum\): an Einsum that merges several sizes") as refusal:
        expanded(text, set())
    assert refusal.value.ways_out == ("--static T=SIZE --static U=SIZE", "--target onnxruntime")


def test_integer_matrices_are_cut_where_float32_would_round():
    text = HEAD + """g (uint8[2,600] x, uint8[600,3] w) => (int32[2,3] y) { y = MatMulInteger (x, w) }"""
    proto = expanded(text, {"Relu"})
    assert operators(proto).count("MatMul") == 3
    rng = np.random.default_rng(3)
    x, w = rng.integers(200, 256, (2, 600), np.uint8), rng.integers(200, 256, (600, 3), np.uint8)
    (found,) = ReferenceEvaluator(proto).run(None, {"x": x, "w": w})
    assert (found == x.astype(np.int32) @ w.astype(np.int32)).all()


@pytest.mark.parametrize("group", [1, 2])
def test_integer_convolutions_are_cut_along_channels_or_refused(group: int):
    weights = ",".join(["255"] * 1200)
    text = f"""{HEAD} g (uint8[1,{300 * group},2,2] x) => (int32[1,{group},1,1] y)
        <uint8[{group},300,2,2] w = {{{",".join([weights] * group)}}}> {{ y = ConvInteger <group = {group}> (x, w) }}"""
    if group == 2:
        with pytest.raises(Unsupported, match="beyond 2\\^24"):
            compiled(text)
        return
    case = compiled(text, Options(input_layout="nchw"))
    assert case.operators["CONV_2D"] == 5
    x = np.random.default_rng(0).integers(200, 256, (1, 300, 2, 2)).astype(np.uint8)
    case.agree({"x": x}, tolerance=0)


POINTS = {
    "int8": ("int8", 0, -100, 100),
    "uint8 about 128": ("uint8", 128, 1, 256),
    "uint8 off centre": ("uint8", 117, 0, 256),
    "uint8 without": ("uint8", 0, 100, 256),
    "by column": ("uint8", (0, 128, 255), 0, 256),
}


@pytest.mark.parametrize(
    ("op", "name"),
    [("MatMulInteger", name) for name in POINTS]
    + [("ConvInteger", name) for name in POINTS if name != "by column"],  # ONNX Runtime has no such kernel
)
def test_integer_weights_stay_stored_as_integers(op: str, name: str, tmp_path):
    """With a dynamic length; the inner size is the constant's."""
    kind, point, low, high = POINTS[name]
    dense = op == "MatMulInteger"
    shape, free = ((640, 3), "[n,t,640]") if dense else ((3, 40, 4, 4), "[n,40,h,w]")
    point = np.array(point, kind)
    rng = np.random.default_rng(1)
    text = f"""{HEAD} g (uint8{free} x) => (int32{"[n,t,3]" if dense else "[n,3,a,b]"} y) {{ y = {op} (x, w, p, z) }}"""
    proto = onnx.parser.parse_model(text)
    stored = {"w": rng.integers(low, high, shape).astype(kind), "z": point, "p": np.array(100, np.uint8)}
    proto.graph.initializer.extend(numpy_helper.from_array(value, key) for key, value in stored.items())
    case = compiled(proto, Options(input_layout="nchw"))
    sizes = [(2, 3, 640), (1, 5, 640)] if dense else [(2, 40, 5, 6), (1, 40, 4, 7)]
    case.agree(*({"x": rng.integers(0, 256, size).astype(np.uint8)} for size in sizes), tolerance=0)
    case.compiled.write(tmp_path / "m.tflite")
    width = 2 if point.ndim else 1
    assert (tmp_path / "m.tflite").stat().st_size < width * 1920 + 5000


def test_no_clamp_inside_a_concatenation():
    """Grouped volumes are parts side by side; CONCATENATION has a field for an activation and ignores it."""
    weights = ", ".join(f"{(number % 5) - 2}.5" for number in range(16))
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,2,3,4,3] x) => (float[n,2,2,3,2] y)
        <float[2,1,2,2,2] w = {{{weights}}}> {{ c = Conv<group=2>(x, w)  y = Relu(c) }}""")
    assert case.operators["RELU"] == 1
    case.agree({"x": numbers((2, 2, 3, 4, 3))})


@pytest.mark.parametrize("axes", ["", "<axes = [2, 3]>"])
def test_mean_variance_normalization_of_equal_elements_is_zero(axes: str):
    text = HEAD + f"g (float[2,3,4,5] x) => (float[2,3,4,5] y) {{ y = MeanVarianceNormalization {axes} (x) }}"
    proto = expanded(text, set())
    agree(text, proto, {"x": 100 * numbers((2, 3, 4, 5)) + 7})
    (found,) = ReferenceEvaluator(proto).run(None, {"x": np.full((2, 3, 4, 5), 0.5537, np.float32)})
    assert np.array_equal(found, np.zeros_like(found))
