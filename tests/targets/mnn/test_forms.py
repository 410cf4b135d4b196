"""What MNN's converter or kernels get wrong has a form that they get right, or is refused by name."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import Unsupported
from convertkit.targets.mnn.runner import MnnRunner
from convertkit.targets.mnn.stage import WriteMnn
from tests import installed
from tests.targets.mnn.graphs import saved

installed.needs("MNN")

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
X[1, 2, :, 3] = 0
REDUCTIONS = ("add", "mul", "max", "min")
FORMS = {
    "l1": helper.make_node("ReduceL1", ["x", "axes"], ["y"]),
    "l2": helper.make_node("ReduceL2", ["x", "axes"], ["y"], keepdims=0),
    "log-sum": helper.make_node("ReduceLogSum", ["x", "axes"], ["y"]),
    "sum-square": helper.make_node("ReduceSumSquare", ["x", "axes"], ["y"]),
    "log-softmax": helper.make_node("LogSoftmax", ["x"], ["y"]),
    "instance-norm": helper.make_node("InstanceNormalization", ["x", "scale", "scale"], ["y"]),
    "max-of-one": helper.make_node("Max", ["x"], ["y"]),
    "mean-of-two": helper.make_node("Mean", ["x", "one"], ["y"]),
    "power": helper.make_node("Pow", ["x", "three"], ["y"]),
    "norm": helper.make_node("BatchNormalization", ["x", "scale", "scale", "scale", "small"], ["y"]),
    "unit": helper.make_node("LpNormalization", ["x"], ["y"], axis=2, p=1),
    "hardmax": helper.make_node("Hardmax", ["x"], ["y"], axis=1),
    "slopes": helper.make_node("PRelu", ["x", "one"], ["y"]),
    "round": helper.make_node("Round", ["x"], ["y"]),
    "shrink": helper.make_node("Shrink", ["x"], ["y"], lambd=0.5, bias=0.25),
    "wrap": helper.make_node("Pad", ["x", "ends", "", "axes"], ["y"], mode="wrap"),
    "pad-axes": helper.make_node("Pad", ["x", "ends", "", "axes"], ["y"]),
    "cubic": helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="cubic", axes=[-1, 2]),
    "antialias": helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1, axes=[-1, 2]),
    "ceil": helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], nearest_mode="ceil", axes=[-1, 2]),
    "lower": helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 4], auto_pad="SAME_LOWER"),
    "padded-mean": helper.make_node(
        "AveragePool", ["x"], ["y"], kernel_shape=[2, 3], pads=[0, 1, 1, 0], count_include_pad=1
    ),
    "powers": helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], pads=[1, 1, 0, 1], p=3),
    "transform": helper.make_node("DFT", ["pairs", "", "two"], ["y"]),
    "volumes": helper.make_node(
        "MaxPool", ["volume"], ["y"], kernel_shape=[2, 2, 3], strides=[1, 2, 1], pads=[1, 0, 1, 0, 1, 1]
    ),
    "mean-of-volumes": helper.make_node(
        "AveragePool", ["volume"], ["y"], kernel_shape=[2, 2, 3], strides=[2, 1, 1], pads=[1, 0, 1, 0, 1, 1]
    ),
    "rows": helper.make_node("Conv", ["row", "window"], ["y"]),
    **{
        f"slices-{kind}": helper.make_node("ScatterND", ["x", "places", "slices"], ["y"], reduction=kind)
        for kind in REDUCTIONS
    },
    **{
        f"columns-{kind}": helper.make_node(
            "ScatterElements", ["x", "columns", "parts"], ["y"], axis=-1, reduction=kind
        )
        for kind in REDUCTIONS
    },
}
STORED = {
    "axes": np.array([-1, 1], np.int64), "scale": np.array([0.5, 2.0, -1.0], np.float32),
    "one": np.array([[0.5, 2, -1, 0.25, 0]], np.float32), "three": np.array([3], np.int64),
    "small": np.array([1e-3, 0.5, 2e-4], np.float32), "ends": np.array([1, 0, 2, 1], np.int64),
    "sizes": np.array([7, 3], np.int64), "two": np.array(2, np.int64),
    "places": np.array([[[0, 1], [-1, 2]], [[0, 1], [1, 0]]], np.int64),
    "slices": RNG.standard_normal((2, 2, 4, 5)).astype(np.float32), "columns": RNG.integers(-5, 5, (2, 3, 4, 3)),
    "parts": RNG.standard_normal((2, 3, 4, 3)).astype(np.float32),
}  # fmt: skip
VIEWS = {"pairs": (2, 3, 10, 2), "volume": (2, 3, 4, 5, 1), "row": (2, 3, 20), "window": (10, 3, 4)}
"""Other shapes of the input, that a form reads."""


def compared(place, form) -> tuple[np.ndarray, np.ndarray]:
    """What MNN and ONNX Runtime make of X, without what an export does before."""
    node = FORMS[form]
    stored = {name: value for name, value in STORED.items() if name in node.input}
    nodes = [node]
    for name, shape in VIEWS.items():
        if name in node.input:
            stored[f"{name} shape"] = np.array(shape, np.int64)
            nodes.insert(0, helper.make_node("Reshape", ["x", f"{name} shape"], [name]))
    path = saved(place, nodes, X.shape, **stored)
    x = {"log-sum": np.abs(X), "round": np.round(X * 4) / 2}.get(form, X)
    (expected,) = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    ports = [(TensorSpec(name, each.shape, "float32"),) for name, each in (("x", x), ("y", expected))]
    with MnnRunner(WriteMnn("float32").run(Artifact(path, "onnx", *ports, ""), place)) as runner:
        return runner.run({"x": x})["y"], expected


@pytest.mark.parametrize("form", FORMS)
def test_it_computes_what_onnx_says(tmp_path, form):
    found, expected = compared(tmp_path, form)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


REFUSED = {
    "mode cubic, which MNN": helper.make_node("GridSample", ["x", "grid"], ["y"], mode="cubic"),
    "padding_mode reflection": helper.make_node("GridSample", ["x", "grid"], ["y"], padding_mode="reflection"),
    "dilations, which MNN": helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 1]),
    "places of the largest": helper.make_node("MaxPool", ["x"], ["other", "y"], kernel_shape=[2, 2]),
    "60,000,000 comparisons": helper.make_node("ScatterND", ["x", "rows", "ones"], ["y"], reduction="add"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_form_is_refused_by_name(tmp_path, reason):
    node = REFUSED[reason]
    stored = {
        "grid": RNG.uniform(-1, 1, (2, 3, 3, 2)).astype(np.float32), "rows": np.zeros((500_000, 1), np.int64),
        "ones": np.ones((500_000, 3, 4, 5), np.float32),
    }  # fmt: skip
    used = {name: value for name, value in stored.items() if name in node.input}
    made = TensorProto.INT64 if "other" in node.output else TensorProto.FLOAT
    path = saved(tmp_path, [node], X.shape, made=made, **used)
    ports = [(TensorSpec(name, X.shape, "float32"),) for name in ("x", "y")]
    with pytest.raises(Unsupported, match=reason):
        WriteMnn("float32").run(Artifact(path, "onnx", *ports, ""), tmp_path)
