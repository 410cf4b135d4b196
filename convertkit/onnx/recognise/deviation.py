"""Deviations from a mean, where a variance without a usual epsilon is made of them.

The mean of equal elements is rounded, so that their deviations are an error of the last place and not 0.  A division by
``std + 1e-8``, or the logarithm of the variance, makes that as large as a result: silence behind a logarithm becomes a
constant that is normalised to ±1.  PyTorch's ``std`` of equal elements is 0 (B. P. Welford, *Note on a method for
calculating corrected sums of squares and products*, Technometrics 4, 1962).  Taken from one of the elements first, they
are 0 in any arithmetic, and of others no digits are lost.
Source: Chan, Golub, LeVeque: Algorithms for computing the sample variance (1983), on shifted data.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, axes_of, initializer, inserted, is_float32, producer, sizes
from convertkit.onnx.recognise.variance import squared
from convertkit.onnx.recognise.varied import varies

_VIEWS = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Identity", "Expand"})
_SCALED = frozenset({"Mul", "Div"})
_SQUARING = ("ReduceSumSquare", "ReduceL2")
_REDUCTIONS = ("ReduceMean", "ReduceSum", *_SQUARING)
LEAST_USUAL = 1e-8
"""An epsilon inside of the root of which the error of a mean of values around 1 is less than a thousandth.
That of values around 1000 is not, behind any usual epsilon."""


def recognise_deviation(node: ir.Node) -> None:
    """A sum or mean of squared deviations to which nothing is added, or less than a usual epsilon.

    A usual epsilon does not hide the rounding of the mean of large elements, where they may all be equal.

    before:  d = x - ReduceMean(x)
    after:   d = s - ReduceMean(s), where s = x - x[first]

    All deviations of ``x`` from its mean over the same axes are taken so.
    """
    if node.op_type not in _REDUCTIONS or node.domain != "" or not is_float32(node.outputs[0]):
        return
    square = node.inputs[0] if node.op_type in _SQUARING else squared(node.inputs[0])
    deviation = producer(square, "Sub")
    x = None if deviation is None else deviation.inputs[0]
    if deviation is None or x is None or is_shifted(x):
        return
    found = list(_deviations(x))
    axes = next((axes for each, axes in found if each is deviation), None)
    alike = [each for each, own in found if own == axes]
    if axes and is_guarded(node.outputs[0]) and varies(x, axes, small_may_equal=True):
        return
    if axes and all(each.graph is node.graph for each in alike):
        _shift(x, axes, alike)


def _shift(x: ir.Value, axes: tuple[int, ...], deviations: list[ir.Node]) -> None:
    """Take ``deviations`` from the first elements along ``axes``, and then from the mean of what that leaves."""
    first = min(deviations, key=_place)
    small = ir.Shape([1 if axis in axes else size for axis, size in enumerate(x.shape or ())])
    along = initializer(first, np.array(axes, np.int64), f"{x.name}/axes")
    starts = initializer(first, np.zeros(len(axes), np.int64), f"{x.name}/first")
    ends = initializer(first, np.ones(len(axes), np.int64), f"{x.name}/second")
    origin = inserted(first, "Slice", [x, starts, ends, along], x, shape=small).outputs[0]
    shifted = inserted(first, "Sub", [x, origin], x).outputs[0]
    centre = inserted(first, "ReduceMean", [shifted, along], x, {"keepdims": 1}, small).outputs[0]
    for each in deviations:
        each.replace_input_with(0, shifted)
        each.replace_input_with(1, centre)


def _place(node: ir.Node) -> int:
    assert node.graph is not None
    return next(place for place, each in enumerate(node.graph) if each is node)


def _deviations(x: ir.Value) -> Iterator[tuple[ir.Node, tuple[int, ...]]]:
    """The nodes that take a mean of ``x`` from it, with its axes, which are kept or put back where they were."""
    whole = list(sizes(x) or ())
    for node in x.consumers():
        mean = _mean_of(node) if node.op_type == "Sub" and not node.domain and node.inputs[0] is x else None
        axes = _reduced(mean, len(whole)) if mean is not None and mean.inputs[0] is x and whole else None
        if axes is not None and _fits(node.inputs[1], [1 if i in axes else n for i, n in enumerate(whole)], whole):
            yield node, axes


def _reduced(mean: ir.Node, rank: int) -> tuple[int, ...] | None:
    """The axes of a mean, all of them where it names none; None where they are not constant."""
    named = len(mean.inputs) > 1 and mean.inputs[1] is not None
    keeps_all: int = mean.attributes.get_int("noop_with_empty_axes", 0)
    if named or keeps_all:
        return axes_of(mean, rank) if named else None
    return tuple(range(rank))


def _fits(centre: ir.Value | None, kept: list[int | None], whole: list[int | None]) -> bool:
    """Whether a mean lies along the axes that it was taken over, itself or repeated; that of all elements anyhow."""
    found = sizes(centre)
    if found is not None and all(size == 1 for size in kept):
        return all(size == 1 for size in found)
    return found is not None and list(found) in (kept, whole)


def _mean_of(deviation: ir.Node) -> ir.Node | None:
    """What computes the second operand, without views."""
    value = deviation.inputs[1]
    node = None if value is None else value.producer()
    while node is not None and node.op_type in _VIEWS and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if node is not None and node.op_type == "ReduceMean" and not node.domain else None


def is_shifted(x: ir.Value) -> bool:
    """Whether this has been taken from one of its elements before."""
    node = producer(x, "Sub")
    origin = None if node is None else producer(node.inputs[1], "Slice")
    return node is not None and origin is not None and origin.inputs[0] is node.inputs[0]


def is_guarded(variance: ir.Value) -> bool:
    """Whether all that is made of a variance has a usual epsilon added, so that errors of a mean stay small."""
    readers = variance.consumers()
    if variance.is_graph_output() or not readers:
        return False
    return all(_guards(node, variance) for node in readers)


def _guards(node: ir.Node, variance: ir.Value) -> bool:
    if node.op_type in ("Add", "Max", "Clip") and not node.domain:
        least = [array_of(each) for each in node.inputs[:2] if each is not variance]
        return any(array is not None and array.size > 0 and float(array.min()) >= LEAST_USUAL for array in least)
    scales = node.op_type in _SCALED and any(array_of(each) is not None for each in node.inputs)
    return (scales or node.op_type in _VIEWS) and not node.domain and is_guarded(node.outputs[0])
