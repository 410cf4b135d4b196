"""The engine: TVM's compiler and runtime."""

from __future__ import annotations

from pathlib import Path

from convertkit.engines.engine import Engine

engine = Engine(
    "tvm",
    summary="Apache TVM, compiler and runtime for CPUs",
    requirements=Path(__file__).with_name("requirements.txt"),
    licence="Apache-2.0",
    download_mb=131,
    disk_mb=448,
    imports=("tvm", "tvm.relax.frontend.onnx", "onnx"),
)
