"""The engine: Rockchip's toolkit, whose pins exclude those of convertkit."""

from __future__ import annotations

from pathlib import Path

from convertkit.engines.engine import Engine

TORCH = ("torch", "torchgen", "functorch")
OF_TORCH = ("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy", "typing_extensions")

engine = Engine(
    "rknn",
    summary="RKNN-Toolkit2, compiler and simulator of Rockchip's NPUs",
    requirements=Path(__file__).with_name("requirements.txt"),
    licence="Rockchip's own, proprietary; installing it accepts that",
    download_mb=178,
    disk_mb=607,
    imports=("rknn.api",),
    lends=(*TORCH, *OF_TORCH),
    pythons=("3.11", "3.12"),
    systems=("linux-x86_64",),
)
