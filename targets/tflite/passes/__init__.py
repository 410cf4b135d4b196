"""ONNX → ONNX passes that leave only what handlers can lower one node at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from convertkit.recipe import Layout


@dataclass(frozen=True, slots=True)
class Options:
    """What the passes need to know of the export."""

    input_layout: Layout = "auto"
    full_integer: bool = False
    precision: str = "float32"
    io_dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class InterfaceChange:
    """Inputs and outputs whose layout the passes changed: ``artifact = source.transpose(perm)``."""

    perms: dict[str, tuple[int, ...]] = field(default_factory=dict)


def prepare(model: ir.Model, options: Options) -> InterfaceChange:
    """Bring ``model`` into the form that is lowered, in place."""
    return InterfaceChange()
