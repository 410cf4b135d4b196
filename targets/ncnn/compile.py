"""ONNX model in, layers out: passes, then lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.halves import widen_halves
from convertkit.targets.forms.constants import fold_constants
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.recurrences import RECURRENT, batch_inside
from convertkit.targets.forms.rounded import write_rounding
from convertkit.targets.forms.softplus import write_softplus
from convertkit.targets.forms.stored import make_stored_real
from convertkit.targets.ncnn.builder import Builder, plain_name
from convertkit.targets.ncnn.handlers import NCNN
from convertkit.targets.ncnn.integer_inputs import take_as_real
from convertkit.targets.ncnn.layers import Layer, with_splits
from convertkit.targets.ncnn.lowering import WAYS_OUT, Lowering, shape_of
from convertkit.targets.ncnn.tensor import Tensor
from convertkit.targets.ncnn.truths import write_truths

_WHOLE = (ir.DataType.INT64, ir.DataType.INT32)
"""Types of inputs that are places in a table."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output: the blob's name, its sizes, the outermost first, and whether its numbers are int32."""

    blob: str
    sizes: tuple[int, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Compiled:
    """The layers in their order, and the interface in the model's."""

    layers: tuple[Layer, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def compile_model(model: ir.Model) -> Compiled:
    """Lower float ONNX of fixed sizes, in place; ``Unsupported`` names the first node that cannot be expressed."""
    prepare(model)
    builder = Builder()
    lowering = Lowering(builder, NCNN, dict(model.graph.opset_imports))
    builder.reserve(str(value.name) for value in model.graph.outputs)
    inputs = []
    for value in model.graph.inputs:
        inputs.append(_given(builder, value))
        lowering.bind(value, inputs[-1])
    lowering.run(model.graph)
    known = {each.blob for each in inputs}
    outputs = []
    for value in model.graph.outputs:
        outputs.append(_delivered(builder, value, lowering.value(value), known))
    names = [each.blob for each in outputs]
    layers = with_splits(builder.layers, names)
    return Compiled(layers, tuple(Port(each.blob, each.sizes, each.whole) for each in inputs), tuple(outputs))


def prepare(model: ir.Model) -> None:
    """Bring ``model`` into the form that is lowered, in place."""
    widen_halves(model)
    make_stored_real(model)
    write_rounding(model)
    fold_constants(model)
    take_as_real(model)
    write_truths(model)
    for node in tuple(model.graph.all_nodes()):
        if node.op_type in RECURRENT and not node.domain:
            batch_inside(node)
        if node.op_type == "Softplus" and not node.domain:  # ncnn's own is infinite from 89 on
            write_softplus(node)
    opset = model.graph.opset_imports.get("", 1)
    if expand_functions(model, _is_handled(opset)):
        fold_constants(model)
        make_stored_real(model)


def _is_handled(opset: int) -> Callable[[ir.Node], bool]:
    def handled(node: ir.Node) -> bool:
        """Not where statistics of a normalisation are read, which its body makes."""
        more = node.op_type == "LayerNormalization" and any(
            value.uses() or value.is_graph_output() for value in node.outputs[1:]
        )
        return not more and NCNN.find(node.op_type, opset, node.domain) is not None

    return handled


def _given(builder: Builder, value: ir.Value) -> Tensor:
    try:
        if value.dtype not in (ir.DataType.FLOAT, *_WHOLE):
            kind = "an unknown type" if value.dtype is None else value.dtype.name.lower()
            raise Unsupported(f"{kind}: ncnn computes in float32 alone")
        return builder.input(str(value.name), shape_of(value), whole=value.dtype in _WHOLE)
    except Unsupported as refusal:
        raise refusal.located(f"input {value.name}", "", WAYS_OUT) from None


def _delivered(builder: Builder, value: ir.Value, tensor: Tensor, known: set[str]) -> Port:
    """An output under its own name, which the blob takes over unless it is one of the ``known`` ports."""
    builder.prefix = str(value.name)
    try:
        found = builder.computed(tensor)
    except Unsupported as refusal:
        raise refusal.located(f"output {value.name}", "", WAYS_OUT) from None
    name = plain_name(str(value.name))
    if found.blob in known:
        builder.layers.append(Layer("Noop", name, (found.blob,), (name,)))
    else:
        builder.rename(found.blob, name)
    known.add(name)
    return Port(name, found.sizes)
