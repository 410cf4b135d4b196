"""ONNX's reference evaluator, for models that ONNX Runtime cannot load: slow, and it knows every operator of ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.onnx.tolerated import as_taken

_FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""What its operators raise; it has no error of its own."""


class Evaluator:
    """Executes one model; nothing of it is compiled, and nothing in the file is code."""

    def __init__(self, evaluator: ReferenceEvaluator, name: str) -> None:
        self._evaluator, self._name = evaluator, name

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """For the file at ``path``; None where it holds an operator that ONNX does not define."""
        try:
            return cls(ReferenceEvaluator(as_taken(onnx.load_model(path))), path.name)
        except _FAILURES:
            return None

    def run(self, names: Sequence[str], feed: Mapping[str, Array]) -> list[Array]:
        """The named outputs; ``ToolError`` where the evaluator fails."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                return [np.asarray(each) for each in self._evaluator.run(list(names), dict(feed))]
            except _FAILURES as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0][:400]
                raise ToolError(f"ONNX's reference evaluator fails on {self._name}: {reason}") from error
