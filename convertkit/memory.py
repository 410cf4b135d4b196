"""Letting go of large models."""

from __future__ import annotations

import gc

from convertkit.artifact import Artifact, bytes_beside

_WORTH_COLLECTING_BYTES = 32 << 20
"""A collection takes some hundredths of a second, as copying so much does."""


def collect_after(artifact: Artifact) -> None:
    """Free the graphs that ``artifact`` was made of or read as, where its weights are worth it.

    onnx_ir's nodes and values refer to each other: a graph, and all weights that it holds or maps, stay until Python's
    collector happens to run.
    """
    if bytes_beside(artifact) > _WORTH_COLLECTING_BYTES:
        gc.collect()
