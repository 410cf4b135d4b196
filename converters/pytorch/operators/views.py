"""Views of values that lie in memory in another order after torch.onnx has taken an operator apart.

A recorded view is true of the memory that the operator itself laid out.  torch.onnx's decomposition of attention, for
one, gives its result other strides, of which the view that merges the heads is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from convertkit.converters.pytorch.compat import exporters

_ATEN = torch.ops.aten
_VIEWS = frozenset({_ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.reshape.default})
_REFUSED = re.compile(r"Cannot view a tensor with shape|view size is not compatible with input tensor's size")


def is_view_refused(error: BaseException) -> bool:
    """Whether an exporter failed because a view does not fit the strides of what it views."""
    return _REFUSED.search(str(error)) is not None


def taken_apart(program: Any, table: Mapping[Any, Callable[..., Any]]) -> Any:
    """The program with the operators of ``table`` taken apart, with what is viewed copied where a view refuses that."""
    try:
        return program.run_decompositions(table)
    except (RuntimeError, ValueError) as error:
        if not is_view_refused(error):
            raise
    exporters.forget_pending_sizes(program)
    lay_out_views(program)
    return program.run_decompositions(table)


def lay_out_views(program: Any) -> None:
    """Copy into row-major order what is viewed, in place: the numbers are the same, and an exporter drops the copy."""
    for graph in (each.graph for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)):
        for node in [node for node in graph.nodes if node.target in _VIEWS]:
            viewed = node.args[0]
            with graph.inserting_before(node):
                copy = graph.call_function(_ATEN.clone.default, (viewed,), {"memory_format": torch.contiguous_format})
            copy.meta = dict(viewed.meta)
            node.args = (copy, *node.args[1:])
    program.graph_module.recompile()
