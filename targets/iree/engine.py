"""The engine: IREE's compiler and runtime."""

from __future__ import annotations

from pathlib import Path

from convertkit.engines.engine import Engine

engine = Engine(
    "iree",
    summary="IREE, compiler and runtime for CPUs on servers, phones and boards",
    requirements=Path(__file__).with_name("requirements.txt"),
    licence="Apache-2.0 with LLVM exceptions",
    download_mb=133,
    disk_mb=616,
    imports=("iree.compiler", "iree.runtime", "onnx"),
)
