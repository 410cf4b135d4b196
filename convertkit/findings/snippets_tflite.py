"""Running a ``.tflite`` file: LiteRT from Python, Kotlin, Swift and C++."""

from __future__ import annotations

from convertkit.findings.snippet_parts import PortCode, Ports, kotlin_quoted

_KOTLIN_BYTES = {"int8": 1, "uint8": 1, "bool": 1, "int16": 2, "float16": 2, "int64": 8, "float64": 8}
_SWIFT = {"float32": "Float32", "int8": "Int8", "uint8": "UInt8", "int16": "Int16", "int32": "Int32", "int64": "Int64",
          "bool": "Bool", "float16": "UInt16", "float64": "Double"}  # fmt: skip
_CPP = {"float32": "float", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t",
        "int64": "int64_t", "bool": "bool", "float16": "uint16_t", "float64": "double"}  # fmt: skip


def python(ports: Ports) -> str:
    """With ai-edge-litert and NumPy; inputs are set by name."""
    lines = ["import numpy as np", "from ai_edge_litert.interpreter import Interpreter", ""]
    lines += [f"interpreter = Interpreter({ports.file})"]
    lines += ['inputs = {each["name"]: each["index"] for each in interpreter.get_input_details()}']
    if ports.states:
        lines += ['start = np.load("initial_state.npz")  # lies beside the model']
    lines += [line for port in ports.inputs for line in _python_input(port)]
    for port in ports.inputs:
        lines += [f"interpreter.resize_tensor_input(inputs[{port.quoted}], {port.variable}.shape)"]
    lines += ["interpreter.allocate_tensors()"]
    lines += [f"interpreter.set_tensor(inputs[{port.quoted}], {port.variable})" for port in ports.inputs]
    lines += ["interpreter.invoke()"]
    lines += ['outputs = {each["name"]: each["index"] for each in interpreter.get_output_details()}']
    for port in ports.outputs:
        lines += [f"# {port.comment}", f"{port.variable} = interpreter.get_tensor(outputs[{port.quoted}])"]
        if port.scale is not None:
            shift = f"({port.variable}.astype(np.float32) - {port.zero_point})"
            lines += [f"{port.variable} = {shift} * np.float32({port.scale!r})"]
    return "\n".join(lines) + "\n"


def _python_input(port: PortCode) -> list[str]:
    shape = f"({port.dims},)" if len(port.shape) == 1 else f"({port.dims})"
    lines = [f"# {port.comment}"]
    if port.is_state:
        return [*lines, f"{port.variable} = np.broadcast_to(start[{port.quoted}], {shape})"]
    if port.scale is None:
        dtype = "object" if port.dtype == "string" else f"np.{port.dtype}" if port.dtype != "bool" else "bool"
        return [*lines, f"{port.variable} = np.zeros({shape}, {dtype})"]
    steps = f"np.rint(real / np.float32({port.scale!r})) + {port.zero_point}"
    limits = f"np.iinfo(np.{port.dtype}).min, np.iinfo(np.{port.dtype}).max"
    return [
        *lines,
        f"real = np.zeros({shape}, np.float32)",
        f"{port.variable} = np.clip({steps}, {limits}).astype(np.{port.dtype})",
    ]


def kotlin(ports: Ports) -> str:
    """With the interpreter of com.google.ai.edge.litert:litert 1.4, on Android."""
    lines = [
        '// implementation("com.google.ai.edge.litert:litert:1.4.2")',
        "import java.io.File",
        "import java.nio.ByteBuffer",
        "import java.nio.ByteOrder",
    ]
    lines += [
        "import org.tensorflow.lite.Interpreter",
        "",
        f"val interpreter = Interpreter(File({kotlin_quoted(ports.file)}))",
    ]
    for port in ports.inputs:
        lines += [f"interpreter.resizeInput({port.place}, intArrayOf({port.dims}))"]
    lines += ["interpreter.allocateTensors()"]
    lines += ["fun bytes(count: Int) = ByteBuffer.allocateDirect(count).order(ByteOrder.nativeOrder())"]
    for port in ports.inputs:
        size = _KOTLIN_BYTES.get(port.dtype, 4)
        lines += [f"// {port.comment}", f"val {port.variable} = bytes({size} * {port.count})"]
    for port in ports.outputs:
        lines += [f"// {port.comment}"]
        lines += [f"val {port.variable} = bytes(interpreter.getOutputTensor({port.place}).numBytes())"]
    given = ", ".join(port.variable for port in ports.inputs)
    taken = ", ".join(f"{port.place} to {port.variable}" for port in ports.outputs)
    lines += [f"interpreter.runForMultipleInputsOutputs(arrayOf<Any>({given}), mapOf<Int, Any>({taken}))"]
    return "\n".join(lines) + "\n"


def swift(ports: Ports) -> str:
    """With TensorFlowLiteSwift, on iOS."""
    lines = [
        "import Foundation",
        "import TensorFlowLite",
        "",
        f"let interpreter = try Interpreter(modelPath: {ports.file})",
    ]
    for port in ports.inputs:
        lines += [f"try interpreter.resizeInput(at: {port.place}, to: Tensor.Shape([{port.dims}]))"]
    lines += ["try interpreter.allocateTensors()"]
    for port in ports.inputs:
        kind, zero = _SWIFT.get(port.dtype, "Float32"), "false" if port.dtype == "bool" else "0"
        lines += [f"// {port.comment}"]
        lines += [f"let {port.variable} = [{kind}](repeating: {zero}, count: {port.count})"]
        lines += [
            f"try interpreter.copy({port.variable}.withUnsafeBytes {{ Data($0) }}, toInputAt: {port.place})",
        ]
    lines += ["try interpreter.invoke()"]
    for port in ports.outputs:
        lines += [f"// {port.comment}", f"let {port.variable} = try interpreter.output(at: {port.place}).data"]
    return "\n".join(lines) + "\n"


def cpp(ports: Ports) -> str:
    """With LiteRT's C API, which C++ includes."""
    lines = ["#include <cstdint>", "#include <vector>", '#include "tensorflow/lite/c/c_api.h"', "", "int main() {"]
    lines += [f"  TfLiteModel* model = TfLiteModelCreateFromFile({ports.file});"]
    lines += ["  TfLiteInterpreterOptions* options = TfLiteInterpreterOptionsCreate();"]
    lines += ["  TfLiteInterpreter* interpreter = TfLiteInterpreterCreate(model, options);"]
    for port in ports.inputs:
        lines += [f"  const int shape_{port.place}[] = {{{port.dims or 0}}};"]
        lines += [
            f"  TfLiteInterpreterResizeInputTensor(interpreter, {port.place}, shape_{port.place}, {len(port.shape)});"
        ]
    lines += ["  TfLiteInterpreterAllocateTensors(interpreter);"]
    for port in ports.inputs:
        tensor = f"TfLiteInterpreterGetInputTensor(interpreter, {port.place})"
        lines += [f"  // {port.comment}"]
        lines += [f"  std::vector<{_cpp(port)}> {port.variable}({port.count});"]
        lines += [f"  TfLiteTensorCopyFromBuffer({tensor}, {port.variable}.data(),"]
        lines += [f"                             {port.variable}.size() * sizeof({_cpp(port)}));"]
    lines += ["  if (TfLiteInterpreterInvoke(interpreter) != kTfLiteOk) return 1;"]
    for port in ports.outputs:
        tensor = f"tensor_{port.place}"
        lines += [f"  // {port.comment}"]
        lines += [f"  const TfLiteTensor* {tensor} = TfLiteInterpreterGetOutputTensor(interpreter, {port.place});"]
        lines += [
            f"  std::vector<{_cpp(port)}> {port.variable}(TfLiteTensorByteSize({tensor}) / sizeof({_cpp(port)}));"
        ]
        lines += [f"  TfLiteTensorCopyToBuffer({tensor}, {port.variable}.data(), TfLiteTensorByteSize({tensor}));"]
    lines += ["  TfLiteInterpreterDelete(interpreter);", "  TfLiteInterpreterOptionsDelete(options);"]
    lines += ["  TfLiteModelDelete(model);", "}"]
    return "\n".join(lines) + "\n"


def _cpp(port: PortCode) -> str:
    """Vectors of bool have no data: a byte each."""
    return "uint8_t" if port.dtype == "bool" else _CPP.get(port.dtype, "float")
