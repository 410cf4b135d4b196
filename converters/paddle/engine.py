"""The engine: PaddlePaddle and its exporter."""

from __future__ import annotations

from pathlib import Path

from convertkit.engines.engine import Engine

engine = Engine(
    "paddle",
    summary="PaddlePaddle on the CPU and Paddle2ONNX, for its models as sources",
    requirements=Path(__file__).with_name("requirements.txt"),
    licence="Apache-2.0",
    download_mb=244,
    disk_mb=937,
    imports=("paddle", "paddle2onnx"),
    lends=("ml_dtypes",),
    systems=("linux-x86_64",),
)
