"""Products of matrices, and other operators that sum products."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.values import Tensor, real


def _matmul(call: Call) -> Results | None:
    if not call.tensor(0).is_real:
        return None
    first, second = call.array(0), call.array(1)
    return [call.rounded(*_product(call, first, second))]


def _product(call: Call, first: Array, second: Array) -> tuple[Array, float]:
    """The product and how many terms its sums have."""
    terms = call.noise.terms(first.shape[-1], first, second)
    return np.matmul(*call.noise.operands(first, second, call.dtype, terms)), terms


def _gemm(call: Call) -> Results | None:
    if not call.tensor(0).is_real:
        return None
    first, second = (
        matrix.T if call.whole(name) else matrix
        for matrix, name in ((call.array(0), "transA"), (call.array(1), "transB"))
    )
    product, terms = _product(call, first, second)
    total = call.step(product, terms) * call.number("alpha", 1.0)
    bias = call.optional(2)
    if bias is not None:
        total = call.step(total) + call.step(bias * call.number("beta", 1.0))
    return [call.rounded(total)]


def _einsum(call: Call) -> Results | None:
    """Each operand is perturbed for itself: a sum of products of several."""
    if not call.tensor(0).is_real:
        return None
    equation = call.text("equation", "").replace(" ", "")
    arrays = [call.array(place) for place in range(len(call.inputs))]
    exact = np.asarray(np.einsum(equation, *arrays, optimize=True))
    if call.noise.is_silent:
        return [call.rounded(exact)]
    terms = _terms(equation, arrays, exact)
    shaken = [call.noise.operand(array, call.dtype, terms) for array in arrays]
    return [call.rounded(np.asarray(np.einsum(equation, *shaken, optimize=True)), terms)]


def _terms(equation: str, arrays: list[Array], result: Array) -> float:
    """Products that are summed for one element of the result: the sizes of labels that it lacks."""
    labels, _, kept = equation.partition("->")
    sizes: dict[str, int] = {}
    for term, array in zip(labels.split(","), arrays, strict=True):
        left, dots, right = term.partition("...")
        sizes.update(zip(left, array.shape))
        if right or not dots:
            sizes.update(zip(reversed(right or left), reversed(array.shape)))
    if "->" not in equation:
        kept = "".join(label for label in sizes if labels.count(label) == 1)
    return float(math.prod(size for label, size in sizes.items() if label not in kept))


def _cumulative(call: Call) -> Results | None:
    if not call.tensor(0).is_real:
        return None
    x, axis = call.array(0), int(call.array(1).reshape(-1)[0])
    terms = float(x.shape[axis])
    x = call.noise.operand(x, call.dtype, terms)
    total = np.cumsum(np.flip(x, axis) if call.whole("reverse") else x, axis)
    if call.whole("exclusive"):
        total = np.roll(total, 1, axis)
        first = [slice(None)] * x.ndim
        first[axis] = slice(0, 1)
        total[tuple(first)] = 0.0
    return [call.rounded(np.flip(total, axis) if call.whole("reverse") else total, terms)]


def _determinant(call: Call) -> Results:
    x = call.array(0)
    order = float(x.shape[-1])
    return [call.rounded(np.linalg.det(call.noise.operand(x, call.dtype, order)), order)]


def _one_hot(call: Call) -> Results:
    """Rows of one value with another one at an index, which may count from behind."""
    indices, depth, values = call.array(0), int(call.array(1).reshape(-1)[0]), call.tensor(2)
    rank = indices.ndim + 1
    axis = call.whole("axis", -1) % rank
    places = np.expand_dims(indices.astype(np.int64), axis)
    count = np.arange(depth).reshape([-1 if each == axis else 1 for each in range(rank)])
    hot = (np.where(places < 0, places + depth, places)) == count
    filled = np.where(hot, values.array[1], values.array[0])
    return [real(filled, values.dtype) if values.is_real else Tensor(filled.astype(values.array.dtype), values.dtype)]


HANDLERS: Mapping[str, Handler] = {
    "CumSum": _cumulative,
    "Det": _determinant,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "OneHot": _one_hot,
}
