"""Running an ``.onnx`` file: ONNX Runtime from Python, Kotlin, Swift and C++, and building TensorRT's engine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from convertkit.artifact import Dim
from convertkit.findings.snippet_parts import PortCode, Ports, kotlin_quoted

Profile: TypeAlias = Mapping[str, Sequence[int]]
"""By name of a dynamic dimension: its smallest, usual and largest size."""

_BUFFERS = {
    "float32": ("FloatBuffer", "FloatArray"),
    "int64": ("LongBuffer", "LongArray"),
    "int32": ("IntBuffer", "IntArray"),
    "float64": ("DoubleBuffer", "DoubleArray"),
    "int16": ("ShortBuffer", "ShortArray"),
}
_BYTES = {"bool": ("BOOL", 1), "int8": ("INT8", 1), "uint8": ("UINT8", 1), "float16": ("FLOAT16", 2)}
"""What Java has no buffer for: ``OnnxJavaType`` and bytes of an element, in java/src/main/java/ai/onnxruntime."""
_SWIFT = {"float32": ("Float", "float"), "int64": ("Int64", "int64"), "int32": ("Int32", "int32"),
          "int8": ("Int8", "int8"), "uint8": ("UInt8", "uInt8"), "uint32": ("UInt32", "uInt32"),
          "uint64": ("UInt64", "uInt64")}  # fmt: skip
"""All element types of numbers that ``ORTTensorElementDataType`` has, in objectivec/include/ort_enums.h."""
_CPP = {"float32": "float", "int64": "int64_t", "int32": "int32_t", "int8": "int8_t", "uint8": "uint8_t",
        "float64": "double", "int16": "int16_t", "bool": "bool"}  # fmt: skip


def python(ports: Ports) -> str:
    """With onnxruntime and NumPy."""
    lines = ["import numpy as np", "import onnxruntime as ort", ""]
    lines += [f'session = ort.InferenceSession({ports.file}, providers=["CPUExecutionProvider"])']
    if ports.states:
        lines += ['start = np.load("initial_state.npz")  # lies beside the model']
    for port in ports.inputs:
        shape = f"({port.dims},)" if len(port.shape) == 1 else f"({port.dims})"
        made = f"np.zeros({shape}, {_numpy(port)})"
        if port.is_state:
            made = f"np.ascontiguousarray(np.broadcast_to(start[{port.quoted}], {shape}))"
        lines += [f"# {port.comment}", f"{port.variable} = {made}"]
    given = ", ".join(f"{port.quoted}: {port.variable}" for port in ports.inputs)
    taken = ", ".join(port.quoted for port in ports.outputs)
    lines += [f"outputs = dict(zip([{taken}], session.run([{taken}], {{{given}}})))"]
    for port in ports.outputs:
        lines += [f"# {port.comment}", f"{port.variable} = outputs[{port.quoted}]"]
    return "\n".join(lines) + "\n"


def _numpy(port: PortCode) -> str:
    return {"bool": "bool", "string": "object"}.get(port.dtype, f"np.{port.dtype}")


def kotlin(ports: Ports) -> str:
    """With com.microsoft.onnxruntime:onnxruntime-android."""
    lines = ["import ai.onnxruntime.OnnxJavaType", "import ai.onnxruntime.OnnxTensor"]
    lines += ["import ai.onnxruntime.OrtEnvironment", "import java.nio.*", ""]
    lines += ["val environment = OrtEnvironment.getEnvironment()"]
    lines += [f"val session = environment.createSession({kotlin_quoted(ports.file)})"]
    for port in ports.inputs:
        lines += [f"// {port.comment}"]
        lines += [f"val {port.variable} = OnnxTensor.createTensor(", f"    environment, {_kotlin_given(port)})"]
    given = ", ".join(f"{kotlin_quoted(port.quoted)} to {port.variable}" for port in ports.inputs)
    lines += [f"val results = session.run(mapOf({given}))"]
    for port in ports.outputs:
        lines += [f"// {port.comment}", f"val {port.variable} = results[{kotlin_quoted(port.quoted)}].get().value"]
    return "\n".join(lines) + "\n"


def _kotlin_given(port: PortCode) -> str:
    """Data and shape as ``OnnxTensor.createTensor`` takes them for that dtype."""
    shape = f"longArrayOf({port.dims})"
    if port.dtype == "string":
        return f'Array({port.count}) {{ "" }}, {shape}'
    if port.dtype in _BYTES:
        kind, size = _BYTES[port.dtype]
        made = f"ByteBuffer.allocateDirect({size} * {port.count}).order(ByteOrder.nativeOrder())"
        return f"{made}, {shape}, OnnxJavaType.{kind}"
    buffer, array = _BUFFERS.get(port.dtype, ("FloatBuffer", "FloatArray"))
    return f"{buffer}.wrap({array}({port.count})), {shape}"


def swift(ports: Ports) -> str:
    """With onnxruntime-swift-package-manager, whose tensors have no other element types than those of ``_SWIFT``."""
    if lacking := [port for port in ports.inputs if port.dtype not in _SWIFT]:
        told = [f"// {port.comment}" for port in lacking]
        return "\n".join([*told, "// ONNX Runtime's Swift package makes no such tensors: use its C API"]) + "\n"
    lines = ["import Foundation", "import OnnxRuntimeBindings", ""]
    lines += ["let environment = try ORTEnv(loggingLevel: .warning)"]
    lines += [f"let session = try ORTSession(env: environment, modelPath: {ports.file}, sessionOptions: nil)"]
    for port in ports.inputs:
        kind, element = _SWIFT[port.dtype]
        lines += [f"// {port.comment}"]
        lines += [f"let {port.variable} = try ORTValue("]
        lines += [f"    tensorData: NSMutableData(length: {port.count} * MemoryLayout<{kind}>.size)!,"]
        lines += [f"    elementType: .{element}, shape: [{port.dims}])"]
    given = ", ".join(f"{port.quoted}: {port.variable}" for port in ports.inputs)
    taken = ", ".join(port.quoted for port in ports.outputs)
    lines += [f"let results = try session.run(withInputs: [{given}], outputNames: [{taken}], runOptions: nil)"]
    for port in ports.outputs:
        lines += [f"// {port.comment}", f"let {port.variable} = try results[{port.quoted}]!.tensorData()"]
    return "\n".join(lines) + "\n"


def cpp(ports: Ports) -> str:
    """With onnxruntime_cxx_api.h."""
    lines = ["#include <cstdint>", "#include <memory>", "#include <vector>", "#include <onnxruntime_cxx_api.h>", ""]
    lines += ["int main() {", "  Ort::Env environment;"]
    lines += [f"  Ort::Session session(environment, {ports.file}, Ort::SessionOptions{{}});"]
    lines += ["  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);"]
    lines += ["  std::vector<Ort::Value> inputs;"]
    for port in ports.inputs:
        kind = _CPP.get(port.dtype, "float")
        lines += [f"  // {port.comment}"]
        lines += [f"  std::unique_ptr<{kind}[]> {port.variable}(new {kind}[{port.count}]());"]
        lines += [f"  const std::vector<int64_t> shape_{port.place}{{{port.dims}}};"]
        lines += [f"  inputs.push_back(Ort::Value::CreateTensor<{kind}>(memory, {port.variable}.get(), {port.count},"]
        lines += [
            f"                                                 shape_{port.place}.data(), shape_{port.place}.size()));"
        ]
    lines += [f"  const char* input_names[] = {{{', '.join(port.quoted for port in ports.inputs)}}};"]
    lines += [f"  const char* output_names[] = {{{', '.join(port.quoted for port in ports.outputs)}}};"]
    lines += ["  auto outputs = session.Run(Ort::RunOptions{}, input_names, inputs.data(), inputs.size(),"]
    lines += [f"                             output_names, {len(ports.outputs)});"]
    for port in ports.outputs:
        kind = _CPP.get(port.dtype, "float")
        lines += [f"  // {port.comment}"]
        lines += [f"  const {kind}* {port.variable} = outputs[{port.place}].GetTensorData<{kind}>();"]
        lines += [f"  (void){port.variable};"]
    lines += ["}"]
    return "\n".join(lines) + "\n"


def trtexec(ports: Ports, profile: Profile) -> str:
    """TensorRT's own tool, where the engine will run; sizes that ``profile`` does not have are those of the example."""
    shapes = dict[str, tuple[Dim, ...]]()
    for port in ports.inputs:
        if port.is_dynamic:
            shapes[json.loads(port.quoted)] = tuple(
                dim if dim in profile else size for dim, size in zip(port.named, port.shape, strict=True)
            )
    return trtexec_command(json.loads(ports.file), shapes, profile)


def build_engine(ports: Ports, profile: Profile) -> str:
    """The package's own scripts; sizes that ``profile`` does not have are the reader's to choose."""
    names = dict.fromkeys(dim for port in ports.inputs for dim in port.named if isinstance(dim, str))
    sizes = [f" --size {shlex.quote(f'{name}=MIN,OPT,MAX')}" for name in names if name not in profile]
    return f"python build_engine.py{''.join(sizes)}\npython check_gpu.py\n"


def trtexec_command(
    file: str,
    dynamic: Mapping[str, tuple[Dim, ...]],
    sizes: Profile,
    switches: Sequence[str] = (),
    typed: Sequence[str] = ("--stronglyTyped",),
) -> str:
    """The line that builds an engine, with the shapes of the ``dynamic`` inputs and ``switches`` before them.

    ``typed`` says which types the engine may have.

    Names in these shapes get the smallest, usual and largest size that ``sizes`` has for them.
    Source: trtexec's ``--help``; the optimization profile is one for all inputs.
    """
    words = ["trtexec", f"--onnx={file}", "--saveEngine=model.engine", *typed, *switches]
    for place, which in enumerate(("min", "opt", "max") if dynamic else ()):
        shapes = (
            f"{name}:{'x'.join(str(sizes[dim][place] if isinstance(dim, str) else dim) for dim in shape)}"
            for name, shape in dynamic.items()
        )
        words.append(f"--{which}Shapes={','.join(shapes)}")
    return " \\\n    ".join(map(shlex.quote, words)) + "\n"
