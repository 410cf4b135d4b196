"""What runs a package on an iPhone: the file that it gets, the library it depends on, the code that calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Library:
    """A Swift package with its ``product``, a pod where ``url`` is empty, or the system's own where ``version`` is."""

    product: str
    version: str
    url: str = ""

    @property
    def package(self) -> str:
        """What SwiftPM calls the package: the last part of its address."""
        return self.url.rpartition("/")[2]

    @property
    def is_pod(self) -> bool:
        return not self.url and not self.is_system

    @property
    def is_system(self) -> bool:
        """Whether every device has it, so that nothing is brought along."""
        return not self.version


@dataclass(frozen=True, slots=True)
class AppleRuntime:
    """``target`` makes the file, whose name ends in ``suffix``; ``types`` are the elements that ``library`` takes.

    ``tail`` is put behind the file's name: Xcode generates a Swift file of that name beside the package's own.
    ``most_opset`` is the newest that the library surely knows; ``min_runtime`` the TensorFlow Lite release that it is.
    """

    title: str
    target: str
    suffix: str
    library: Library
    engine: str
    types: frozenset[str]
    most_opset: int | None = None
    min_runtime: str = ""
    tail: str = ""


_ONNX_RUNTIME = AppleRuntime(
    "ONNX Runtime",
    "onnxruntime",
    ".onnx",
    Library("onnxruntime", "1.24.2", "https://github.com/microsoft/onnxruntime-swift-package-manager"),
    "EngineOnnxRuntime.swift",
    frozenset({"float32", "int8", "uint8", "int32", "int64"}),
    most_opset=24,
)
RUNTIMES: Mapping[str, AppleRuntime] = {
    "onnxruntime": _ONNX_RUNTIME,
    "ort-mobile": replace(_ONNX_RUNTIME, target="ort-mobile", suffix=".ort"),
    "litert": AppleRuntime(
        "TensorFlow Lite",
        "tflite",
        ".tflite",
        Library("TensorFlowLiteSwift", "2.17.0"),
        "EngineLiteRt.swift",
        frozenset({"float32", "int8", "uint8", "int16", "int32", "int64", "bool"}),
        min_runtime="2.17.0",
    ),
    "coreml": AppleRuntime(
        "Core ML",
        "coreml",
        ".mlpackage",
        Library("CoreML", ""),
        "EngineCoreMl.swift",
        frozenset({"float32", "int32"}),
        tail="_model",
    ),
}
"""By the values of ``--ios-runtime``.  Of TensorFlow Lite there is a pod, and no Swift package by who makes it."""
