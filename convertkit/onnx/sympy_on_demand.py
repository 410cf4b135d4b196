"""Import onnx_ir without sympy.

onnx_ir needs sympy to compute with named sizes only, and sympy takes longer to import than all of onnx_ir.  So while
onnx_ir is imported, ``sympy`` is a stand-in, which imports the real one at the first use.  Whoever else imports sympy,
before or after, gets the real one.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from types import ModuleType
from typing import Any

_NAME = "sympy"


class _StandIn(ModuleType):
    """Hands out functions that import sympy when they are called; once ``is_live``, sympy's own attributes."""

    is_live = False

    def __getattr__(self, name: str) -> Any:
        return _attribute(name) if self.is_live else partial(_called, name)


def import_onnx_ir() -> None:
    """Import onnx_ir, without sympy where that is not imported yet."""
    if _NAME in sys.modules or "onnx_ir" in sys.modules:
        return
    stand_in = _StandIn(_NAME)
    sys.modules[_NAME] = stand_in
    try:
        importlib.import_module("onnx_ir")
    finally:
        del sys.modules[_NAME]
        stand_in.is_live = True


def _attribute(name: str) -> Any:
    return getattr(importlib.import_module(_NAME), name)


def _called(name: str, *arguments: object) -> Any:
    return _attribute(name)(*arguments)
