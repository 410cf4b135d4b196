"""Integers beyond the 24 and 32 bits of OpenVINO's CPU plugin: right, refused, or told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from convertkit.artifact import Artifact
from convertkit.errors import FeedError, Unsupported
from convertkit.onnx.load import load_model
from convertkit.onnx.specs import interface
from convertkit.targets.openvino import stage as openvino_stage
from convertkit.targets.openvino.runner import OpenVinoRunner
from convertkit.targets.openvino.stage import WriteIr

BIG = 2**24
NUMBERS = {
    "int32": np.array([BIG + 1, BIG, 5, -BIG - 1, 2**31 - 1, -(2**31)], np.int32),
    "int64": np.array([BIG + 1, BIG, 5, -BIG - 1, 2**31 - 1, -(2**31)], np.int64),
}


def model_of(inputs: str, outputs: str, body: str, **stored: object) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in stored.items())
    for number, node in enumerate(model.graph.node):
        node.name = f"node_{number}"
    return onnx.shape_inference.infer_shapes(model)


def delivered(model: onnx.ModelProto, folder: Path) -> tuple[Artifact, tuple[str, ...]]:
    onnx.save(model, folder / "m.onnx")
    inputs, outputs = interface(load_model(folder / "m.onnx"))
    stage = WriteIr("float32")
    made = stage.run(Artifact(folder / "m.onnx", "onnx", inputs, outputs, ""), folder)
    return made, tuple((stage.diagnosis or {}).get("notes", ()))


def computed(model: onnx.ModelProto, feed: dict[str, np.ndarray], folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with OpenVinoRunner(delivered(model, folder)[0]) as runner:
        (found,) = runner.run(feed).values()
    return found, ReferenceEvaluator(model).run(None, feed)[0]


COMPARED = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]
EXACT = {
    **{name: ("bool[6] y", f"y = {name} (x, c)", {"c": BIG + 1}) for name in COMPARED},
    **{f"{name} of the middle": ("bool[6] y", f"y = {name} (x, c)", {"c": BIG}) for name in COMPARED},
    "broadcast": ("bool[2,6] y", "y = Less (x, c)", {"c": [[BIG], [BIG + 1]]}),
    "Clip": ("KIND[6] y", "y = Clip (x, c, d)", {"c": -BIG - 1, "d": BIG + 1}),
    "Clip from above": ("KIND[6] y", "y = Clip (x, , d)", {"d": BIG + 1}),
    "Relu": ("KIND[6] y", "y = Relu (x)", {}),
    "behind a Clip": ("bool[6] y", "l = Clip (x, c, d) y = Equal (l, d)", {"c": -BIG - 1, "d": BIG + 1}),
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", EXACT)
def test_large_integers_are_compared_and_held_as_they_are(name: str, kind: str, tmp_path: Path) -> None:
    outputs, body, stored = EXACT[name]
    constants = {key: np.asarray(value, kind) for key, value in stored.items()}
    model = model_of(f"{kind}[6] x", outputs.replace("KIND", kind), body, **constants)
    found, wanted = computed(model, {"x": NUMBERS[kind]}, tmp_path)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["Equal", "LessOrEqual of the middle", "Clip", "Relu"])
def test_without_the_form_openvino_computes_something_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_stage, "hold_integers", lambda model: ())
    outputs, body, stored = EXACT[name]
    constants = {key: np.asarray(value, np.int32) for key, value in stored.items()}
    model = model_of("int32[6] x", outputs.replace("KIND", "int32"), body, **constants)
    found, wanted = computed(model, {"x": NUMBERS["int32"]}, tmp_path)
    assert (found != wanted).any()


@pytest.mark.parametrize(
    ("inputs", "outputs", "body", "stored", "says"),
    [
        ("int64[3] x", "int64[3] y", "y = Add (x, c)", {"c": np.int64(2**40)}, "the integer 1099511627776: OpenVINO's"),
        ("int64[3] x", "bool[3] y", "y = Equal (x, c)", {"c": np.int64(-(2**31) - 1)}, "the integer -2147483649"),
        (
            "float[9,3] x", "int64[3] y", "a = ArgMax <axis = 0, keepdims = 0> (x) y = Mul (a, c)",
            {"c": np.int64(10**9)}, "node_1 \\(Mul\\): int64 results from 0 to 9000000000: OpenVINO holds those",
        ),
        (
            "bool[3] x", "int32[3] y", "a = Cast <to = 6> (x) b = Mul (a, c) y = Div (b, d)",
            {"c": np.int32(25500000), "d": np.int32(7)},
            "node_2 \\(Div\\): integers from 0 to 25500000: OpenVINO computes it in float32 of 24 bits",
        ),
    ],
)  # fmt: skip
def test_what_never_fits_is_refused(
    inputs: str, outputs: str, body: str, stored: dict[str, object], says: str, tmp_path: Path
) -> None:
    with pytest.raises(Unsupported, match=says) as caught:
        delivered(model_of(inputs, outputs, body, **stored), tmp_path)
    assert "try   --target onnxruntime" in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "outputs", "body", "stored", "notes"),
    [
        ("int64[3] x", "int64[3] y", "y = Add (x, x)", {}, ["node_0 (Add): int64 is computed in OpenVINO's 32 bits"]),
        (
            "int32[3] x", "int32[1] y", "a = Div (x, c) y = ReduceSum (a)", {"c": np.int32(3)},
            ["node_0 (Div) and 1 more: OpenVINO computes these integers in float32, so they are right from -16777216"],
        ),
        (
            "uint8[1,2000] x", "int32[1,1] y", "a = Cast <to = 6> (x) y = MatMul (a, w)",
            {"w": np.full((2000, 1), 127, np.int32)}, ["node_1 (MatMul): OpenVINO computes these integers in float32"],
        ),
        ("uint8[3] x", "int32[3] y", "a = Cast <to = 6> (x) y = Div (a, c)", {"c": np.int32(3)}, []),
        ("int64[3] x", "int64[3] y", "y = Min (x, c)", {"c": np.int64(2**63 - 1)}, []),
        (
            "float[N,M] x", "float[K] y", "s = Shape (x) n = ReduceProd <keepdims = 1> (s) y = Reshape (x, n)", {}, [],
        ),
        ("int64[3] x", "int64[2] y", "y = Slice (x, a, b)", {"a": np.array([1]), "b": np.array([2**63 - 1])}, []),
    ],
)  # fmt: skip
def test_what_the_data_decides_is_told(
    inputs: str, outputs: str, body: str, stored: dict[str, object], notes: list[str], tmp_path: Path
) -> None:
    _, told = delivered(model_of(inputs, outputs, body, **stored), tmp_path)
    assert [note[: len(start)] for note, start in zip(told, notes, strict=True)] == notes


def test_inputs_beyond_32_bits_are_refused_by_the_runner(tmp_path: Path) -> None:
    made, _ = delivered(model_of("int64[2] x", "int64[2] y", "y = Identity (x)"), tmp_path)
    with OpenVinoRunner(made) as runner:
        assert runner.run({"x": np.array([2**31 - 1, -(2**31)])})["y"].tolist() == [2**31 - 1, -(2**31)]
        with pytest.raises(FeedError, match="input x has integers beyond 32 bits, which is what OpenVINO's CPU"):
            runner.run({"x": np.array([2**31, 0])})
