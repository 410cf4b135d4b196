"""What OpenVINO computes differently from ONNX, in forms that it computes the same: each form on inputs that tell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph

from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import Unsupported
from convertkit.targets.openvino import stage as openvino_stage
from convertkit.targets.openvino.runner import OpenVinoRunner
from convertkit.targets.openvino.stage import WriteIr

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((1, 2, 6, 5)).astype(np.float32)
BYTES, SIGNED = np.arange(256, dtype=np.uint8), np.arange(-128, 128, dtype=np.int8)
TIES = RNG.integers(0, 4, (3, 40)).astype(np.float32)
STEPS = RNG.standard_normal((2, 3, 4)).astype(np.float32)
NORMS = np.array([[0, 0, 0], [3, 4, 0], [1e-10, 2e-10, 0]], np.float32)
HEADS = RNG.standard_normal((1, 2, 6, 4)).astype(np.float32)
HIDDEN = 5

Arrays = Mapping[str, np.ndarray]
Case = tuple[str, Arrays, Arrays]


def resized(wanted: str, attributes: str, **constants: object) -> Case:
    """``x`` by sizes or scales: which of the inputs behind x ``wanted`` names."""
    text = f"g (float[1,2,6,5] x) => (float[N,C,H,W] y) {{ y = Resize <{attributes}> (x, {wanted}) }}"
    return text, {"x": IMAGE}, {name: np.asarray(value) for name, value in constants.items()}


def recurrent(operator: str, gates: int, states: int) -> Case:
    weights = {
        "w": RNG.standard_normal((1, gates * HIDDEN, 4)).astype(np.float32),
        "r": RNG.standard_normal((1, gates * HIDDEN, HIDDEN)).astype(np.float32),
        "h": RNG.standard_normal((2, 1, HIDDEN)).astype(np.float32),
        "c": RNG.standard_normal((2, 1, HIDDEN)).astype(np.float32),
    }
    given, made = ("h", "h, c")[states - 1], ("y, yh", "y, yh, yc")[states - 1]
    outputs = ", ".join(f"float[{'B,S,D,H' if name == 'y' else 'B,D,H'}] {name}" for name in made.split(", "))
    node = f"{made} = {operator} <hidden_size = {HIDDEN}, layout = 1> (x, w, r, , , {given})"
    return f"g (float[2,3,4] x) => ({outputs}) {{ {node} }}", {"x": STEPS}, weights


def bytewise(operator: str, kind: str, values: np.ndarray) -> Case:
    text = f"g ({kind}[256] a, {kind}[256] b) => ({kind}[256] y) {{ y = {operator} (a, b) }}"
    return text, {"a": values, "b": RNG.permutation(values)}, {}


def scanned(operator: str, *, halves: bool = False) -> Case:
    """A row and a product of the state, in turns, with a matrix that is stored in ``halves``."""
    body = f"m = MatMul (h, w) u = {operator} (r, m) g = Sigmoid (u) t = Sigmoid (s) n = Mul (g, t) k = Identity (n)"
    step = f"step (float[1,4] h, float[1,4] r, float[1,4] s) => (float[1,4] n, float[1,4] k) {{ {body} }}"
    node = f"e, o = Scan <num_scan_inputs = 2, body = {step}> (z, a, b)"
    real = "w = Cast <to = 1> (v)" if halves else ""
    text = f"g (float[3,1,4] a, float[3,1,4] b) => (float[1,4] e, float[3,1,4] o) {{ {real} {node} }}"
    stored = {"v": np.float16} if halves else {"w": np.float32}
    matrix = {name: RNG.standard_normal((4, 4)).astype(kind) for name, kind in stored.items()}
    feed = {name: RNG.standard_normal((3, 1, 4)).astype(np.float32) for name in "ab"}
    return text, feed, {**matrix, "z": np.ones((1, 4), np.float32)}


LINEAR, CUBIC, HALF = 'mode = "linear"', 'mode = "cubic"', np.float32([1, 1, 0.5, 0.6])
FORMS: Mapping[str, Case] = {
    "equal values in TopK": (
        "g (float[3,40] x) => (float[3,7] v, int64[3,7] i) { v, i = TopK <axis = 1> (x, k) }",
        {"x": TIES},
        {"k": np.array([7])},
    ),
    "sum of uint8": bytewise("Add", "uint8", BYTES),
    "difference of uint8": bytewise("Sub", "uint8", BYTES),
    "product of int8": bytewise("Mul", "int8", SIGNED),
    "difference of int8": bytewise("Sub", "int8", SIGNED),
    "floats between indices": (
        "g (float[6] x) => (float[A,B] y) { y = OneHot <axis = 0> (x, d, v) }",
        {"x": np.float32([0, 1.5, -1, -1.5, 3, 1e20])},
        {"d": np.float32([3]), "v": np.float32([2, 5])},
    ),
    "norms of zeros, L2": ("g (float[3,3] x) => (float[3,3] y) { y = LpNormalization (x) }", {"x": NORMS}, {}),
    "norms of zeros, L1": (
        "g (float[3,3] x) => (float[3,3] y) { y = LpNormalization <p = 1, axis = 1> (x) }", {"x": NORMS}, {}
    ),
    "RNN, batch first": recurrent("RNN", 1, 1),
    "GRU, batch first": recurrent("GRU", 3, 1),
    "LSTM, batch first": recurrent("LSTM", 4, 2),
    "windows that begin outside": (
        "g (float[1,2,6,5] x) => (float[A,B,C,D] y)"
        " { y = MaxPool <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x) }", {"x": IMAGE}, {}
    ),
    "indices of columns": (
        "g (float[1,2,6,5] x) => (float[A,B,C,D] y, int64[A,B,C,D] i)"
        " { y, i = MaxPool <kernel_shape = [2, 2], storage_order = 1> (x) }", {"x": IMAGE}, {}
    ),
    "a wrapped pad": (
        'g (float[1,2,6,5] x) => (float[A,B,C,D] y) { y = Pad <mode = "wrap"> (x, p) }',
        {"x": IMAGE},
        {"p": np.array([0, 0, 2, 7, 0, 1, 3, 0])},
    ),
    "a spectrum of real numbers": (
        "g (float[2,6,1] x) => (float[A,B,C] y) { y = DFT <onesided = 1> (x, , a) }",
        {"x": IMAGE[0, :, :, :1]},
        {"a": np.array(1)},
    ),
    "the ratio is kept, not larger": resized(
        ", , s", 'keep_aspect_ratio_policy = "not_larger", axes = [2, 3]', s=[9, 10]
    ),
    "the ratio is kept, not smaller": resized(
        ", , s", f'keep_aspect_ratio_policy = "not_smaller", axes = [2, 3], {LINEAR}', s=[3, 4]
    ),
    "antialias, linear": resized(", s", f"antialias = 1, {LINEAR}", s=HALF),
    "antialias, cubic": resized(", s", f"antialias = 1, {CUBIC}", s=HALF),
    "antialias, a batch of any size": (
        "g (float[N,2,6,5] x) => (float[N,2,3,4] y)"
        f" {{ b = Shape <end = 2> (x) s = Concat <axis = 0> (b, w) y = Resize <antialias = 1, {LINEAR}> (x, , , s) }}",
        {"x": IMAGE},
        {"w": np.array([3, 4])},
    ),
    "nothing outside": resized(", s", f"exclude_outside = 1, {CUBIC}", s=1 / HALF),
    "half_pixel_symmetric": resized(
        ", s", f'coordinate_transformation_mode = "half_pixel_symmetric", {LINEAR}', s=HALF
    ),
    "a crop": resized(
        "r, , s",
        f'coordinate_transformation_mode = "tf_crop_and_resize", {LINEAR}, extrapolation_value = 9.0',
        r=np.float32([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7]),
        s=[1, 2, 3, 3],
    ),
    **{f"a row beside a product, {operator}": scanned(operator) for operator in ("Add", "Mul", "Max", "Min")},
    "halves around a body": scanned("Add", halves=True),
    "windows of attention": (
        "g (float[1,2,6,4] x) => (float[A,B,C,D] y) { y = Attention <left_window_size = 1, is_causal = 1> (x, x, x) }",
        {"x": HEADS},
        {},
    ),
}  # fmt: skip


def model_of(case: Case) -> onnx.ModelProto:
    text, _, constants = case
    opset = 25 if "Attention" in text else 19 if "Pad <" in text else 22
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    for number, node in enumerate(model.graph.node):
        node.name = f"node_{number}"
    return onnx.shape_inference.infer_shapes(model)


def both(case: Case, folder: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of OpenVINO, and of ONNX's reference evaluator where ONNX Runtime without its optimisations does not run it."""
    model, feed = model_of(case), case[1]
    onnx.save(model, folder / "m.onnx")
    ports = [
        [TensorSpec(each.name, (), "float32") for each in side] for side in (model.graph.input, model.graph.output)
    ]
    source = Artifact(folder / "m.onnx", "onnx", tuple(ports[0]), tuple(ports[1]), "")
    with OpenVinoRunner(WriteIr("float32").run(source, folder)) as runner:
        found = runner.run(feed)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(found.values()), session.run(None, feed)
    except (InvalidGraph, Fail):  # attributes that are newer, layout 1
        return list(found.values()), ReferenceEvaluator(model).run(None, dict(feed))


@pytest.mark.parametrize("name", FORMS)
def test_a_form_computes_what_onnx_says(name, tmp_path):
    found, wanted = both(FORMS[name], tmp_path)
    for got, expected in zip(found, wanted, strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_without_its_form_openvino_computes_something_else(name, tmp_path, monkeypatch):
    """So that a form goes where a release of OpenVINO needs it no more."""
    for step in ("write_exact_forms", "write_scans", "keep_ties_in_order"):
        monkeypatch.setattr(openvino_stage, step, lambda model: None)
    try:
        found, wanted = both(FORMS[name], tmp_path)
    except Unsupported:
        return
    same = all(
        got.shape == expected.shape and np.allclose(got, expected, rtol=1e-5, atol=1e-5)
        for got, expected in zip(found, wanted, strict=True)
    )
    assert not same


def test_what_has_no_exact_form_is_refused_by_name(tmp_path):
    text = f"g (float[1,2,N,5] x) => (float[A,B,C,D] y) {{ y = Resize <antialias = 1, {LINEAR}> (x, , s) }}"
    with pytest.raises(Unsupported, match=r"node_0 \(Resize\).*dynamic"):
        both((text, {"x": IMAGE}, {"s": HALF}), tmp_path)
    text = 'g (float[1,2,6,5] x, int64[8] p) => (float[A,B,C,D] y) { y = Pad <mode = "wrap"> (x, p) }'
    with pytest.raises(Unsupported, match=r"node_0 \(Pad\).*computed"):
        both((text, {"x": IMAGE, "p": np.zeros(8, np.int64)}, {}), tmp_path)
