"""What a program is taken apart into where torch's ONNX exporter lacks one of its operators.

Tried only after the exporter has refused the program, so nothing changes for one that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from convertkit.converters.pytorch.compat import exporters
from convertkit.converters.pytorch.operators.bessel import BESSEL
from convertkit.converters.pytorch.operators.complex_numbers import COMPLEX
from convertkit.converters.pytorch.operators.eigenvalues import EIGENVALUES
from convertkit.converters.pytorch.operators.factors import FACTORS
from convertkit.converters.pytorch.operators.frequencies import FREQUENCIES
from convertkit.converters.pytorch.operators.linear_algebra import LINEAR_ALGEBRA
from convertkit.converters.pytorch.operators.scans import SCANS
from convertkit.converters.pytorch.operators.special import SPECIAL
from convertkit.converters.pytorch.operators.views import taken_apart

_ATEN = torch.ops.aten


def _broadcast(x: torch.Tensor, shape: Sequence[int], axes: Sequence[int]) -> torch.Tensor:
    """``prims::broadcast_in_dim``: axis ``i`` of ``x`` becomes axis ``axes[i]``.

    Deviations that keep their axes are taken apart into it, and a program that holds it is not taken apart again.
    """
    kept = dict(zip(axes, x.shape, strict=True))
    return x.reshape([kept.get(axis, 1) for axis in range(len(shape))]).expand(list(shape))


_VIEWS = {torch.ops.prims.broadcast_in_dim.default: _broadcast}


def written_out(program: Any, translated: set[Any]) -> Any:
    """The exported program made of operators that the exporter has; ``translated`` are those that we translate."""
    table: dict[Any, Callable[..., Any]] = exporters.decompositions(translated)
    own = {**LINEAR_ALGEBRA, **FACTORS, **EIGENVALUES, **SCANS, **SPECIAL, **BESSEL, **COMPLEX, **FREQUENCIES, **_VIEWS}
    program = taken_apart(program, {**table, **own})
    _join_no_parts_that_are_taken_apart(program)
    return program


def _join_no_parts_that_are_taken_apart(program: Any) -> None:
    """Real and imaginary parts that are joined for the next operator alone go to it directly, in place."""
    for node in list(program.graph.nodes):
        if node.target == _ATEN.view_as_real.default and node.args[0].target == _ATEN.view_as_complex.default:
            node.replace_all_uses_with(node.args[0].args[0])
    for node in list(program.graph.nodes):
        if node.target == _ATEN.select.int and node.args[0].target == _ATEN.stack.default:
            stack, dim, place = node.args
            rank = stack.meta["val"].dim()
            if isinstance(place, int) and (stack.args[1] if len(stack.args) > 1 else 0) % rank == dim % rank:
                node.replace_all_uses_with(stack.args[0][place])
    program.graph.eliminate_dead_code()
