"""Weights whose zeros mean something: those that pruning made, and those of a source that was sparse already."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.quantization.graph.units import constant, is_constant, is_float

Places = frozenset[tuple[str, int]]
"""Weights, each by the name of its node and the index of the input."""
_MARK = "convertkit.pruned"
_SPARSE = 0.3
"""Share of zeros from which a weight is sparse on purpose: training leaves hardly any number at exactly zero."""


def mark_pruned(node: ir.Node, place: int) -> None:
    """Note that zeros of the weight at this input were made by pruning; whatever becomes of the weight, they stay."""
    node.metadata_props[_MARK] = " ".join(sorted({*node.metadata_props.get(_MARK, "").split(), str(place)}))


def pruned(graph: ir.Graph) -> Places:
    """The weights that :func:`mark_pruned` noted."""
    return frozenset(
        (str(node.name), int(place)) for node in graph for place in node.metadata_props.get(_MARK, "").split()
    )


def sparse(graph: ir.Graph) -> Places:
    """The float weights of two axes or more that are zero to a large part."""
    return frozenset(
        (str(node.name), place)
        for node in graph
        for place, value in enumerate(node.inputs)
        if value is not None and is_constant(value) and is_float(value)
        and (array := constant(value)).ndim > 1 and float((array == 0).mean()) >= _SPARSE
    )  # fmt: skip
