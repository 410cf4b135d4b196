"""The operators of an open model: the file's own, or those of its ONNX."""

from __future__ import annotations

from convertkit import plugins
from convertkit.looking.opened import Opened
from convertkit.operators import InspectingTarget, Operator


def operators_of(found: Opened) -> tuple[tuple[Operator, ...], str]:
    """The operators in the order in which they run, and what they are those of.

    Raises what an export would where the model has to become ONNX for it and cannot.
    """
    if found.is_onnx:
        from convertkit.onnx.inspection import operators

        return operators(found.artifact.path), "the file"
    name = found.artifact.format
    if name in plugins.target_names():
        target = plugins.target(name)
        if isinstance(target, InspectingTarget):
            return target.operators(found.artifact), "the file"
    from convertkit.onnx.inspection import operators

    return operators(found.onnx().path), "its ONNX"
