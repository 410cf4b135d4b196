"""Means that serve squared deviations alone, as those of a variance and a standard deviation do.

PyTorch's ``var`` and ``std`` update mean and squares together with each element (B. P. Welford, *Note on a method for
calculating corrected sums of squares and products*, Technometrics 4, 1962), so that equal elements give exactly 0.
ONNX writes them with a mean, which rounds: the deviations of equal elements are then not 0 but an error of that mean.
Behind ``(x - mean) / (std + 1e-8)`` the one is a division by 1e-8, the other a division by the error.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import initializer, inserted, producer, replaced
from convertkit.onnx.recognise.deviation import is_guarded, is_shifted
from convertkit.onnx.recognise.equal_rows import shifts
from convertkit.onnx.recognise.unbiased import UNBIASED, biases_of
from convertkit.onnx.recognise.variance import TEXTBOOK, squared

_SUMS = ("ReduceSumSquare", "ReduceL2")
"""Operators that square by themselves."""


def write_plainly(model: ir.Model) -> None:
    """Deviations as the source has them where the canonical form shifts ``x`` first, those of squares apart, in place.

    So have normalisations a bias again that their means take away.

    It is the same number; its roundings are those that the source may have.
    """
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Sub" and is_shifted(node.outputs[0]):
            x, shifted = node.inputs[0], node.outputs[0]
            assert x is not None
            for norm in filter(shifts, shifted.consumers()):
                norm.replace_input_with(0, x)
            for deviation in [each for each in shifted.consumers() if each.op_type == "Sub"]:
                _restore(deviation, shifted, x)
    for node in [node for node in model.graph.all_nodes() if TEXTBOOK in node.metadata_props]:
        _write_textbook(node)
    for node in [node for node in model.graph.all_nodes() if UNBIASED in node.metadata_props]:
        _write_biased(node)


def _write_biased(norm: ir.Node) -> None:
    """Numbers in front of a normalisation that are as large as the source's biases, which it takes away again."""
    x, biases = norm.inputs[0], biases_of(norm)
    if norm.op_type != "InstanceNormalization" or x is None or x.dtype is None or x.shape is None or biases is None:
        return
    shaped = biases.astype(x.dtype.numpy()).reshape(-1, *(1,) * (len(x.shape) - 2))
    bias = initializer(norm, shaped, f"{x.name}/bias")
    norm.replace_input_with(0, inserted(norm, "Add", [x, bias], x).outputs[0])


def _write_textbook(mean: ir.Node) -> None:
    """``mean(x²) - mean(x)²`` where the source has that: it loses digits that the canonical form keeps."""
    square = squared(mean.inputs[0])
    deviation, over = producer(square, "Sub"), [each for each in mean.inputs[1:] if each is not None]
    x = None if deviation is None else deviation.inputs[0]
    if x is None or mean.op_type != "ReduceMean":
        return
    small, keepdims = mean.outputs[0], {"keepdims": mean.attributes.get_int("keepdims", 1)}
    of_squares = inserted(mean, "ReduceMean", [inserted(mean, "Mul", [x, x], x).outputs[0], *over], small, keepdims)
    of_values = inserted(mean, "ReduceMean", [x, *over], small, keepdims).outputs[0]
    square_of_mean = inserted(mean, "Mul", [of_values, of_values], small).outputs[0]
    replaced(mean, "Sub", [of_squares.outputs[0], square_of_mean])


def _restore(deviation: ir.Node, shifted: ir.Value, x: ir.Value) -> None:
    """``x - ReduceMean(x)`` for ``shifted - ReduceMean(shifted)``, and once more for what squares it."""
    mean = producer(deviation.inputs[1], "ReduceMean")
    if deviation.inputs[0] is not shifted or mean is None or mean.inputs[0] is not shifted:
        return
    over = [x, *(each for each in mean.inputs[1:] if each is not None)]
    keepdims = {"keepdims": mean.attributes.get_int("keepdims", 1)}
    own, apart = (inserted(deviation, "ReduceMean", over, mean.outputs[0], keepdims).outputs[0] for _ in range(2))
    result = deviation.outputs[0]
    of_squares = inserted(deviation, "Sub", [x, apart], result).outputs[0]
    for use in [each for each in result.uses() if _squares(each.node, result)]:
        use.node.replace_input_with(use.idx, of_squares)
    deviation.replace_input_with(0, x)
    deviation.replace_input_with(1, own)


def serves_squares(node: ir.Node) -> bool:
    """Whether this is a mean that is taken away from what is then squared, and serves nothing else."""
    if node.op_type != "ReduceMean" or node.domain or node.outputs[0].is_graph_output():
        return False
    takers = node.outputs[0].consumers()
    return bool(takers) and all(taker.op_type == "Sub" and _is_squared(taker.outputs[0]) for taker in takers)


def has_bare_variance(model: ir.Model) -> bool:
    """Whether the model computes a variance in single operators, and adds no usual epsilon to it."""
    for node in model.graph.all_nodes():
        if serves_squares(node):
            squares = [each for taker in node.outputs[0].consumers() for each in taker.outputs[0].consumers()]
            sums = [each for square in squares for each in _sums(square)]
            if not all(is_guarded(each.outputs[0]) for each in sums):
                return True
    return False


def _sums(square: ir.Node) -> list[ir.Node]:
    return [square] if square.op_type in _SUMS else list(square.outputs[0].consumers())


def _is_squared(value: ir.Value) -> bool:
    takers = value.consumers()
    return bool(takers) and not value.is_graph_output() and all(_squares(node, value) for node in takers)


def _squares(node: ir.Node, value: ir.Value) -> bool:
    if node.op_type == "Mul":
        return all(operand is value for operand in node.inputs)
    if node.op_type == "Pow":
        power = node.inputs[1].const_value if node.inputs[1] is not None else None
        return power is not None and power.size == 1 and float(power.numpy().item()) == 2.0
    return node.op_type in _SUMS
