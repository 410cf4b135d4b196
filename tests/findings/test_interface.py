"""What an app developer needs first: names, shapes, layout, units; and code that runs as it is copied."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import convertkit
from convertkit.findings import snippets_onnx
from convertkit.findings.interface import layout
from convertkit.findings.snippet_parts import Ports
from convertkit.findings.snippets import snippets
from convertkit.formatting import verified_text
from tests.command_line import here
from tests.onnx_models import mlp, model, write


@pytest.mark.parametrize(
    ("perm", "told"),
    [
        ((), ""),
        ((0, 1, 2, 3), ""),
        ((0, 2, 3, 1), "NHWC where the source has NCHW"),
        ((0, 2, 1), "NWC where the source has NCW"),
        ((0, 2, 3, 4, 1), "NDHWC where the source has NCDHW"),
        ((0, 3, 1, 2), "the source's axes in the order 0, 3, 1, 2"),
    ],
)
def test_a_layout_in_words(perm, told) -> None:
    assert layout(perm) == told


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """A convolution on pictures, and the pictures."""
    place = tmp_path_factory.mktemp("images")
    (place / "photos").mkdir()
    for index in range(24):
        pixels = np.random.default_rng(index).integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(place / "photos" / f"{index}.png")
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["image", "w"], ["c"]), helper.make_node("GlobalAveragePool", ["c"], ["y"])]
    shapes = {"image": ["N", 3, 8, 8]}, {"y": ["N", 4, 1, 1]}
    write(place, model(nodes, *shapes, [numpy_helper.from_array(weight, "w")]))
    return place


@pytest.fixture(scope="module")
def integers(images, tmp_path_factory):
    """Full integers from pictures of a folder."""
    return convertkit.export(
        images / "model.onnx",
        "tflite",
        int8=True,
        full_integer=True,
        io_dtype="int8",
        calib=str(images / "photos"),
        normalization="image:127.5/127.5",
        output=tmp_path_factory.mktemp("integers") / "out",
    )


def test_everything_that_changed_on_the_way_is_told(integers) -> None:
    (port,) = integers.report["interface"]["inputs"]
    assert port["name"] == "image"
    assert port["shape"] == ["N", 8, 8, 3]
    assert port["dynamic"] == ["N"]
    assert port["source_shape"] == ["N", 3, 8, 8]
    assert port["layout"] == "NHWC where the source has NCHW"
    assert port["normalization"] == {"input": "image", "mean": [127.5], "std": [127.5]}
    assert port["quantization"]["scale"] > 0
    told = port["sentence"]
    assert told.startswith(
        "int8 N×8×8×3, N dynamic, NHWC where the source has NCHW; (pixel - 127.5) / 127.5; stands for"
    )
    page = (integers.path / "report.html").read_text()
    for words in ("NHWC where the source has NCHW", "(pixel - 127.5) / 127.5", "Interpreter"):
        assert words in page


def test_pixels_that_were_scaled_by_default(images, tmp_path) -> None:
    made = convertkit.export(images / "model.onnx", calib=str(images / "photos"), output=tmp_path / "out")
    assert made.report["interface"]["inputs"][0]["normalization"] == {"input": "image", "mean": [0.0], "std": [255.0]}


def test_the_terminal_tells_it(images, tmp_path) -> None:
    said = here("export", images / "model.onnx", "-t", "tflite", "-o", tmp_path / "out")
    assert "input     image: float32 N×8×8×3, N dynamic, NHWC where the source has NCHW\n" in said.out
    assert "output    y: float32 N×1×1×4, N dynamic, NHWC where the source has NCHW\n" in said.out


def test_the_runtime_that_verified_is_named(tmp_path) -> None:
    source = write(tmp_path, mlp())
    ours = convertkit.export(source, "tflite", output=tmp_path / "tflite").report
    assert re.fullmatch(
        r"model.tflite in LiteRT [\d.]+, XNNPACK, the source in ONNX Runtime [\d.]+", verified_text(ours)
    )
    other = convertkit.export(source, "tensorrt", output=tmp_path / "tensorrt").report
    assert not other["runs_here"]
    assert (ours["execution"], other["execution"]) == ("here", "elsewhere")
    told = verified_text(other)
    assert re.search(r"model.onnx in ONNX Runtime [\d.]+, .*; not by tensorrt, which does not run here$", told)
    assert [step["artifact"]["runtime"].split()[0] for step in other["steps"]] == ["ONNX", "ONNX"]
    assert "not by tensorrt, which does not run here" in (tmp_path / "tensorrt" / "report.html").read_text()


def code(result, language: str) -> str:
    return snippets(result.report["steps"][-1]["artifact"], result.report["interface"])[language]


def run_python(result) -> dict[str, np.ndarray]:
    """Run the snippet as a user would, beside the model; its outputs by their names."""
    outputs = [port["name"] for port in result.report["interface"]["outputs"]]
    text = code(result, "Python")
    found = re.findall(r"^(\w+) = (?:interpreter\.get_tensor\(outputs\[|outputs\[)", text, re.MULTILINE)
    saved = ", ".join(f"v{place}={name}" for place, name in enumerate(found))
    script = f"{text}\nnp.savez('found.npz', {saved})\n"
    subprocess.run([sys.executable, "-c", script], cwd=result.path, check=True, capture_output=True)
    with np.load(result.path / "found.npz") as stored:
        return {name: stored[f"v{place}"] for place, name in enumerate(outputs)}


def zeros(result) -> dict[str, np.ndarray]:
    """The same input in the source's layout: zeros, start values for state."""
    feed = {}
    for spec, port in zip(result.artifact.inputs, result.report["interface"]["inputs"], strict=True):
        shape = [port["example"][port["perm"].index(axis)] for axis in range(len(port["perm"]))] or port["example"]
        feed[spec.name] = np.zeros(shape, "float32" if spec.quantization else spec.dtype)
    return feed


def check_snippet(result) -> None:
    expected = result.run(zeros(result))
    for name, value in run_python(result).items():
        perm = next(spec.perm for spec in result.artifact.outputs if spec.name == name)
        in_source_layout = value.transpose(np.argsort(perm)) if perm else value
        np.testing.assert_allclose(in_source_layout, expected[name], atol=1e-6)


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_the_python_code_runs(images, tmp_path, target) -> None:
    check_snippet(convertkit.export(images / "model.onnx", target, output=tmp_path / "out"))


def test_the_python_code_of_integers_runs(integers) -> None:
    check_snippet(integers)


def odd_names() -> onnx.ModelProto:
    """Names that are not identifiers, some of them hostile; whole numbers beside reals; two outputs."""
    ids = helper.make_tensor_value_info('ids"; exit(1) #', TensorProto.INT64, ["N", 4])
    x = helper.make_tensor_value_info("serving_default:0/é$x\\", TensorProto.FLOAT, ["N", 4])
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in ("class", "out:1")]
    nodes = [
        helper.make_node("Cast", [ids.name], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["real", x.name], ["class"]),
        helper.make_node("Exp", ["class"], ["out:1"]),
    ]
    graph = helper.make_graph(nodes, "odd", [ids, x], outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_odd_names_stay_data(tmp_path, target) -> None:
    made = convertkit.export(write(tmp_path, odd_names()), target, output=tmp_path / "out")
    check_snippet(made)
    assert r"é\$x" in code(made, "Kotlin") or target == "tflite", "a dollar would begin a template"


_ORDER = "order(ByteOrder.nativeOrder())"
KOTLIN_GIVEN = {
    "bool": f"ByteBuffer.allocateDirect(1 * 6).{_ORDER}, longArrayOf(2, 3), OnnxJavaType.BOOL",
    "uint8": f"ByteBuffer.allocateDirect(1 * 6).{_ORDER}, longArrayOf(2, 3), OnnxJavaType.UINT8",
    "float16": f"ByteBuffer.allocateDirect(2 * 6).{_ORDER}, longArrayOf(2, 3), OnnxJavaType.FLOAT16",
    "int16": "ShortBuffer.wrap(ShortArray(6)), longArrayOf(2, 3)",
    "float32": "FloatBuffer.wrap(FloatArray(6)), longArrayOf(2, 3)",
    "string": 'Array(6) { "" }, longArrayOf(2, 3)',
}


@pytest.mark.parametrize("dtype", KOTLIN_GIVEN)
def test_other_dtypes_are_given_as_the_runtime_takes_them(dtype) -> None:
    """Java has typed buffers for some; the Swift package has no tensors of bool, float16, float64 and int16."""
    port = {
        "name": "x",
        "sentence": "",
        "dtype": dtype,
        "example": [2, 3],
        "shape": [2, 3],
        "dynamic": [],
        "is_state": False,
    }
    ports = Ports.of("model.onnx", {"inputs": [port | {"quantization": None}], "outputs": []})
    assert f"environment, {KOTLIN_GIVEN[dtype]})" in snippets_onnx.kotlin(ports)
    told = snippets_onnx.swift(ports)
    assert ("makes no such tensors: use its C API" in told) == (dtype not in ("uint8", "float32"))
    assert ("elementType: .uInt8" in told) == (dtype == "uint8")


def stateful() -> onnx.ModelProto:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("x", "state.h")]
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("y", "next_state.h")]
    nodes = [helper.make_node("Add", ["x", "state.h"], ["y"]), helper.make_node("Mul", ["y", "x"], ["next_state.h"])]
    graph = helper.make_graph(nodes, "state", info, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_state_begins_where_the_file_says(tmp_path) -> None:
    source = write(tmp_path, stateful())
    np.savez(tmp_path / "initial_state.npz", **{"state.h": np.float32([[1, 2, 3]])})
    made = convertkit.export(source, "tflite", output=tmp_path / "out")
    assert [port["is_state"] for port in made.report["interface"]["inputs"]] == [False, True]
    np.testing.assert_allclose(run_python(made)["y"], [[1, 2, 3]])


LITERT = """#pragma once
#include <cstddef>
#include <cstdint>
struct TfLiteModel; struct TfLiteInterpreterOptions; struct TfLiteInterpreter; struct TfLiteTensor;
enum TfLiteStatus { kTfLiteOk };
TfLiteModel* TfLiteModelCreateFromFile(const char*);
TfLiteInterpreterOptions* TfLiteInterpreterOptionsCreate();
TfLiteInterpreter* TfLiteInterpreterCreate(const TfLiteModel*, const TfLiteInterpreterOptions*);
TfLiteStatus TfLiteInterpreterResizeInputTensor(TfLiteInterpreter*, int32_t, const int*, int32_t);
TfLiteStatus TfLiteInterpreterAllocateTensors(TfLiteInterpreter*);
TfLiteTensor* TfLiteInterpreterGetInputTensor(const TfLiteInterpreter*, int32_t);
TfLiteStatus TfLiteTensorCopyFromBuffer(TfLiteTensor*, const void*, size_t);
TfLiteStatus TfLiteInterpreterInvoke(TfLiteInterpreter*);
const TfLiteTensor* TfLiteInterpreterGetOutputTensor(const TfLiteInterpreter*, int32_t);
size_t TfLiteTensorByteSize(const TfLiteTensor*);
TfLiteStatus TfLiteTensorCopyToBuffer(const TfLiteTensor*, void*, size_t);
void TfLiteInterpreterDelete(TfLiteInterpreter*);
void TfLiteInterpreterOptionsDelete(TfLiteInterpreterOptions*);
void TfLiteModelDelete(TfLiteModel*);
"""
ORT = """#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>
enum OrtAllocatorType { OrtArenaAllocator };
enum OrtMemType { OrtMemTypeDefault };
struct OrtMemoryInfo;
namespace Ort {
struct Env {};
struct SessionOptions {};
struct RunOptions {};
struct MemoryInfo { static MemoryInfo CreateCpu(OrtAllocatorType, OrtMemType); operator const OrtMemoryInfo*() const; };
struct Value {
  template <typename T>
  static Value CreateTensor(const OrtMemoryInfo*, T*, size_t, const int64_t*, size_t);
  template <typename T>
  const T* GetTensorData() const;
};
struct Session {
  Session(const Env&, const char*, const SessionOptions&);
  std::vector<Value> Run(const RunOptions&, const char* const*, const Value*, size_t, const char* const*, size_t);
};
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("made", ["images", "odd"])
@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_the_cpp_code_is_well_formed(images, tmp_path, target, made) -> None:
    """Against the declarations that it uses: the runtimes' packages for Python bring no headers."""
    source = images / "model.onnx" if made == "images" else write(tmp_path, odd_names())
    result = convertkit.export(source, target, output=tmp_path / "out")
    (tmp_path / "tensorflow/lite/c").mkdir(parents=True)
    (tmp_path / "tensorflow/lite/c/c_api.h").write_text(LITERT)
    (tmp_path / "onnxruntime_cxx_api.h").write_text(ORT)
    (tmp_path / "main.cpp").write_text(code(result, "C++"))
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", str(tmp_path), "main.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("language", ["Kotlin", "Swift", "C++"])
@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_other_languages_name_what_the_file_has(images, tmp_path, target, language) -> None:
    result = convertkit.export(images / "model.onnx", target, output=tmp_path / "out")
    text = code(result, language)
    shape = "1, 8, 8, 3" if target == "tflite" else "1, 3, 8, 8"
    assert shape in text
    assert result.artifact.path.name in text
    assert "image: float32" in text
    assert "192" in text, "elements of the input"
    if target == "tflite":
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(result.artifact.path))
        for details, specs in (
            (interpreter.get_input_details(), result.artifact.inputs),
            (interpreter.get_output_details(), result.artifact.outputs),
        ):
            assert [each["name"] for each in details] == [spec.name for spec in specs], "places count in this order"


def test_what_no_one_knows_has_no_code(tmp_path) -> None:
    made = convertkit.export(write(tmp_path, mlp()), output=tmp_path / "out")
    artifact = {**made.report["steps"][-1]["artifact"], "format": "acme"}
    assert snippets(artifact, made.report["interface"]) == {}


def test_tensorrt_gets_its_own_tool(tmp_path) -> None:
    made = convertkit.export(write(tmp_path, mlp()), "tensorrt", output=tmp_path / "out")
    text = code(made, "Shell")
    assert "--onnx=model.onnx" in text
    assert "--minShapes=x:" in text
