"""The test that runs on the device, and what builds it."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.targets.tflite_micro.headers import NAMESPACE

MAIN = f"""// Runs the golden vectors on this device, says which pass, and returns 0 where all do.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "golden.h"
#include "model.h"
#include "resolver.h"
#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_log.h"
#include "tensorflow/lite/micro/system_setup.h"
#include "tensorflow/lite/schema/schema_generated.h"

namespace {{

using namespace {NAMESPACE};

alignas(16) uint8_t arena[kTensorArenaSize];

template <typename T>
bool Agrees(const TfLiteTensor& tensor, const unsigned char* expected, bool real) {{
  double greatest = 0.0, worst = 0.0;
  for (size_t i = 0; i < tensor.bytes / sizeof(T); ++i) {{
    T found, wanted;
    std::memcpy(&found, tensor.data.raw + i * sizeof(T), sizeof(T));
    std::memcpy(&wanted, expected + i * sizeof(T), sizeof(T));
    if (std::memcmp(&found, &wanted, sizeof(T)) == 0) continue;
    const double difference = std::fabs(static_cast<double>(found) - static_cast<double>(wanted));
    if (!(difference <= worst)) worst = difference;
    const double size = std::fabs(static_cast<double>(wanted));
    if (size > greatest) greatest = size;
  }}
  return worst <= (real ? kGoldenRelative * greatest : kGoldenSteps);
}}

bool Agrees(const TfLiteTensor& tensor, const unsigned char* expected) {{
  switch (tensor.type) {{
    case kTfLiteFloat32:
      return Agrees<float>(tensor, expected, true);
    case kTfLiteInt8:
      return Agrees<int8_t>(tensor, expected, false);
    case kTfLiteUInt8:
      return Agrees<uint8_t>(tensor, expected, false);
    case kTfLiteInt16:
      return Agrees<int16_t>(tensor, expected, false);
    default:
      return std::memcmp(tensor.data.raw, expected, tensor.bytes) == 0;
  }}
}}

int RunVector(tflite::MicroInterpreter& interpreter, int vector) {{
  interpreter.Reset();
  for (int i = 0; i < kGoldenInputs; ++i) {{
    TfLiteTensor* tensor = interpreter.input(i);
    std::memcpy(tensor->data.raw, kGoldenInput[vector][i], tensor->bytes);
  }}
  if (interpreter.Invoke() != kTfLiteOk) return 1;
  int failed = 0;
  for (int i = 0; i < kGoldenOutputs; ++i) {{
    failed += !Agrees(*interpreter.output(i), kGoldenOutput[vector][i]);
  }}
  return failed;
}}

}}  // namespace

// The number of golden vectors that fail, or 100 where the model cannot be set up.
int RunGoldenVectors() {{
  tflite::InitializeTarget();
  const tflite::Model* model = tflite::GetModel(kModel);
  OpResolver resolver;
  if (model->version() != TFLITE_SCHEMA_VERSION || RegisterOperators(resolver) != kTfLiteOk) return 100;
  tflite::MicroInterpreter interpreter(model, resolver, arena, kTensorArenaSize);
  if (interpreter.AllocateTensors() != kTfLiteOk) return 100;
  int failed = 0;
  for (int vector = 0; vector < kGoldenCount; ++vector) {{
    const bool passed = RunVector(interpreter, vector) == 0;
    MicroPrintf("golden vector %d: %s", vector, passed ? "pass" : "FAIL");
    failed += !passed;
  }}
  MicroPrintf("arena: %d of %d bytes used", static_cast<int>(interpreter.arena_used_bytes()),
              static_cast<int>(kTensorArenaSize));
  MicroPrintf("%s", failed ? "FAIL" : "PASS");
  return failed;
}}

#ifndef CONVERTKIT_NO_MAIN
int main() {{ return RunGoldenVectors(); }}
#endif
"""

_CMAKE = """# cmake -B build -DTFLM_DIR=<a checkout of tflite-micro> -DTFLM_LIBRARY=<its libtensorflow-microlite.a>
# cmake --build build && build/golden_test
cmake_minimum_required(VERSION 3.16)
project(convertkit_model CXX)

set(TFLM_DIR "" CACHE PATH "A checkout of tflite-micro whose third-party headers were downloaded")
set(TFLM_LIBRARY "" CACHE FILEPATH "The library that its Makefile builds")
set(TFLM_DOWNLOADS "${TFLM_DIR}/tensorflow/lite/micro/tools/make/downloads" CACHE PATH "Its third-party headers")

add_library(convertkit_model STATIC model.cc)
target_include_directories(convertkit_model PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_features(convertkit_model PUBLIC cxx_std_17)

if(TFLM_LIBRARY)
  add_executable(golden_test main.cc golden.cc)
  target_include_directories(golden_test PRIVATE ${TFLM_DIR} ${TFLM_DOWNLOADS}/flatbuffers/include
                             ${TFLM_DOWNLOADS}/gemmlowp ${TFLM_DOWNLOADS}/ruy)
  target_compile_definitions(golden_test PRIVATE TF_LITE_STATIC_MEMORY)
  target_link_libraries(golden_test PRIVATE convertkit_model ${TFLM_LIBRARY})
  enable_testing()
  add_test(NAME golden_vectors COMMAND golden_test)
endif()
"""

_PLATFORMIO = """; pio run -t upload && pio device monitor
; An ESP32 with ESP-IDF, whose component manager brings esp-tflite-micro; set the board to yours.
[env:esp32]
platform = espressif32
board = esp32dev
framework = espidf
monitor_speed = 115200
"""

_IDF_PROJECT = """cmake_minimum_required(VERSION 3.16)
include($ENV{IDF_PATH}/tools/cmake/project.cmake)
project(convertkit_model)
"""

_IDF_COMPONENT = """idf_component_register(SRCS app_main.cc ../main.cc ../golden.cc ../model.cc INCLUDE_DIRS ..)
target_compile_definitions(${COMPONENT_LIB} PRIVATE CONVERTKIT_NO_MAIN)
"""

_IDF_MANIFEST = """dependencies:
  espressif/esp-tflite-micro: "*"
"""

_APP_MAIN = """int RunGoldenVectors();

extern "C" void app_main() { RunGoldenVectors(); }
"""

_ZEPHYR = """# west build -b <board> . && west flash; the module tflite-micro has to be among west's projects
cmake_minimum_required(VERSION 3.20)
find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})
project(convertkit_model)
target_sources(app PRIVATE main.cc golden.cc model.cc)
"""

_ZEPHYR_CONFIG = """CONFIG_CPP=y
CONFIG_STD_CPP17=y
CONFIG_TENSORFLOW_LITE_MICRO=y
CONFIG_MAIN_STACK_SIZE=4096
"""

_ZEPHYR_MODULE = """name: convertkit_model
build:
  cmake: zephyr
"""

_ZEPHYR_LIBRARY = """zephyr_include_directories(..)
zephyr_library_named(convertkit_model)
zephyr_library_sources(../model.cc)
"""

_SKELETONS: Mapping[str, Mapping[str, str]] = {
    "cmake": {"CMakeLists.txt": _CMAKE},
    "platformio": {
        "platformio.ini": _PLATFORMIO,
        "CMakeLists.txt": _IDF_PROJECT,
        "src/CMakeLists.txt": _IDF_COMPONENT,
        "src/idf_component.yml": _IDF_MANIFEST,
        "src/app_main.cc": _APP_MAIN,
    },
    "zephyr": {
        "CMakeLists.txt": _ZEPHYR,
        "prj.conf": _ZEPHYR_CONFIG,
        "zephyr/module.yml": _ZEPHYR_MODULE,
        "zephyr/CMakeLists.txt": _ZEPHYR_LIBRARY,
    },
}
BUILD: Mapping[str, str] = {
    "cmake": "cmake -B build -DTFLM_DIR=<checkout of tflite-micro> -DTFLM_LIBRARY=<its libtensorflow-microlite.a>\n"
    "    cmake --build build && build/golden_test",
    "platformio": "pio run -t upload && pio device monitor",
    "zephyr": "west build -b <board> . && west flash",
}
"""The commands that build and run the test, by skeleton."""


def skeleton(kind: str) -> Mapping[str, str]:
    """The files of a value of ``--tflite-micro-skeleton``, by their paths."""
    return _SKELETONS[kind]
