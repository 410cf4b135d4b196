"""Letting go of large models."""

from __future__ import annotations

import ctypes
import gc
import sys

from convertkit.artifact import Artifact, bytes_beside

_LARGE_BYTES = 32 << 20
"""Python's collector takes some hundredths of a second, as copying so much does."""


def is_large(artifact: Artifact) -> bool:
    """Whether what is held of an artifact beyond need matters, judged by all its files."""
    return bytes_beside(artifact) > _LARGE_BYTES


def collect_after(artifact: Artifact) -> None:
    """Free the graphs that ``artifact`` was made of or read as, where its weights are worth it.

    onnx_ir's nodes and values refer to each other: a graph, and all weights that it holds or maps, stay until Python's
    collector happens to run.
    """
    if is_large(artifact):
        gc.collect()
        _give_back()


def _give_back() -> None:
    """Have glibc hand freed memory back to the system, which it keeps in the arenas of threads; nothing elsewhere."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
