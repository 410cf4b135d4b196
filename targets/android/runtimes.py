"""What runs a package on the phone: the file that it gets, the library it depends on, the code that calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from convertkit.targets.android.maven import Coordinates


@dataclass(frozen=True, slots=True)
class PhoneRuntime:
    """``target`` makes the file, whose name ends in ``suffix``; ``min_sdk`` is the least that ``library`` runs on.

    ``rules`` are what a shrinker has to keep of the library, ``most_opset`` is the newest one that it surely knows.
    """

    title: str
    target: str
    suffix: str
    library: Coordinates
    engine: str
    min_sdk: int
    rules: str
    most_opset: int | None = None


_ONNX_RUNTIME = PhoneRuntime(
    "ONNX Runtime",
    "onnxruntime",
    ".onnx",
    Coordinates.of("com.microsoft.onnxruntime:onnxruntime-android:1.27.0"),
    "EngineOnnxRuntime.kt",
    24,
    "-keep class ai.onnxruntime.** { *; }\n",
    25,
)
RUNTIMES: Mapping[str, PhoneRuntime] = {
    "litert": PhoneRuntime(
        "LiteRT",
        "tflite",
        ".tflite",
        Coordinates.of("com.google.ai.edge.litert:litert:2.3.0"),
        "EngineLiteRt.kt",
        24,
        "-keep class org.tensorflow.lite.** { *; }\n",
    ),
    "onnxruntime": _ONNX_RUNTIME,
    "ort-mobile": replace(_ONNX_RUNTIME, target="ort-mobile", suffix=".ort"),
}
"""By the values of ``--android-runtime``.  No library is newer than the runtime that exports are verified with."""
