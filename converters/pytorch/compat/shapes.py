"""Running operators on shapes alone (``torch._subclasses``); imports sympy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

_LOG = logging.getLogger(FakeTensorMode.__module__)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Tensors have shapes and no values, and operators that do not fit them raise without being logged."""
    before, _LOG.disabled = _LOG.disabled, True
    try:
        with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()), torch.no_grad():
            yield
    finally:
        _LOG.disabled = before


def forget_pending_sizes(program: Any) -> None:
    """Drop sizes that depend on data and that an attempt at this program has left unclaimed, in place.

    torch's ONNX exporter runs operators as ``x[mask]`` on shapes alone to find types, and the sizes which that makes
    stop the next decomposition of the same program.
    """
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            mode.shape_env.pending_fresh_unbacked_symbols.clear()
            return
