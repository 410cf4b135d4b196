"""TensorFlow's StableHLO bridge, whose arguments and results stand in the order of no list that we know beforehand.

The bridge takes the ends of a signature from a hash map.  Each end carries its key in the module, and that decides
which is which; the sizes, which the bridge wants by position, follow the order in which its importer lists the inputs.
Imports TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableSequence, Sequence

import onnx_ir as ir
import tensorflow as tf

from convertkit.converters.stablehlo.importer import Names, Parsed
from convertkit.converters.tensorflow import compat
from convertkit.converters.tensorflow.loading import Loaded
from convertkit.errors import ToolError

_PLACE = re.compile(r'fused\["(\w+):", "([^"@]+)')
_BROKEN = re.compile(r"'[\w.]+' op (.+)")
_TYPES = re.compile(r" must be .* but got ")
"""The long list of types that an operand may have."""
_LISTS = "tf_type.variant<tensor"
_LONGEST = 300
_KEY = re.compile(r'tf_saved_model\.index_path = \["([^"]*)"\]')


def stablehlo_of(loaded: Loaded, shapes: Mapping[str, Sequence[int | str]]) -> bytes:
    """The signature as a StableHLO module for inputs of these fixed sizes; raises what the bridge raises."""
    text = ":".join(",".join(str(size) for size in shapes[name]) for name in _input_order(loaded))
    return compat.stablehlo_of(loaded.path, loaded.signature, loaded.tags, text)


def told(error: Exception) -> str:
    """What the bridge says in one line: the first node that it names, and what is wrong there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    if not (place := _PLACE.search(said)):
        return said[:_LONGEST]
    reason = found[1] if (found := _BROKEN.search(said)) else said.rpartition("): ")[2]
    if _LISTS in reason:
        reason = "it hands on a list of tensors, which StableHLO does not have"
    return f"{place[2]} ({place[1]}): {_TYPES.sub(' is ', reason)[:_LONGEST]}"


def onnx_of(module: bytes, loaded: Loaded, shapes: Mapping[str, Sequence[int | str]]) -> ir.Model:
    """The ONNX model of the bridge's module, inputs and outputs in the signature's order, each under its own name."""
    parsed = Parsed(module)
    found = parsed.interface()
    inputs, outputs = [port.name for port in found.inputs], [port.name for port in found.outputs]
    wanted = [[end.name for end in each] for each in (loaded.inputs, loaded.outputs)]
    if [sorted(inputs), sorted(outputs)] != [sorted(each) for each in wanted]:
        raise ToolError(f"the StableHLO bridge gives {inputs} → {outputs} for the signature {wanted[0]} → {wanted[1]}")
    for port in found.inputs:
        if not port.is_complex and list(port.shape) != list(shapes[port.name]):
            raise ToolError(f"the StableHLO bridge gives input {port.name!r} the shape {list(port.shape)}")
    parsed.compare_as_numbers()
    model = parsed.to_onnx(Names(inputs, outputs))
    _sort(model.graph.inputs, wanted[0])
    _sort(model.graph.outputs, wanted[1])
    return model


def _input_order(loaded: Loaded) -> list[str]:
    """The inputs' names in the order of the bridge's arguments, which is that of TensorFlow's importer."""
    names = [end.name for end in loaded.inputs]
    if len(names) < 2:
        return names
    # Neither lifts variables nor initialises them: the text has the graph without its weights.
    text = tf.mlir.experimental.convert_saved_model_v1(
        loaded.path, loaded.signature, ",".join(loaded.tags), False, False, True, False
    )
    exported = f'tf_saved_model.exported_names = ["{loaded.signature}"]'
    head = next((line for line in text.splitlines() if "func.func" in line and exported in line), "")
    found = _KEY.findall(head.partition(") -> ")[0])
    if sorted(found) != sorted(names):
        raise ToolError(f"TensorFlow's importer lists the inputs {found}, the signature has {names}")
    return found


def _sort(values: MutableSequence[ir.Value], names: Sequence[str]) -> None:
    held = {value.name: value for value in values}
    ordered = [held[name] for name in names]
    values.clear()
    values.extend(ordered)
