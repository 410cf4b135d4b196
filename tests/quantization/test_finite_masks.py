"""Masks in front of a Softmax become choices by flags, which integers express, for ``--full-integer``."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser

import convertkit
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.masks import marking_units
from convertkit.quantization.prepare.finite_masks import finite_masks
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.inspection import operators
from tests.quantization.conftest import TARGETS

B, HEADS, Q, K = 2, 3, 4, 6
ARRAYS = {
    "one": np.array(1, "f4"), "half": np.array(0.5, "f4"), "zero": np.array(0, "f4"), "zero_i": np.array(0),
    "axes": np.array([1, 2]), "first": np.array([1]), "inf": np.array(-np.inf, "f4"),
    "least": np.array(np.finfo("f4").min, "f4"), "ten": np.array(-10000, "f4"), "hundred": np.array([-100], "f4"),
    "bias": np.random.default_rng(0).normal(size=(1, HEADS, Q, K)).astype("f4"),
    "thousands": np.array(10000, "f4"), "far": np.array(40, "f4"),
    "triangle": np.where(np.tri(Q, K, 2, dtype=bool), 0, -np.inf).astype("f4"),
    "window": np.where(np.tri(Q, K, 2, dtype=bool), 0, -100).astype("f4"),
    "heads": np.array([1, HEADS, 1, 1]), "flat": np.array([B * HEADS, Q, K]), "size": np.array([B, K]),
}  # fmt: skip
MASK = "n = Cast <to = 9> (m) t = Where (n, zero, inf)"
ADDED = "u = Unsqueeze (t, axes) a = Add (s, u)"
LESS = "d = Sub (one, f) t = Mul (d, least)"
FILLED = f"t = Where (n, least, d) {ADDED}"
FORMS = {
    "1 - mask, the least float": f"f = Cast <to = 1> (m) {LESS} {ADDED}",
    "1 - mask, -10000": f"f = Cast <to = 1> (m) d = Sub (one, f) t = Mul (ten, d) {ADDED}",
    "mask - 1, 10000": f"f = Cast <to = 1> (m) d = Sub (f, one) t = Mul (d, thousands) {ADDED}",
    "1 + -mask": f"f = Cast <to = 1> (m) g = Neg (f) d = Add (g, one) t = Mul (d, least) {ADDED}",
    "flags as numbers": f"n = Cast <to = 9> (m) i = Not (n) f = Cast <to = 1> (i) t = Mul (f, ten) {ADDED}",
    "moved whole numbers": f"v = Unsqueeze (m, axes) f = Cast <to = 1> (v) {LESS} a = Add (t, s)",
    "a choice of 0 and -inf": f"{MASK} {ADDED}",
    "a choice of -inf and zeros": f"n = Equal (m, zero_i) z = Expand (zero, size) t = Where (n, inf, z) {ADDED}",
    "filled where it is not 0": f"f = Cast <to = 1> (m) d = Sub (one, f) n = Cast <to = 9> (d) {FILLED}",
    "beside a bias": "n = Cast <to = 9> (m) u = Unsqueeze (n, axes) t = Where (u, bias, least) a = Add (t, s)",
    "a sum of two": f"{MASK} u = Unsqueeze (t, axes) v = Add (u, triangle) a = Add (s, v)",
    "one after another": f"{MASK} v = Add (s, triangle) u = Unsqueeze (t, axes) a = Add (v, u)",
    "two choices": "n = Cast <to = 9> (m) u = Unsqueeze (n, axes) v = Add (s, triangle) a = Where (u, v, inf)",
    "for each head": f"{MASK} u = Unsqueeze (t, axes) e = Expand (u, heads) a = Add (s, e)",
    "in another shape": f"{MASK} u = Unsqueeze (t, axes) c = Add (s, u) a = Reshape (c, flat)",
    "stored, -100": "a = Add (s, window)",
    "read elsewhere, too": f"{MASK} {ADDED} e = Equal (u, inf) o = Cast <to = 1> (e)",
}  # fmt: skip


def model(form: str, end: str = "y = Softmax <axis = -1> (a)") -> onnx.ModelProto:
    outputs = "float y, float o" if " o = " in form else "float y"
    proto = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
    g (float[{B},{HEADS},{Q},{K}] x, int64[{B},{K}] m) => ({outputs}) {{ s = Mul (x, half) {form} {end} }}""")
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in ARRAYS.items() if k in used)
    return onnx.shape_inference.infer_shapes(proto)


def data(count: int, *, masked: bool) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(count)
    found = []
    for _ in range(count):
        mask = np.ones((B, K), np.int64)
        if masked:
            mask[0, rng.integers(1, K) :] = mask[1, 1:3] = 0
        found.append({"x": rng.normal(0, 4, (B, HEADS, Q, K)).astype("f4"), "m": mask})
    return found


def outputs(proto: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    session = ort.InferenceSession(proto.SerializeToString())
    taken = {each.name for each in session.get_inputs()}
    return [session.run(None, {name: value for name, value in feed.items() if name in taken}) for feed in feeds]


def profile_of(target: str) -> QuantProfile:
    return TARGETS[target].profile(ExportOptions(source="x", precision="int8", full_integer=True))


def finite(proto: onnx.ModelProto, target: str = "tflite") -> ir.Model:
    """The model after the rewriting for ``target``, which saw samples that mask nothing."""
    found = ir.from_proto(proto)
    taken = {each.name for each in proto.graph.input}
    feeds = [{name: value for name, value in feed.items() if name in taken} for feed in data(64, masked=False)]
    finite_masks(found, profile_of(target), feeds, {})
    return found


@pytest.mark.parametrize("target", ["tflite", "qnn"])
@pytest.mark.parametrize("form", FORMS)
def test_masks_hold_without_infinities(form: str, target: str) -> None:
    proto = model(FORMS[form])
    after = finite(proto, target)
    units = find_units(after.graph, profile_of("tflite"))
    assert not marking_units(units)
    assert not [node.name for node in after.graph if node.op_type == "Cast" and node.attributes["to"].as_int() == 1][1:]
    feeds = data(8, masked=True)
    for old, new in zip(outputs(proto, feeds), outputs(ir.to_proto(after), feeds), strict=True):
        assert (old[0] == 0).any()
        np.testing.assert_allclose(new[0], old[0], atol=1e-4)
        for one, other in zip(old[1:], new[1:], strict=True):
            np.testing.assert_array_equal(other, one)


GUARDED = "p = Softmax <axis = -1> (a) q = IsNaN (p) y = Where (q, zero, p)"


@pytest.mark.parametrize("number", ["inf", "least", "ten"])
def test_rows_in_which_nothing_counts(number: str) -> None:
    """Zeros under -inf, equal shares under the least float, and under -10000 as if all counted."""
    proto = model(f"n = Cast <to = 9> (m) t = Where (n, zero, {number}) {ADDED}", GUARDED)
    after = finite(proto)
    assert "IsNaN" not in {node.op_type for node in after.graph}
    feeds = data(4, masked=True)
    for feed in feeds:
        feed["m"][0] = 0
    for (old,), (new,) in zip(outputs(proto, feeds), outputs(ir.to_proto(after), feeds), strict=True):
        np.testing.assert_allclose(new, old, atol=1e-3)


@pytest.mark.parametrize(("target", "choice"), [("tflite", "Min"), ("qnn", "Where")])
def test_a_stored_mask_is_made_before_the_model_runs(target: str, choice: str) -> None:
    """As limits, which Vela takes, where the kernel has one scale."""
    proto = model("a = Add (s, window)")
    assert [node.op_type for node in finite(proto, target).graph] == ["Mul", choice, "Softmax"]


LEFT = {
    "scores as far apart as the mask is deep": "h = Mul (s, far) a = Add (h, window)",
    "-100 in place of scores": "n = Cast <to = 9> (m) u = Unsqueeze (n, axes) a = Where (u, s, hundred)",
    "infinities beside -100": f"{MASK} u = Unsqueeze (t, axes) v = Add (u, window) a = Add (s, v)",
    "no mask": "a = Add (s, bias)",
    "a mask of floats": "a = Mul (s, ten)",
    "what counts less": f"f = Cast <to = 1> (m) d = Sub (f, one) t = Mul (d, ten) {ADDED}",
    "a positive number": f"f = Cast <to = 1> (m) t = Mul (f, far) {ADDED}",
    "numbers that no mask is": f"f = Cast <to = 1> (m) d = Sub (half, f) t = Mul (d, least) {ADDED}",
}  # fmt: skip


@pytest.mark.parametrize("why", LEFT)
def test_what_is_no_mask_stays(why: str) -> None:
    proto = model(LEFT[why])
    assert [node.op_type for node in finite(proto).graph] == [node.op_type for node in proto.graph.node]


def test_a_layer_with_padding_is_all_integers(tmp_path) -> None:
    """Tokens and their mask in, as every encoder of text has them; what is masked out has no influence."""
    rng = np.random.default_rng(0)
    width, words = 32, 50
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
    g (int64[1,{K}] ids, int64[1,{K}] mask) => (float[1,{K},{width}] y) {{
        f = Cast <to = 1> (mask) last = Unsqueeze (f, two) e = Gather (table, ids) x = Mul (e, last)
        q = MatMul (x, wq) k = MatMul (x, wk) t = Transpose <perm = [0,2,1]> (k) s = MatMul (q, t)
        d = Sub (one, f) n = Mul (d, least) u = Unsqueeze (n, first) a = Add (s, u)
        p = Softmax <axis = -1> (a) y = MatMul (p, x) }}"""
    proto = parser.parse_model(text)
    arrays = {name: rng.normal(0, 0.2, (width, width)).astype("f4") for name in ("wq", "wk")}
    arrays |= {"table": rng.normal(size=(words, width)).astype("f4"), "two": np.array([2])}
    arrays |= {name: ARRAYS[name] for name in ("one", "least", "first")}
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in arrays.items())
    onnx.save(proto, tmp_path / "m.onnx")
    ids, mask = rng.integers(0, words, (64, K)), np.ones((64, K), np.int64)
    mask[::2, 4:] = 0
    choices = {"int8": True, "full_integer": True, "calib": {"ids": ids, "mask": mask}, "output": tmp_path / "out"}
    result = convertkit.export(tmp_path / "m.onnx", "tflite", **choices)
    assert result.report["quality"]["snr_db"] > 25
    found = operators(result.artifact.path)
    assert {each.precision for each in found if "QUANTIZE" not in each.kind} - {""} == {"int8"}
