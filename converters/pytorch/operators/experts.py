"""Mixtures of experts: rows that lie expert by expert, each times its expert's matrix.

transformers writes them as an operator of its own wherever torch's does not take part in an export, and torch has
``_grouped_mm``.  Here every expert multiplies all rows, and a row takes the product of its own: no size depends on
what the router chose.
Semantics: transformers/integrations/moe.py, ``_grouped_mm_fallback``; torch, ``aten::_grouped_mm`` of 2-D by 3-D.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_NAME = "transformers::grouped_mm_fallback"
_SCHEMA = "(Tensor input, Tensor weight, Tensor offs) -> Tensor"


def define() -> bool:
    """Make transformers' operator known to torch where transformers has not; False where it was."""
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        return False
    torch.library.define(_NAME, _SCHEMA)
    torch.library.impl(_NAME, "CompositeImplicitAutograd", grouped)
    return True


def substitutes(program: Any) -> dict[Any, Callable[..., Any]]:
    """What ``run_decompositions`` has to take apart in this program, by overload."""
    return {
        node.target: grouped if str(node.target).startswith("transformers.") else grouped_mm
        for node in program.graph.nodes
        if str(node.target) in ("transformers.grouped_mm_fallback.default", "aten._grouped_mm.default")
    }


def grouped(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Rows ``x`` [S, K] times ``weight`` [E, K, N]: those up to ``ends[0]`` by the first matrix, and so on.

    Rows behind the last end are 0.  ``ends`` [E] are integers that do not fall.
    """
    expert = (torch.arange(x.shape[0]).unsqueeze(1) >= ends.unsqueeze(0)).sum(1, keepdim=True)
    result = x.new_zeros(x.shape[0], weight.shape[2])
    for place in range(weight.shape[0]):
        result = torch.where(expert == place, x @ weight[place], result)
    return result


def grouped_mm(
    x: Tensor,
    weight: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """``aten::_grouped_mm`` of rows by a matrix for each expert; its other forms stay what they are."""
    if x.dim() != 2 or weight.dim() != 3 or offs is None or bias is not None:
        return NotImplemented
    result = grouped(x, weight, offs)
    return result if out_dtype is None else result.to(out_dtype)
