"""Running operators on shapes alone (``torch._subclasses``); imports sympy."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

DependsOnData = GuardOnDataDependentSymNode
"""Raised where a size is compared that is as large as data makes it."""
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


def bounds(size: Any) -> tuple[int, int, int]:
    """The least and the largest size that an exported program takes for a dynamic one, and that of its example.

    They come from the ``Dim`` that it was exported with.
    """
    found = size.node.shape_env.bound_sympy(size.node.expr)
    low, high = (int(end) if end.is_Integer else sys.maxsize for end in (found.lower, found.upper))
    return low, high, int(size.node.hint) if size.node.has_hint() else low
