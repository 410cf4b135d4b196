"""A model that computes in bfloat16 as one that ONNX Runtime's CPU executes, which has no kernels for such products.

Each operator reads the same bfloat16 numbers, computes in float32, and its result is rounded to bfloat16: to the
nearest, ties to even.  That is what hardware with float32 accumulators computes, but for the order of its sums and for
roundings between operators that it fuses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.artifact import Array
from convertkit.onnx.casts import cast_input, cast_node, cast_output
from convertkit.onnx.halves import TYPE_ATTRIBUTES
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model

_SHORT, _WHOLE = ir.DataType.BFLOAT16, ir.DataType.FLOAT
_RUN = frozenset({"Cast", "CastLike", "BitCast", "Constant"})
"""What ONNX Runtime runs, or its kernels for moved bytes do."""


@dataclass(frozen=True, slots=True)
class Bfloats:
    """A session of such a model; ``short`` names the outputs whose numbers are handed over as bfloat16."""

    session: ort.InferenceSession
    short: Collection[str]

    def run(self, names: Sequence[str], feed: Mapping[str, Array], options: ort.RunOptions | None = None) -> list[Any]:
        """As ``InferenceSession.run``, whose arrays cannot be of bfloat16."""
        given = {name: _wide(value) for name, value in feed.items()}
        values = self.session.run(names, given, options)
        pairs = zip(names, values, strict=True)
        return [value.astype(ml_dtypes.bfloat16) if name in self.short else value for name, value in pairs]


def _wide(value: Array) -> Array:
    return value.astype(np.float32) if value.dtype == ml_dtypes.bfloat16 else value


def session(
    path: Path, options: ort.SessionOptions, unread: Sequence[str] = (), *, rounds: bool = True
) -> Bfloats | None:
    """For the file at ``path`` with the inner values ``unread`` as further outputs; None where nothing is bfloat16.

    ``rounds`` as in :func:`in_float32`.  Raises what ONNX Runtime raises.
    """
    model = load_own(path)
    if not _mentions(model):
        return None
    inner = {str(value.name): value for node in model.graph for value in node.outputs}
    model.graph.outputs.extend(inner[name] for name in unread)
    _infer(model)
    short = frozenset(str(value.name) for value in model.graph.outputs if _is_short(value))
    if not in_float32(model, rounds=rounds):
        return None
    with tempfile.TemporaryDirectory(prefix="convertkit-") as folder:  # of models beyond 2 GB there are no bytes
        made = save_model(model, Path(folder) / path.name, "in float32")
        return Bfloats(ort.InferenceSession(str(made.path), options, ["CPUExecutionProvider"]), short)


def executable(model: ir.Model) -> ir.Model:
    """``model``, or where it computes in bfloat16 a copy that does so in float32 (:func:`in_float32`)."""
    if not _mentions(model):
        return model
    copy = model.clone()
    in_float32(copy)
    return copy


def in_float32(model: ir.Model, *, rounds: bool = True) -> bool:
    """Put Casts around every operator of bfloat16, in place; False where there are none.

    Values keep their names and their type; inputs and outputs of the model become float32.  Without ``rounds``
    operators read each other's results as they are, which tells what the roundings change.
    """
    _infer(model)
    exact = dict[ir.Value, ir.Value]()
    computed = False
    for node in list(model.graph.all_nodes()):
        if _computes(node):
            computed = True
            _compute_in_float32(node, exact)
        elif not rounds and node.op_type == "Cast":
            _pass_on(node, exact)
        if rounds:
            exact.clear()
    for value in [value for value in model.graph.inputs if _is_short(value)]:
        cast_input(model.graph, value, _WHOLE, _SHORT)
    for place, value in enumerate(tuple(model.graph.outputs)):
        if _is_short(value):
            cast_output(model.graph, place, value, _WHOLE)
    return computed


def _mentions(model: ir.Model) -> bool:
    """Whether anything is or becomes bfloat16, as far as that is told without inference."""
    made = (value for node in model.graph.all_nodes() for value in node.outputs)
    if any(map(_is_short, (*model.graph.inputs, *model.graph.initializers.values(), *made))):
        return True
    types = (each for node in model.graph.all_nodes() if (each := node.attributes.get("to")) is not None)
    return any(each.type == ir.AttributeType.INT and each.as_int() == _SHORT for each in types)  # Cast-1 has a word


def _infer(model: ir.Model) -> None:
    if any(value.dtype is None for node in model.graph.all_nodes() for value in node.outputs):
        ShapeInferencePass()(model)


def _is_short(value: ir.Value | None) -> bool:
    return value is not None and isinstance(value.type, ir.TensorType) and value.dtype == _SHORT


def _computes(node: ir.Node) -> bool:
    """Whether a kernel of bfloat16 would compute it; bodies are looked at node by node."""
    if node.op_type in _RUN and not node.domain:
        return False
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(attribute.type in kinds for attribute in node.attributes.values()):
        return False
    return any(map(_is_short, (*node.inputs, *node.outputs)))


def _pass_on(cast: ir.Node, exact: dict[ir.Value, ir.Value]) -> None:
    """What reads the result of ``cast`` is to read what it rounds, or what was not rounded before."""
    operand, result = cast.inputs[0], cast.outputs[0]
    if operand is None:
        return
    if operand in exact:
        cast.replace_input_with(0, exact[operand])
    elif result.dtype == _SHORT and operand.dtype == _WHOLE:
        exact[result] = operand


def _compute_in_float32(node: ir.Node, exact: dict[ir.Value, ir.Value]) -> None:
    """Before ``node``, its bfloat16 operands become float32: those in ``exact`` were; its own results join these."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    for place, value in enumerate(node.inputs):
        if value in exact:
            node.replace_input_with(place, exact[value])
        elif value is not None and _is_short(value):
            wide = cast_node(value, _WHOLE, f"{value.name}/{node.name}/{place}")
            graph.insert_before(node, wide)
            node.replace_input_with(place, wide.outputs[0])
    for name, attribute in list(node.attributes.items()):
        if name in TYPE_ATTRIBUTES and attribute.type == ir.AttributeType.INT and attribute.value == _SHORT:
            node.attributes[name] = ir.AttrInt64(name, int(_WHOLE))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == _SHORT:
            node.attributes[name] = ir.AttrTensor(name, ir.tensor(attribute.as_tensor().numpy().astype(np.float32)))
    for value in filter(_is_short, node.outputs):
        exact[_round(node, value)] = value


def _round(node: ir.Node, value: ir.Value) -> ir.Value:
    """The float32 result of ``node`` down to bfloat16; the rounded one takes over its name and its readers."""
    graph, name = node.graph, str(value.name)
    assert isinstance(graph, ir.Graph)
    value.type = ir.TensorType(_WHOLE)  # of a clone: its values share their types with those of the model
    rounded = cast_node(value, _SHORT, f"{name}/rounded")
    ir.convenience.replace_all_uses_with(value, rounded.outputs[0], replace_graph_outputs=True)
    rounded.replace_input_with(0, value)
    value.name, rounded.outputs[0].name = f"{name}/float32", name
    graph.insert_after(node, rounded)
    return rounded.outputs[0]
