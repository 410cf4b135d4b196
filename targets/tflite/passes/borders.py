"""An integer interface: Quantize at inputs and Dequantize at outputs move out of the model.

before:  x: float → Quantize → … → Dequantize → y: float
after:   x: int8 → … → y: int8          (for uint8, a Quantize from and to bytes without sign)
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.edit import bypass
from convertkit.targets.forms.edits import typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.part import Part
from convertkit.targets.tflite.tensor import QuantParams

_HALF = 128
_KINDS = {"int8": ir.DataType.INT8, "uint8": ir.DataType.UINT8, "int16": ir.DataType.INT16}

_WAYS_OUT = "\n  try   --full-integer, which keeps nothing in float or names what has to be\n  try   --io-dtype float32"


def integer_interface(part: Part, io_dtype: str) -> None:
    """Give every float input and output of a quantized graph the integers behind it, in place."""
    if io_dtype == "float32":
        return
    wanted = _KINDS[io_dtype]
    for value in list(part.graph.inputs):
        if value.dtype == ir.DataType.FLOAT:
            _input(part.graph, value, wanted)
    for place, value in enumerate(list(part.graph.outputs)):
        if value.dtype == ir.DataType.FLOAT:
            _output(part.graph, place, value, wanted)


def _input(graph: ir.Graph, value: ir.Value, wanted: ir.DataType) -> None:
    users = [use.node for use in value.uses()]
    params = {quantization_of(user.outputs[0]) for user in users if user.domain == OWN and user.op_type == "Quantize"}
    if len(params) != 1 or any(user.domain != OWN or user.op_type != "Quantize" for user in users):
        raise Unsupported(
            f"--io-dtype: input {value.name} is used in float; expected that it is quantized first{_WAYS_OUT}"
        )
    inner = users[0].outputs[0]
    own, kind = quantization_of(inner), inner.dtype
    assert own is not None
    typed(value, value.shape, wanted)
    set_quantization(value, _shifted(own, kind, wanted, str(value.name)))
    if kind == wanted:
        for user in users:
            bypass(user, value)


def _output(graph: ir.Graph, place: int, value: ir.Value, wanted: ir.DataType) -> None:
    node = value.producer()
    inner = None if node is None else node.inputs[0]
    if node is None or inner is None or node.domain != OWN or node.op_type != "Dequantize":
        raise Unsupported(
            f"--io-dtype: output {value.name} is computed in float; expected that it is quantized last{_WAYS_OUT}"
        )
    own, kind = quantization_of(inner), inner.dtype
    assert own is not None
    params = _shifted(own, kind, wanted, str(value.name))
    made = ir.node("Quantize", [inner], {"to": wanted.numpy().name}, domain=OWN, name=f"{node.name}/integers")
    result = typed(made.outputs[0], value.shape, wanted)
    set_quantization(result, params)
    set_source(made, node)
    graph.insert_after(node, made)
    result.name, value.name = value.name, f"{value.name}/float"
    graph.outputs[place] = result
    if not value.uses():
        graph.remove(node, safe=True)


def _shifted(params: QuantParams, kind: ir.DataType | None, wanted: ir.DataType, name: str) -> QuantParams:
    """The parameters of the same reals as another integer type of the same width."""
    if kind == wanted:
        return params
    if (kind, wanted) != (ir.DataType.INT8, ir.DataType.UINT8):
        raise Unsupported(f"--io-dtype {wanted.numpy().name}: {name} is {kind} inside")
    return QuantParams(params.scale, tuple(point + _HALF for point in params.zero_point), params.axis)
