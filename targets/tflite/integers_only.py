"""``--full-integer``: every operator of the file computes in integers, or the export is refused."""

from __future__ import annotations

from convertkit.errors import Unsupported
from convertkit.targets.tflite.graph import Operation, Program
from convertkit.targets.tflite.tensor import Tensor

_FLOATS = ("float16", "float32", "float64", "bfloat16")
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")
WAYS_OUT = ("--int8 without --full-integer", "--target onnxruntime")


def refuse_floats(program: Program) -> None:
    """Raise ``Unsupported`` for the first operator that reads or makes floats.

    Only the interface may be float: a QUANTIZE of an input, a DEQUANTIZE that makes an output.
    """
    operations = [operation for subgraph in program.subgraphs for operation in subgraph.operations]
    found = [each for each in operations if _floats(each) and not _is_interface(each, program)]
    found.sort(key=lambda operation: operation.code in _CONVERSIONS)  # they only surround what computes
    for operation in found[:1]:
        first = _floats(operation)[0]
        node, _, where = (operation.origin or operation.outputs[0].name).partition(" (")
        raise Unsupported(
            f"computes in {first.dtype}, as {program.name_of(first)} is not quantized; --full-integer allows no float",
            subject=f"{node} ({operation.code})",
            location=where.removesuffix(")"),
            ways_out=WAYS_OUT,
        )


def _floats(operation: Operation) -> list[Tensor]:
    tensors = (*operation.inputs, *operation.outputs)
    return [tensor for tensor in tensors if tensor is not None and tensor.dtype in _FLOATS]


def _is_interface(operation: Operation, program: Program) -> bool:
    main = program.subgraphs[0]
    if operation.code == "QUANTIZE":
        return operation.inputs[0] in main.inputs
    return operation.code == "DEQUANTIZE" and operation.outputs[0] in main.outputs
