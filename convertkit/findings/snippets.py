"""Code to copy: how an app runs the artifact, in the languages that its runtime is used from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
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
}


def snippets(
    artifact: Mapping[str, Any],
    interface: Mapping[str, Any],
    profile: Mapping[str, Sequence[int]] = MappingProxyType({}),
    release: str = "",
) -> dict[str, str]:
    """Code by language for ``artifact`` with ``interface``, both as report.json has them; empty for other formats.

    ``profile`` has the smallest, usual and largest sizes of named dimensions, where a TensorRT engine is for those;
    ``release`` is that of TensorRT where it is one whose trtexec cannot be told the types.
    """
    ports = Ports.of(artifact["path"], interface)
    if artifact["format"] == "tensorrt":
        return {
            "Shell": snippets_onnx.build_engine(ports, profile) if release else snippets_onnx.trtexec(ports, profile)
        }
    return {language: write(ports) for language, write in _BY_FORMAT.get(artifact["format"], {}).items()}
