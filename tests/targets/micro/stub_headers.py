"""Headers with the names that a package uses of TensorFlow Lite Micro, and an interpreter that gives golden outputs.

``STUB_ADD`` in the environment is added to the first element of every output, in its own type.
"""

from __future__ import annotations

from pathlib import Path

from convertkit.targets.tflite_micro.operators import kernels

_RESOLVER = """#pragma once
#include "tensorflow/lite/stub_types.h"
namespace tflite {{
template <unsigned int kCount>
class MicroMutableOpResolver {{
 public:
  unsigned int used = 0;
  bool full() const {{ return used == kCount; }}
{methods}
 private:
  TfLiteStatus Add() {{ return used++ < kCount ? kTfLiteOk : kTfLiteError; }}
}};
}}
"""

_TYPES = """#pragma once
#include <cstddef>
#include <cstdint>
enum TfLiteStatus { kTfLiteOk = 0, kTfLiteError = 1 };
enum TfLiteType { kTfLiteFloat32 = 1, kTfLiteInt32 = 2, kTfLiteUInt8 = 3, kTfLiteInt16 = 7, kTfLiteInt8 = 9 };
struct TfLiteTensor {
  TfLiteType type;
  struct { char* raw; } data;
  size_t bytes;
};
#define TF_LITE_ENSURE_STATUS(call) if ((call) != kTfLiteOk) return kTfLiteError
#define TFLITE_SCHEMA_VERSION 3
namespace tflite {
struct Model { unsigned int version() const { return 3; } };
inline const Model* GetModel(const void*) { static Model model; return &model; }
inline void InitializeTarget() {}
}
"""

_INTERPRETER = """#pragma once
#include "tensorflow/lite/stub_types.h"
struct StubPort { size_t bytes; TfLiteType type; };
int StubInvoke(TfLiteTensor* inputs, TfLiteTensor* outputs);
void StubOpen(TfLiteTensor* inputs, TfLiteTensor* outputs);
namespace tflite {
class MicroInterpreter {
 public:
  template <typename Resolver>
  MicroInterpreter(const Model*, const Resolver& resolver, uint8_t*, size_t size) : size_(size), ok_(resolver.full()) {}
  TfLiteStatus AllocateTensors() { StubOpen(inputs_, outputs_); return ok_ ? kTfLiteOk : kTfLiteError; }
  TfLiteStatus Reset() { return kTfLiteOk; }
  TfLiteTensor* input(size_t place) { return &inputs_[place]; }
  TfLiteTensor* output(size_t place) { return &outputs_[place]; }
  TfLiteStatus Invoke() { return StubInvoke(inputs_, outputs_) ? kTfLiteError : kTfLiteOk; }
  size_t arena_used_bytes() const { return size_; }
 private:
  size_t size_;
  bool ok_;
  TfLiteTensor inputs_[4], outputs_[4];
};
}
"""

_LOG = """#pragma once
#include <cstdio>
#define MicroPrintf(...) (std::printf(__VA_ARGS__), std::printf("\\n"))
"""

_STUB = """#include <cstdlib>
#include <cstring>
#include "golden.h"
#include "model.h"
#include "tensorflow/lite/micro/micro_interpreter.h"
using namespace convertkit_model;
void StubOpen(TfLiteTensor* inputs, TfLiteTensor* outputs) {{
  inputs[0] = {{{input_type}, {{static_cast<char*>(std::malloc(kInput0Bytes))}}, kInput0Bytes}};
  outputs[0] = {{{output_type}, {{static_cast<char*>(std::malloc(kOutput0Bytes))}}, kOutput0Bytes}};
}}
int StubInvoke(TfLiteTensor* inputs, TfLiteTensor* outputs) {{
  for (int vector = 0; vector < kGoldenCount; ++vector) {{
    if (std::memcmp(inputs[0].data.raw, kGoldenInput[vector][0], kInput0Bytes)) continue;
    std::memcpy(outputs[0].data.raw, kGoldenOutput[vector][0], kOutput0Bytes);
    {element} first;
    std::memcpy(&first, outputs[0].data.raw, sizeof(first));
    const char* add = std::getenv("STUB_ADD");
    first = static_cast<{element}>(first + std::atof(add ? add : "0"));
    std::memcpy(outputs[0].data.raw, &first, sizeof(first));
    return 0;
  }}
  return 1;
}}
"""
_ELEMENTS = {"kTfLiteFloat32": "float", "kTfLiteInt8": "int8_t"}


def write_stubs(folder: Path, kind: str) -> Path:
    """The headers in ``folder``, for a package whose input and output are of the type ``kind``; the folder."""
    micro = folder / "tensorflow" / "lite" / "micro"
    (folder / "tensorflow" / "lite" / "schema").mkdir(parents=True)
    micro.mkdir(parents=True)
    methods = "\n".join(f"  TfLiteStatus {each.add}() {{ return Add(); }}" for each in kernels().values())
    plain = '#pragma once\n#include "tensorflow/lite/stub_types.h"\n'
    (micro.parent / "stub_types.h").write_text(_TYPES)
    (micro.parent / "schema" / "schema_generated.h").write_text(plain)
    (micro / "system_setup.h").write_text(plain)
    (micro / "micro_mutable_op_resolver.h").write_text(_RESOLVER.format(methods=methods))
    (micro / "micro_interpreter.h").write_text(_INTERPRETER)
    (micro / "micro_log.h").write_text(_LOG)
    (folder / "stub.cc").write_text(_STUB.format(input_type=kind, output_type=kind, element=_ELEMENTS[kind]))
    return folder
