"""Calling a handler: what its signature wants, and what a node has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import onnx_ir as ir

from convertkit.errors import Unsupported


def called(
    handler: Callable[..., object], builder: object, inputs: Sequence[object | None], attributes: Mapping[str, object]
) -> object:
    """What the handler makes of a node's inputs and attributes; those that the node leaves out are None.

    ``Unsupported`` for an attribute that the operator's schema does not know.
    """
    arity, names = _signature(handler)
    if unknown := set(attributes) - names:
        raise Unsupported(f"attribute {sorted(unknown)[0]} is not one that its schema knows")
    if arity is not None and len(inputs) < arity:
        inputs = [*inputs, *[None] * (arity - len(inputs))]
    return handler(builder, *inputs, **attributes)


@cache
def _signature(handler: Callable[..., object]) -> tuple[int | None, frozenset[str]]:
    """Number of positional inputs without default (None for a variadic one), names of attributes."""
    parameters = list(inspect.signature(handler).parameters.values())[1:]
    keywords = frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None, keywords
    return len([p for p in parameters if p.kind is not p.KEYWORD_ONLY and p.default is p.empty]), keywords


def attributes_of(node: ir.Node) -> dict[str, object]:
    """A node's attributes as plain Python values; tensors as arrays."""
    return {name: _plain(attribute) for name, attribute in node.attributes.items()}


def _plain(attribute: ir.Attr) -> object:
    value: object = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        return value.numpy()  # type: ignore[attr-defined]
    return tuple(value) if isinstance(value, list | tuple) else value


def subject(node: ir.Node, version: int) -> str:
    """``up2 (Resize-18)``."""
    operator = node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
    return f"{node.name or 'node'} ({operator}-{version})"
