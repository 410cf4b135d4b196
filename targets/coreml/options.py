"""What the user chooses for Core ML, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convertkit.stage import BuildContext

TARGETS: Mapping[str, int] = {"iOS16": 7, "iOS17": 8, "iOS18": 9}
"""Deployment targets, with the version of the specification that they bring.

Source: coremltools, ``coremltools/__init__.py``.
"""
_DEFAULT, _FOR_W4 = "iOS17", "iOS18"
"""The first with ``quantize`` and ``dequantize``, and the first with weights of 4 bits."""


@dataclass(frozen=True, slots=True)
class Choices:
    """``version`` is that of the specification."""

    version: int


def choices(context: BuildContext) -> Choices:
    """From flags, keywords or a recipe."""
    given = context.target_options
    name = given["deployment-target"] or (_FOR_W4 if context.options.precision == "w4" else _DEFAULT)
    return Choices(TARGETS[name])
