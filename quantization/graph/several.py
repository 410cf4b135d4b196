"""A small model run on several samples at a time: one by one it spends most of a call on calling its operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.onnx.edit import add_constant
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.units import constant, is_constant
from convertkit.stage import Feed

AT_ONCE = 8
"""Few enough that the groups of a batch keep several processors busy."""
_ALIKE = 1e-4
"""Of the greatest number of a value: other kernels add up in another order."""


class Calls:
    """Runs ``model`` on samples, (1, …) each, :data:`AT_ONCE` of them together where it is one of `for_several`."""

    def __init__(self, model: ir.Model, *, several: bool) -> None:
        self._session, self._several = open_session(model), several

    def __call__(
        self, names: Sequence[str], feeds: Sequence[Feed], shared: Mapping[str, Array] | None = None
    ) -> Iterator[dict[str, Array]]:
        """The named values of each sample, (1, …); ``shared`` are inputs that are the same for all."""
        same = shared or {}
        if not self._several:
            yield from run_all(self._session, names, ({**feed, **same} for feed in feeds), {})
            return
        groups = [feeds[first : first + AT_ONCE] for first in range(0, len(feeds), AT_ONCE)]
        answers = run_all(self._session, names, ({**joined(group), **same} for group in groups), {})
        for group, answer in zip(groups, answers, strict=True):
            yield from (
                {name: array[place : place + 1] for name, array in answer.items()} for place in range(len(group))
            )


def for_several(model: ir.Model, names: Sequence[str], feeds: Sequence[Feed]) -> ir.Model | None:
    """A copy of ``model`` for :data:`AT_ONCE` samples along the first axes of its inputs and of the values ``names``.

    None where an operator may look at several samples at once, where samples of different sizes of numbers do not get
    what the model itself gives them, because they lie along another axis on the way, and where there are too few.
    """
    few = feeds[:AT_ONCE]
    if len(few) < AT_ONCE or any(array.ndim < 2 or len(array) != 1 for feed in few for array in feed.values()):
        return None
    if any(map(_looks_at_all, model.graph)):
        return None
    copy = model.clone()
    for value in copy.graph.inputs:
        if value.name in few[0] and value.shape is not None:
            value.shape = ir.Shape([AT_ONCE, *list(value.shape)[1:]])
    for node in copy.graph:
        _widen(node)
        for value in node.outputs:
            if value.shape is not None and len(value.shape):
                value.shape = None
    return copy if all(_is_same(model, copy, names, each) for each in (few, _louder(few))) else None


def _looks_at_all(node: ir.Node) -> bool:
    """Whether the operator may look along the axis of samples, or is a branch or a loop that one of them decides."""
    if any(
        attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()
    ):
        return True
    if node.domain or not node.op_type.startswith("Reduce"):
        return False
    value, listed = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    axes = list(node.attributes.get_ints("axes", ()))
    if listed is not None and is_constant(listed):
        axes = constant(listed).ravel().tolist()
    if not axes or value is None:
        return True
    return any(axis == 0 or (axis < 0 and (value.shape is None or axis == -len(value.shape))) for axis in axes)


def _louder(feeds: Sequence[Feed]) -> list[Feed]:
    """Samples that differ more: real numbers of the first ones a quarter as large, of the last ones twice."""
    factors = np.geomspace(0.25, 2, len(feeds))
    return [
        {
            name: (array * factor).astype(array.dtype) if array.dtype.kind == "f" else array
            for name, array in feed.items()
        }
        for factor, feed in zip(factors, feeds, strict=True)
    ]


def _widen(node: ir.Node) -> None:
    """A Reshape to one sample becomes one to several."""
    wanted = node.inputs[1] if node.op_type == "Reshape" and not node.domain else None
    if wanted is None or not is_constant(wanted) or constant(wanted).ravel()[:1].tolist() != [1]:
        return
    sizes = constant(wanted).copy()
    sizes[0] = AT_ONCE
    assert isinstance(node.graph, ir.Graph)
    node.replace_input_with(1, add_constant(node.graph, f"{wanted.name}_several", sizes))


def _is_same(model: ir.Model, copy: ir.Model, names: Sequence[str], feeds: Sequence[Feed]) -> bool:
    alone = list(run_all(open_session(_answering(model, names)), names, feeds, {}))
    try:
        (together,) = run_all(open_session(_answering(copy, names)), names, [joined(feeds)], {})
    except ToolError:  # what is reshaped otherwise does not fit
        return False
    return all(
        all(each[name].shape[:1] == (1,) for each in alone)
        and _alike(np.concatenate([each[name] for each in alone]), array)
        for name, array in together.items()
    )


def _answering(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """A copy whose outputs are the named values as well."""
    copy = model.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    copy.graph.outputs.extend(made[name] for name in names if not made[name].is_graph_output())
    return copy


def _alike(one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    size = float(np.abs(one[np.isfinite(one)]).max(initial=0.0))
    return bool(np.allclose(one, other, rtol=0, atol=_ALIKE * size, equal_nan=True))


def joined(feeds: Sequence[Feed]) -> dict[str, Array]:
    """:data:`AT_ONCE` samples along the first axes; where there are fewer, the last one several times."""
    wide = [*feeds, *[feeds[-1]] * (AT_ONCE - len(feeds))]
    return {name: np.concatenate([feed[name] for feed in wide]) for name in feeds[0]}
