"""``at_opset``: what ONNX's version converter has no rule for, held against ONNX Runtime on the newer model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.opset import at_opset


@dataclass(frozen=True)
class Case:
    """A graph of opset ``opset``, and with ``says`` why opset ``to`` cannot say it.

    Results are ``within`` that of each other: what is written in other operators rounds otherwise.
    """

    name: str
    inputs: str
    outputs: str
    body: str
    opset: int = 18
    stored: dict[str, object] = field(default_factory=dict)
    says: str = ""
    to: int = 17
    within: float = 0.0

    @property
    def model(self) -> onnx.ModelProto:
        text = f"g ({self.inputs}) => ({self.outputs}) {{ {self.body} }}"
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {self.opset}]> {text}')
        model.graph.node[0].name = "it"
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in self.stored.items())
        return onnx.shape_inference.infer_shapes(model)


IMAGE = "float[1,2,6,6] x"
CANNOT = "the model cannot be expressed at opset 17:"
THREE = "float[2,N] a, float[2,M] b, float[2,K] c"
AXES = {"p": np.array([1, 2]), "v": np.float32(3), "k": np.array([-1])}
CASES = [
    Case("split-in-equal-parts", "float[2,6] x", THREE, "a, b, c = Split <axis = 1, num_outputs = 3> (x)"),
    Case("split-with-a-smaller-last-part", "float[2,7] x", THREE, "a, b, c = Split <axis = 1, num_outputs = 3> (x)"),
    Case("split-by-sizes", "float[2,6] x", "float[2,2] a, float[2,4] b", "a, b = Split <axis = 1> (x, s)",
         stored={"s": np.array([2, 4])}),
    Case("pad", IMAGE, "float[N,C,H,W] y", "y = Pad (x, p)", stored={"p": np.array([0, 0, 1, 1, 0, 0, 2, 1])}),
    Case("pad-of-an-axis", IMAGE, "float[N,C,H,W] y", "y = Pad (x, p, v, k)", stored=AXES),
    Case("pad-reflected", IMAGE, "float[N,C,H,W] y", 'y = Pad <mode = "reflect"> (x, p, , k)', stored=AXES),
    Case("grid-sample", f"{IMAGE}, float[1,3,3,2] g", "float[N,C,H,W] y",
         'y = GridSample <mode = "linear"> (x, g)', 20),
    Case("grid-sample-cubic", f"{IMAGE}, float[1,3,3,2] g", "float[N,C,H,W] y",
         'y = GridSample <mode = "cubic", padding_mode = "border"> (x, g)', 20),
    Case("lp-pool", IMAGE, "float[N,C,H,W] y", "y = LpPool <kernel_shape = [2,2], ceil_mode = 0> (x)", 22),
    Case("global-max-pool", IMAGE, "float[N,C,H,W] y", "y = GlobalMaxPool (x)", 22),
    Case("constant-of-shape", IMAGE, "float[N,C,H,W] y", "s = Shape (x) z = ConstantOfShape (s) y = Add (x, z)", 24),
    Case("mean-with-a-default", IMAGE, "float[N,C,H,W] y",
         "y = ReduceMean <keepdims = 1, noop_with_empty_axes = 0> (x, k)", stored={"k": np.array([2, 3])}),
    Case("pad-around", IMAGE, "float[N,C,H,W] y", 'y = Pad <mode = "wrap"> (x, p, , k)', 19, AXES,
         says=f"it (Pad): {CANNOT} mode=wrap"),
    Case("pad-by-an-input", f"{IMAGE}, int64[2] p", "float[N,C,H,W] y", "y = Pad (x, p, , k)", stored={"k": AXES["k"]},
         says=f"it (Pad): {CANNOT} pads of some axes that are not constants"),
    Case("split-of-unknown-size", "float[2,N] x", "float[2,A] a, float[2,B] b",
         "a, b = Split <axis = 1, num_outputs = 2> (x)",
         says=f"it (Split): {CANNOT} num_outputs along an axis whose size is not known"),
    Case("grid-sample-of-volumes", "float[1,2,4,4,4] x, float[1,3,3,3,3] g", "float[N,C,D,H,W] y",
         "y = GridSample (x, g)", 20,
         says=f"it (GridSample): {CANNOT} GridSample of other than images"),
    Case("lp-pool-dilated", IMAGE, "float[N,C,H,W] y", "y = LpPool <kernel_shape = [2,2], dilations = [2,2]> (x)", 22,
         says=f"it (LpPool): {CANNOT} it has no dilations=(2, 2)"),
    Case("no-such-operator", f"{IMAGE}, int64 k", "float[1,2,6,6] y", "y = CumProd (x, k)", 26,
         says=f"{CANNOT} No Previous Version of CumProd exists"),
    Case("no-such-image", "float[1,2,4,4] x, float[1,3,3,2] g", "float[N,C,H,W] y", "y = GridSample (x, g)", 20, to=13,
         says="the model cannot be expressed at opset 13: No Previous Version of GridSample exists"),
    Case("written-out", IMAGE, "float[1,2,6,6] y", "y = Mish (x)", within=1e-6),
    Case("written-out-twice", IMAGE, "float[1,2,6,6] y", "y = RMSNormalization <axis = 2> (x, w)", 23,
         {"w": np.linspace(1, 2, 36, dtype=np.float32).reshape(6, 6)}, within=1e-6),
    Case("attention", "float[1,4,6] q, float[1,4,6] k, float[1,4,6] v", "float[1,4,6] y",
         "y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v)", 23, to=13, within=1e-6),
    *(Case(f"group-norm-at-{to}", "float[3,4,2,2] x", "float[3,4,2,2] y",
           "y = GroupNormalization <num_groups = 2, epsilon = 0.001> (x, w, b)", 21, to=to, within=1e-6,
           stored={"w": np.float32([1, 2, 3, 4]), "b": np.float32([5, 6, 7, 8])}) for to in (20, 17, 13)),
    *(Case(f"some-sizes-{place}-at-{to}", IMAGE, "int64[N] y, int64[M] z",
           f"s = Shape <{axes}> (x) y = Identity (s) z = Add (s, s)", to=to) for to in (13, 17)
      for place, axes in enumerate(("start = 1", "end = -1", "start = -3, end = 3", "start = 0", "end = 9"))),
    *(Case(f"{name}-at-{to}", IMAGE, f"float[{sizes}] y", f"y = {body}", to=to, within=1e-6, stored=stored)
      for to in (12, 11) for name, sizes, body, stored in (
        ("turned", "6,6,2,1", "Transpose <perm = [3, 2, 1, 0]> (x)", {}),
        ("mean", "1,1,6,6", "ReduceMean (x, k)", {"k": np.array([1])}),
        ("softmax", "1,2,6,6", "Softmax (x)", {}),
        ("log-softmax-of-a-batch", "1,2,6,6", "LogSoftmax <axis = -4> (x)", {}),
        ("hardmax-of-rows", "1,2,6,6", "Hardmax <axis = 2> (x)", {}),
        ("softmax-of-channels", "1,2,6,6", "Softmax <axis = 1> (x)", {}),
        ("layer-norm", "1,2,6,6", "LayerNormalization <axis = 3> (x, w)", {"w": np.arange(6, dtype=np.float32)}),
        ("resize", "1,2,12,9", "Resize <mode = \"linear\"> (x, , , s)", {"s": np.array([1, 2, 12, 9])}),
        ("pad", "1,2,8,6", "Pad (x, p, v, k)", {"p": np.array([1, 1]), "v": np.float32(3), "k": np.array([-2])}),
        ("sum", "1,2,6,1", "ReduceSum (x, k)", {"k": np.array([-1])}),
      )),
    Case("pad-around-at-18", IMAGE, "float[N,C,H,W] y", 'y = Pad <mode = "wrap"> (x, p, , k)', 19, AXES, to=18,
         says="it (Pad): the model cannot be expressed at opset 18: it has no mode=wrap"),
    Case("largest-of-scattered", "float[4] x, float[2] u", "float[4] y",
         'y = ScatterElements <reduction = "max"> (x, i, u)', stored={"i": np.array([1, 1])},
         says=f"it (ScatterElements): {CANNOT} it has no reduction=max"),
    Case("resize-symmetric", IMAGE, "float[1,2,12,9] y",
         'y = Resize <coordinate_transformation_mode = "half_pixel_symmetric"> (x, , , s)', 19,
         {"s": np.array([1, 2, 12, 9])},
         says=f"it (Resize): {CANNOT} it has no coordinate_transformation_mode=half_pixel_symmetric"),
    Case("quantized-channels", IMAGE, "int8[1,2,6,6] y", "y = QuantizeLinear <axis = 1> (x, s, z)", to=11,
         stored={"s": np.float32([0.1, 0.2]), "z": np.int8([0, 1])},
         says="the model cannot be expressed at opset 11: No Adapter From Version $13 for QuantizeLinear"),
    Case("sizes-delivered", IMAGE, "int64[N] y", "y = Shape <start = 2> (x)", to=13),
    Case("sum-and-sizes", IMAGE, "float[4,18] y", "s = Add (x, x) y = Reshape <allowzero = 1> (s, n)",
         stored={"n": np.array([4, 18])}, to=13),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_older_opset_computes_the_same_or_is_refused(case: Case) -> None:
    if case.says:
        with pytest.raises(Unsupported) as caught:
            at_opset(ir.from_proto(case.model), case.to, "stay")
        assert str(caught.value) == f"{case.says}\n  try   stay"
        return
    older = ir.to_proto(at_opset(ir.from_proto(case.model), case.to, "stay"))
    assert [(each.domain, each.version) for each in older.opset_import] == [("", case.to)]
    onnx.checker.check_model(older, full_check=True)
    draw = np.random.default_rng(3)
    feed = {
        each.name: draw.standard_normal([dim.dim_value for dim in each.type.tensor_type.shape.dim]).astype(np.float32)
        for each in case.model.graph.input
    }
    for was, now in zip(run(case.model, feed), run(older, feed), strict=True):
        np.testing.assert_allclose(was, now, rtol=case.within, atol=case.within)


def test_a_norm_of_groups_far_from_zero_is_exact() -> None:
    """The body by which ONNX defines it is 1e-2 off: it takes a square from the mean of squares."""
    stored = {"w": np.float32([1, 2, 3, 4]), "b": np.float32([5, 6, 7, 8])}
    body = "y = GroupNormalization <num_groups = 2> (x, w, b)"
    case = Case("far", "float[1,4,3,3] x", "float[1,4,3,3] y", body, 21, stored)
    x = (1000 + np.random.default_rng(5).standard_normal((1, 4, 3, 3))).astype(np.float32)
    rows = x.astype(np.float64).reshape(2, -1)
    normal = ((rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)).reshape(x.shape)
    true = normal * stored["w"][:, None, None] + stored["b"][:, None, None]
    (found,) = run(ir.to_proto(at_opset(ir.from_proto(case.model), 17, "stay")), {"x": x})
    np.testing.assert_allclose(found, true, atol=2e-3)


def test_a_canonical_model_of_an_older_opset_has_no_norm_of_channels() -> None:
    """Opset 18 has a GroupNormalization, too: its scale and bias are those of groups, and the file would be invalid."""
    stored = {"w": np.float32([1, 2, 3, 4]), "b": np.float32([5, 6, 7, 8])}
    body = "y = GroupNormalization <num_groups = 2> (x, w, b)"
    case = Case("group-norm", "float[3,4,2,2] x", "float[3,4,2,2] y", body, 26, stored)
    older = ir.to_proto(canonicalize(ir.from_proto(case.model), 19))
    assert "GroupNormalization" not in {node.op_type for node in older.graph.node}
    feed = {"x": np.random.default_rng(6).standard_normal((3, 4, 2, 2)).astype(np.float32)}
    np.testing.assert_allclose(run(case.model, feed)[0], run(older, feed)[0], rtol=1e-6, atol=1e-6)


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ort.InferenceSession(model.SerializeToString()).run(None, feed)


def test_large_weights_are_not_copied() -> None:
    stored = {"w": np.ones((300, 300), np.float32)}
    case = Case("product", "float[2,300] x", "float[2,300] y", "y = MatMul (x, w)", stored=stored)
    model = ir.from_proto(case.model)
    weight = model.graph.initializers["w"].const_value
    older = at_opset(model, 17, "stay")
    assert older.graph.initializers["w"].const_value is weight
    assert [each.name for each in older.graph.inputs] == ["x"]
