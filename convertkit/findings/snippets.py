"""Code to copy: how an app runs the artifact, in the languages that its runtime is used from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convertkit.findings import snippets_onnx, snippets_tflite
from convertkit.findings.snippet_parts import Ports

_ONNX: Mapping[str, Callable[[Ports], str]] = {
    "Python": snippets_onnx.python,
    "Kotlin": snippets_onnx.kotlin,
    "Swift": snippets_onnx.swift,
    "C++": snippets_onnx.cpp,
}
_BY_FORMAT: Mapping[str, Mapping[str, Callable[[Ports], str]]] = {
    "tflite": {
        "Python": snippets_tflite.python,
        "Kotlin": snippets_tflite.kotlin,
        "Swift": snippets_tflite.swift,
        "C++": snippets_tflite.cpp,
    },
    "onnxruntime": _ONNX,
    "tensorrt": {"Shell": snippets_onnx.trtexec},
}


def snippets(artifact: Mapping[str, Any], interface: Mapping[str, Any]) -> dict[str, str]:
    """Code by language for ``artifact`` with ``interface``, both as report.json has them; empty for other formats."""
    ports = Ports.of(artifact["path"], interface)
    return {language: write(ports) for language, write in _BY_FORMAT.get(artifact["format"], {}).items()}
