"""What servers and GPUs cannot have: one sentence, the documented exit code, nothing on the disk."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import onnx
import pytest
from onnx import parser

from tests import onnx_models
from tests.command_line import refused

SIZES = "--tensorrt-profile N=1,2,4"
ENGINE = f"--target tensorrt {SIZES} --tensorrt-rtx-sm"
KNOWN = "expected compute capabilities of TensorRT-RTX, several with commas between them: 75, 80, 86, 89, 120, 121"
ACCEPT = "--triton-openvino-accept-bfloat16"
ORT = "--package triton --target tensorrt --triton-tensorrt-backend onnxruntime"
MODELS = {
    "unique": ("y = Unique <axis: int = 0> (x)", "float[N,4] x", "float[K,4] y"),
    "words": ("y = StringNormalizer (x)", "string[N] x", "string[K] y"),
    "scalar": ("y = ReduceSum <keepdims: int = 0> (x)", "float[N,4] x", "float y"),
    "newer": ("y = HardSwish (x)", "float[N,4] x", "float[N,4] y"),
}
OPSETS = {"newer": 22}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder to export into, beside the models."""
    onnx.save(onnx_models.mlp(), tmp_path / "mlp.onnx")
    for name, (body, given, made) in MODELS.items():
        text = f'<ir_version: 8, opset_import: ["" : {OPSETS.get(name, 18)}]> g ({given}) => ({made}) {{ {body} }}'
        onnx.save(parser.parse_model(text), tmp_path / f"{name}.onnx")
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("model", "line", "code", "says"),
    [
        # names of architectures
        ("mlp", f"{ENGINE} 90", 2, f"--tensorrt-rtx-sm 90: {KNOWN}"),
        ("mlp", f"{ENGINE} sm_89", 2, f"--tensorrt-rtx-sm sm_89: {KNOWN}"),
        ("mlp", f"{ENGINE} 75,80", 2, "75 (Turing) takes an engine of its own"),
        # sizes that contradict each other, or the model
        ("mlp", "--target tensorrt --tensorrt-profile N=8,4,1", 2, "with MIN <= OPT <= MAX"),
        ("mlp", "--target tensorrt --tensorrt-profile N=0,1,4", 2, "expected sizes from 1 to 2147483647"),
        ("mlp", "--target tensorrt --tensorrt-profile N=1,2", 2, "expected NAME=MIN,OPT,MAX, for example N=1,8,32"),
        ("mlp", f"--target tensorrt {SIZES} --tensorrt-profile N=1,4,8", 2, "--tensorrt-profile N is given twice"),
        ("mlp", "--target tensorrt --tensorrt-profile M=1,2,4", 2, "no dynamic dimension of that name; dynamic are N"),
        ("mlp", f"--target tensorrt {SIZES} --static N=2", 2, "no dimension is dynamic, every size is fixed"),
        ("mlp", "--target tensorrt --tensorrt-rtx-sm 89", 2, "an engine needs sizes for N"),
        # operators
        ("unique", "--target tensorrt", 1, "node (Unique): TensorRT's parser has no Unique"),
        ("unique", "--package tf-serving", 1, "node (Unique-11): equal slices along axis 0"),
        ("words", "--target openvino", 1, "node (StringNormalizer): OpenVINO does not read"),
        ("words", "--package tf-serving", 1, "node (StringNormalizer-10): TFLite has no such operator"),
        # servers
        ("mlp", "--package triton --triton-max-batch -1", 2, "expected a whole number from 0 to 65536"),
        ("mlp", "--package triton --triton-instances 0", 2, "--triton-instances 0: expected at least 1"),
        ("mlp", "--package triton --triton-name Bad/Name", 2, "--triton-name Bad/Name: expected at most 63"),
        ("mlp", "--package torchserve --torchserve-name 'a b'", 2, "--torchserve-name a b: expected at most 63"),
        ("newer", "--package torchserve", 1, "opset 22: TorchServe's image has Python 3.9, whose last ONNX Runtime"),
        ("mlp", "--package kserve --kserve-storage-uri nowhere", 2, "expected SCHEME://PLACE"),
        ("mlp", "--package kserve --kserve-min-replicas -2", 2, "expected a whole number from 0 to 65536"),
        ("mlp", "--package triton --target tflite", 2, "--package triton does not take what --target tflite"),
        ("mlp", "--package triton --target openvino", 1, "computes float in bfloat16 on CPUs that have it"),
        ("scalar", f"--package triton --target openvino {ACCEPT}", 1, "y: Triton's openvino backend has no tensors"),
        ("mlp", "--package triton --target tf-serving --int8", 2, "does not deliver int8"),
        ("mlp", "--package triton --target tensorrt --triton-tensorrt-backend tvm", 2, "not one of tensorrt, onnxrun"),
        ("mlp", f"{ORT} --bf16", 2, "--bf16 with Triton's onnxruntime backend: ONNX Runtime computes other numbers"),
        ("mlp", "--target tensorrt --bf16 --int8", 2, "exclude each other"),
        ("mlp", "--target tensorrt --bf16 --full-integer", 2, "--full-integer goes with --int8 or --int16x8"),
        ("mlp", "--target openvino --bf16", 2, "target openvino does not deliver bf16"),
        ("mlp", "--package tf-serving --target tensorrt", 2, "it takes --target tflite"),
        ("mlp", "--package nginx", 2, "unknown target 'nginx'"),
        ("mlp", "--package tf-serving --int8", 2, "target tf-serving does not deliver int8; it has: float32"),
        ("mlp", "--target openvino --int8 --openvino-cpu avx2", 2, "--openvino-cpu avx2: not one of any, vnni"),
        ("mlp", "--target triton --tensorrt-rtx-sm 89", 2, "--tensorrt-rtx-sm does nothing for triton"),
    ],
)
def test_it_is_refused(place: Path, model: str, line: str, code: int, says: str) -> None:
    refused(place, code, [says], place.parent / f"{model}.onnx", *shlex.split(line))


@pytest.mark.parametrize(
    ("line", "module", "target", "says"),
    [
        ("--target openvino", "openvino", "openvino", "openvino is not installed"),
        ("--package tf-serving", "tensorflow", "tf_serving", "tensorflow is not installed"),
        (f"{ENGINE} 89", "tensorrt_rtx", "tensorrt", "tensorrt-rtx is not installed"),
    ],
)
def test_what_is_not_installed_is_named_with_the_command(
    place: Path, monkeypatch: pytest.MonkeyPatch, line: str, module: str, target: str, says: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(f"convertkit.targets.{target}.find_spec", lambda name: None)
    extra = target.replace("_", "-")
    words = [says, f"pip install 'convertkit-ml[{extra}]'"]
    refused(place, 4, words, place.parent / "mlp.onnx", *shlex.split(line))
