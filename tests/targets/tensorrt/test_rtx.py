"""Engines of TensorRT-RTX: built without a GPU, the same but for names inside, or refused with the builder's words."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import convertkit
from convertkit.errors import MissingFramework, Unsupported, UsageError
from convertkit.targets.tensorrt import rtx
from tests import onnx_models

pytest.importorskip("tensorrt_rtx")


def exported(tmp_path: Path, proto: object, name: str = "out", **chosen: object) -> Path:
    source = onnx_models.write(tmp_path, proto, "source.onnx")
    convertkit.export(source, "tensorrt", output=tmp_path / name, target_options={"tensorrt": chosen})
    return tmp_path / name


def parsed(body: str, inputs: str, outputs: str, **stored: object) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in stored.items())
    return model


def test_an_engine_is_built_and_the_package_says_that_nothing_executed_it(tmp_path: Path) -> None:
    package = exported(tmp_path, onnx_models.mlp(), profile=["N=1,8,32"], rtx_sm="120,89")
    engine = (package / rtx.FILE).read_bytes()
    told = json.loads((package / "constraints.json").read_text())["rtx_engine"]
    assert told["sha256"] == hashlib.sha256(engine).hexdigest()
    assert (told["bytes"], told["executed"], told["compute_capabilities"]) == (len(engine), False, ["8.9", "12.0"])
    report = json.loads((package / "report.json").read_text())
    assert report["steps"][-1]["diagnosis"]["rtx_engine"] == told
    assert "It was not executed." in (package / "README.md").read_text()
    files = json.loads((package / "manifest.json").read_text())["files"]
    assert rtx.FILE in str(files)


def test_two_builds_of_a_small_model_differ_in_inner_names_alone(tmp_path: Path) -> None:
    made = [exported(tmp_path, onnx_models.mlp(), name, profile=["N=1,8,32"], rtx_sm="89") for name in "abc"]
    assert len({content((package / rtx.FILE).read_bytes()) for package in made}) == 1
    other = exported(tmp_path, onnx_models.mlp(seed=2), "d", profile=["N=1,8,32"], rtx_sm="89")
    assert content((other / rtx.FILE).read_bytes()) != content((made[0] / rtx.FILE).read_bytes())


def test_a_gru_between_transposes_is_built_in_halves(tmp_path: Path) -> None:
    """TensorRT-RTX builds none behind Casts to float16 and back with a Transpose between them."""
    draw = np.random.default_rng(3)
    stored = {"w": (1, 24, 5), "r": (1, 24, 8), "b": (1, 48)}
    body = (
        "t = Transpose <perm=[1, 0, 2]> (x) h = GRU <hidden_size=8, linear_before_reset=1> (t, w, r, b)"
        " s = Squeeze (h, first) y = Transpose <perm=[1, 0, 2]> (s)"
    )
    arrays = {name: draw.normal(0, 0.3, shape).astype(np.float32) for name, shape in stored.items()}
    proto = parsed(body, "float[1,6,5] x", "float[1,6,8] y", **arrays, first=np.array([1]))
    source = onnx_models.write(tmp_path, proto, "source.onnx")
    convertkit.export(
        source, "tensorrt", output=tmp_path / "out", fp16=True, target_options={"tensorrt": {"rtx-sm": "89"}}
    )
    assert (tmp_path / "out" / rtx.FILE).exists()


def test_layers_of_one_step_with_states_of_one_input_are_built(tmp_path: Path) -> None:
    """As loops TensorRT-RTX builds no engine of them; a model that is called for every block of a sound has such."""
    draw = np.random.default_rng(4)
    slices = (f"{at}s = Slice (states, b{at}, e{at}, both) {at} = Squeeze ({at}s, last)" for at in "ijkl")
    layers = (
        "t = LSTM <hidden_size=8> (x, w, r, b, , i, j) s = Squeeze (t, one)"
        " y, h, c = LSTM <hidden_size=8> (s, v, r, b, , k, l)"
    )
    shapes = {"w": (1, 32, 5), "v": (1, 32, 8), "r": (1, 32, 8), "b": (1, 64)}
    stored: dict[str, object] = {name: draw.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    for name, place in zip("ijkl", ([0, 0], [0, 1], [1, 0], [1, 1]), strict=True):
        stored |= {f"b{name}": place, f"e{name}": np.array(place) + 1}
    stored |= {"both": [1, 3], "last": [3], "one": [1]}
    ends = ("float[1,1,5] x, float[1,2,8,2] states", "float[1,1,1,8] y")
    model = parsed(" ".join([*slices, layers]), *ends, **stored)
    package = exported(tmp_path, model, rtx_sm="89")
    assert (package / rtx.FILE).exists()
    assert "LSTM" not in {node.op_type for node in onnx.load(package / "model.onnx").graph.node}


def content(engine: bytes) -> bytes:
    """Program, kernels and weights of an engine, inner names numbered in the order in which they come.

    The header before the first of them, which counts bytes, is left out; zeros that fill up are one.
    """
    numbers = dict[bytes, int]()
    start = engine.index(b"__mye")
    named = re.sub(rb"__mye\d+", lambda found: b"#%d" % numbers.setdefault(found[0], len(numbers)), engine[start:])
    return re.sub(rb"\0+", b"\0", named)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("90", "expected compute capabilities of TensorRT-RTX, several with commas between them: 75, 80"),
        ("ampere", "expected compute capabilities"),
        ("", "expected one value as text"),
        ("8.9", "expected compute capabilities"),
        ("89,89", "given twice"),
        ("75,80", "75 \\(Turing\\) takes an engine of its own"),
    ],
)
def test_wrong_names_are_usage_errors(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"--tensorrt-rtx-sm {text}: .*{says}"):
        exported(tmp_path, onnx_models.mlp(), profile=["N=1,8,32"], rtx_sm=text)
    assert not (tmp_path / "out").exists()


def test_the_value_is_text_again() -> None:
    assert str(rtx.architectures("120, 80")) == "80,120"
    assert rtx.architectures(str(rtx.architectures("89"))) == rtx.Architectures((89,))


def test_an_engine_needs_sizes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an engine needs sizes for N\n  try   --tensorrt-profile N=MIN,OPT,MAX"):
        exported(tmp_path, onnx_models.mlp(), rtx_sm="89")


@pytest.mark.parametrize(
    ("sm", "body", "inputs", "outputs", "says"),
    [
        ("75", "y = Gemm (x, w)", "float[2,3] x", "float[2,4] y", "builds no engine: .*FP32 GEMM is not supported"),
        (
            "89",
            "y = NonZero (x)",
            "float[2,3] x",
            "int64[2,K] y",
            r"\(NonZero\): TensorRT-RTX does not parse it: .*plug",
        ),
    ],
)
def test_what_is_refused_names_the_node_and_the_reason(
    tmp_path: Path, sm: str, body: str, inputs: str, outputs: str, says: str
) -> None:
    model = parsed(body, inputs, outputs, w=np.ones((3, 4), np.float32))
    model.graph.node[0].name = "the_node"
    with pytest.raises(Unsupported, match=f"the_node.*{says}") as caught:
        exported(tmp_path, model, rtx_sm=sm)
    assert "\n  try   leave --tensorrt-rtx-sm out" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_without_the_extra_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convertkit.targets.tensorrt.find_spec", lambda name: None)
    with pytest.raises(
        MissingFramework, match=r"tensorrt-rtx is not installed .*pip install 'convertkit-ml\[tensorrt\]'"
    ):
        exported(tmp_path, onnx_models.mlp(), profile=["N=1,8,32"], rtx_sm="89")
    assert exported(tmp_path, onnx_models.mlp(), profile=["N=1,8,32"]).exists(), "needed by the engine alone"


def test_dimensions_with_a_profile_stay_dynamic_where_the_builder_refuses(tmp_path: Path) -> None:
    """Else the refusal would be of the profile, whose dimension was fixed meanwhile."""
    with pytest.raises(Unsupported, match="FP32 GEMM is not supported"):
        exported(tmp_path, onnx_models.mlp(), profile=["N=1,8,32"], rtx_sm="75")
