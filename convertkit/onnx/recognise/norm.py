"""Layer normalisation from its mean, variance and affine part, however they are associated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import (
    array_of,
    axes_of,
    initializer,
    is_float32,
    producer,
    replaced,
    sizes,
)
from convertkit.onnx.recognise.match import is_number
from convertkit.onnx.recognise.variance import squared

_VIEWS = ("Reshape", "Unsqueeze", "Squeeze", "Identity")


@dataclass(frozen=True, slots=True)
class Normalised:
    """``x`` normalised over its last ``count`` axes, times ``scale`` (their shape, or absent)."""

    x: ir.Value
    count: int
    epsilon: float
    scale: Array | None


def recognise_layer_norm(node: ir.Node) -> None:
    """Normalisation over the last axes, with a constant scale and bias or without.

    before:  d · rsqrt(v + ε) · scale + bias, where d = x - mean(x) and v is mean(d²) or max(0, mean(x²) - mean(x)²)
    after:   LayerNormalization(x, scale, bias, epsilon=ε)

    TensorFlow's spelling is ``x · s + (bias - mean(x) · s)`` with s = rsqrt(v + ε) · scale.

    Both variances are the same number; LayerNormalization is defined by the first.  The second, which
    Flax takes by default, loses digits where the mean is large against the deviation, so that the
    operator differs from it there, towards the exact value.  Parity with the source decides as ever.
    """
    if node.domain != "" or not is_float32(node.outputs[0]):
        return
    if node.op_type == "Add" and all(array_of(value) is None for value in node.inputs):
        _recognise_shifted(node)
        return
    bias: ir.Value | None = None
    product: ir.Value | None = node.outputs[0]
    if node.op_type == "Add":
        places = [place for place in (0, 1) if array_of(node.inputs[place]) is not None]
        if len(places) != 1:
            return
        bias, product = node.inputs[places[0]], node.inputs[1 - places[0]]
    elif node.op_type not in ("Mul", "Div"):
        return
    found = None if product is None else _normalised(product)
    if found is None or sizes(node.outputs[0]) != sizes(found.x):
        return
    shape = _last(found.x, found.count)
    offset = None if bias is None else _affine(array_of(bias), shape)
    if bias is not None and offset is None:
        return
    _write(node, found, offset)


def _write(node: ir.Node, found: Normalised, offset: Array | None) -> None:
    scale = np.ones(_last(found.x, found.count), np.float32) if found.scale is None else found.scale
    stem = node.outputs[0].name
    inputs = [found.x, initializer(node, scale, f"{stem}/scale")]
    if offset is not None:
        inputs.append(initializer(node, offset, f"{stem}/bias"))
    replaced(node, "LayerNormalization", inputs, {"axis": -found.count, "epsilon": found.epsilon})


def _recognise_shifted(node: ir.Node) -> None:
    """The spelling in which the mean is taken from the bias."""
    for place in (0, 1):
        product, difference = producer(node.inputs[place], "Mul"), producer(node.inputs[1 - place], "Sub")
        shift = None if difference is None else producer(difference.inputs[1], "Mul")
        if product is None or difference is None or shift is None:
            continue
        for x, factor in (product.inputs, product.inputs[::-1]):
            means = [shift.inputs[1 - own] for own in (0, 1) if shift.inputs[own] is factor]
            found = None if x is None or factor is None or not means else _scaled(x, factor, means[0])
            if found is None or sizes(node.outputs[0]) != sizes(found.x):
                continue
            offset = _affine(array_of(difference.inputs[0]), _last(found.x, found.count))
            if offset is not None:
                _write(node, found, offset)
                return


def _scaled(x: ir.Value, factor: ir.Value, mean: ir.Value | None) -> Normalised | None:
    """Read ``factor`` as constants times the reciprocal of the spread of ``x`` around ``mean``."""
    count = _mean_axes(mean, x)
    spreads = [each for each in _factors(factor) if array_of(each) is None]
    if count is None or len(spreads) != 1 or not _kept(spreads[0], x, count):
        return None
    epsilon = _epsilon(_root(spreads[0]), x, None, count)
    affine = [_affine(array_of(each), _last(x, count)) for each in _factors(factor) if each is not spreads[0]]
    if epsilon is None or any(each is None for each in affine):
        return None
    scale = None
    for each in affine:
        scale = each if scale is None else scale * each
    return Normalised(x, count, epsilon, scale)


def _last(x: ir.Value, count: int) -> tuple[int, ...]:
    shape = sizes(x) or ()
    return tuple(size or 0 for size in shape[len(shape) - count :])


def _affine(array: Array | None, shape: tuple[int, ...]) -> Array | None:
    """A constant as one of exactly the normalised axes; None where it varies along others."""
    if array is None or array.dtype != np.float32:
        return None
    while array.ndim and array.shape[0] == 1:
        array = array[0]
    fits = array.ndim <= len(shape) and all(a in (1, b) for a, b in zip(array.shape[::-1], shape[::-1], strict=False))
    return np.array(np.broadcast_to(array, shape)) if fits else None


def _normalised(product: ir.Value) -> Normalised | None:
    """Read a product as deviation, reciprocal of the spread, and constants."""
    deviation, spread, constants = None, None, []
    for factor in _factors(product):
        array = array_of(factor)
        if array is not None:
            constants.append(array)
        elif producer(factor, "Sub") is not None and deviation is None:
            deviation = factor
        elif _root(factor) is not None and spread is None:
            spread = factor
        else:
            return None
    if deviation is None or spread is None:
        return None
    difference = producer(deviation, "Sub")
    assert difference is not None
    x = difference.inputs[0]
    count = None if x is None else _mean_axes(difference.inputs[1], x)
    if x is None or count is None or sizes(deviation) != sizes(x) or sizes(product) != sizes(x):
        return None
    epsilon = _epsilon(_root(spread), x, deviation, count)
    shape = _last(x, count)
    affine = [_affine(each, shape) for each in constants]
    if epsilon is None or not _kept(spread, x, count) or any(each is None for each in affine):
        return None
    scale = None
    for each in affine:
        scale = each if scale is None else scale * each
    return Normalised(x, count, epsilon, scale)


def _factors(value: ir.Value | None) -> list[ir.Value]:
    """The factors of a product; in ``a / sqrt(b)``, the root stands for its reciprocal."""
    node = producer(value, "Mul")
    quotient = producer(value, "Div")
    if quotient is not None and producer(_seen(quotient.inputs[1]), "Sqrt") is not None:
        node = quotient
    if value is None or node is None:
        return [] if value is None else [value]
    return [each for operand in node.inputs for each in _factors(operand)]


def _root(factor: ir.Value | None) -> ir.Node | None:
    """The square root whose reciprocal a factor is."""
    inverse = producer(_seen(factor), "Reciprocal")
    return producer(_seen(factor if inverse is None else inverse.inputs[0]), "Sqrt")


def _seen(value: ir.Value | None) -> ir.Value | None:
    """What stands behind operators that only put in or take out axes of size 1."""
    node = None if value is None else value.producer()
    while value is not None and node is not None and node.domain == "" and node.op_type in _VIEWS:
        inner = node.inputs[0]
        if inner is None or _squeezed(inner) is None or _squeezed(inner) != _squeezed(value):
            return value
        value, node = inner, inner.producer()
    return value


def _squeezed(value: ir.Value) -> tuple[int | None, ...] | None:
    shape = sizes(value)
    if shape is None or shape.count(None) > 1:  # two dynamic axes could have changed places
        return None
    return tuple(size for size in shape if size != 1)


def _kept(value: ir.Value | None, x: ir.Value, count: int) -> bool:
    """Whether a value has the shape of ``x`` with its last axes of size 1."""
    shape, whole = sizes(value), sizes(x)
    return whole is not None and shape == (*whole[: len(whole) - count], *(1,) * count)


def _mean_axes(value: ir.Value | None, x: ir.Value) -> int | None:
    """Over how many last axes of ``x`` a value is the mean, those axes kept with size 1."""
    node, shape = producer(_seen(value), "ReduceMean"), sizes(x)
    if node is None or node.inputs[0] is not x or shape is None:
        return None
    axes = axes_of(node, len(shape))
    count = 0 if axes is None else len(axes)
    last = axes == tuple(range(len(shape) - count, len(shape)))
    known = last and all(size is not None for size in shape[len(shape) - count :])
    return count if count and known and _kept(value, x, count) else None


def _epsilon(root: ir.Node | None, x: ir.Value, deviation: ir.Value | None, count: int) -> float | None:
    """The ε of ``sqrt(variance of x + ε)``, None where ``root`` is of something else."""
    total = None if root is None else producer(_seen(root.inputs[0]), "Add")
    if total is None:
        return None
    for place in (0, 1):
        array = array_of(total.inputs[place])
        if array is not None and array.size == 1 and array.dtype == np.float32:
            right = _is_variance(total.inputs[1 - place], x, deviation, count)
            return float(array.reshape(-1)[0]) if right else None
    return None


def _is_variance(value: ir.Value | None, x: ir.Value, deviation: ir.Value | None, count: int) -> bool:
    value = _seen(value)
    if deviation is None:
        deviation = _own_deviation(value, x, count)
    if deviation is not None and _is_mean_square(value, deviation, count):
        return True
    value = _seen(_without_floor(value))
    difference = producer(value, "Sub")
    if difference is None or not _is_mean_square(difference.inputs[0], x, count):
        return False
    square = squared(difference.inputs[1])
    mean = producer(_seen(square), "ReduceMean")
    rank = len(sizes(x) or ())
    return mean is not None and mean.inputs[0] is x and axes_of(mean, rank) == tuple(range(rank - count, rank))


def _own_deviation(value: ir.Value | None, x: ir.Value, count: int) -> ir.Value | None:
    """``x - mean(x)`` that a value is the mean square of."""
    mean = producer(value, "ReduceMean")
    inner = None if mean is None else squared(mean.inputs[0])
    difference = producer(inner, "Sub")
    own = difference is not None and difference.inputs[0] is x and _mean_axes(difference.inputs[1], x) == count
    return inner if own else None


def _is_mean_square(value: ir.Value | None, base: ir.Value, count: int) -> bool:
    mean, rank = producer(_seen(value), "ReduceMean"), len(sizes(base) or ())
    if mean is None or axes_of(mean, rank) != tuple(range(rank - count, rank)):
        return False
    inner = squared(mean.inputs[0])
    if inner is base:
        return True
    twin, own = (producer(each, "Sub") for each in (inner, base))
    return twin is not None and own is not None and _is_same_difference(twin, own, count)


def _is_same_difference(twin: ir.Node, own: ir.Node, count: int) -> bool:
    """``x - mean(x)`` computed twice."""
    x = own.inputs[0]
    return x is not None and twin.inputs[0] is x and _mean_axes(twin.inputs[1], x) == count


def _without_floor(value: ir.Value | None) -> ir.Value | None:
    rectified = producer(value, "Relu")
    if rectified is not None:
        return rectified.inputs[0]
    node = producer(value, "Max")
    for place in (0, 1) if node is not None and len(node.inputs) == 2 else ():
        assert node is not None
        if is_number(node.inputs[place], 0.0):
            return node.inputs[1 - place]
    return value
