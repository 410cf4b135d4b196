"""Running operators on shapes alone (``torch._subclasses``); imports sympy."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

DependsOnData = GuardOnDataDependentSymNode
"""Raised where a size is compared that is as large as data makes it."""


def is_of_unknown_size(error: BaseException) -> bool:
    """Whether an operator was refused because values decide a size that it has to know while it is traced."""
    fixed = isinstance(error, AssertionError) and str(error).startswith("should have been constant, but got")
    return fixed or isinstance(error, DependsOnData)


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


@dataclass(frozen=True, slots=True)
class KnownSize:
    """A dynamic size of an exported program: that of its example, and the largest that its ``Dim`` allows."""

    example: int
    largest: int


def known_size(size: Any) -> KnownSize | None:
    """What a program tells of a dynamic size; None of one without an example."""
    if not size.node.has_hint():
        return None
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    return KnownSize(int(size.node.hint), int(upper) if upper.is_Integer else sys.maxsize)
