"""ONNX model in, ``.mlpackage`` out: passes, lowering, coremltools' serializer.  Only for a worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from coremltools import target as deployment
from coremltools.converters import mil
from coremltools.converters.mil.backend.mil.load import load as serialized
from coremltools.converters.mil.input_types import ClassifierConfig
from coremltools.converters.mil.mil import Function, Placeholder, Program, get_new_symbol, types
from coremltools.converters.mil.mil.program import StateTensorPlaceholder
from coremltools.converters.mil.mil.types.symbolic import any_symbolic

from convertkit.artifact import TensorSpec
from convertkit.errors import Unsupported
from convertkit.onnx.classical import without_classical
from convertkit.targets.coreml.builder import Builder, tensor_of
from convertkit.targets.coreml.handlers import COREML
from convertkit.targets.coreml.interface import describe, place_of_channels
from convertkit.targets.coreml.lowering import WAYS_OUT, Lowering, declared
from convertkit.targets.coreml.names import identifier
from convertkit.targets.coreml.options import TARGETS, Choices, Image
from convertkit.targets.coreml.package.write import write_package
from convertkit.targets.coreml.picks import lower_picks
from convertkit.targets.coreml.ranks import lower_ranks
from convertkit.targets.coreml.states import ROUNDED, carried_in
from convertkit.targets.coreml.suppressions import lower_suppressions
from convertkit.targets.coreml.tensor import Tensor, constant
from convertkit.targets.forms.constants import fold_constants
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.triangles import write_triangle
from convertkit.targets.forms.writing import write_each

LABEL = "classLabel"
"""What coremltools calls a classifier's answer; the probabilities are ``classLabel_probs``."""
_TYPES = {"float32": types.fp32, "float16": types.fp16, "int32": types.int32}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output as the package has it: its name, element type and sizes, a scalar as one element.

    ``perm`` is how its axes come from the model's, where they are others; ``kept`` marks state that the package keeps.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    perm: tuple[int, ...] = ()
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of the interface, in the source's order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    quantized: bool
    halves: bool
    notes: tuple[str, ...]


def compile_model(model: ir.Model, choices: Choices, folder: Path) -> Compiled:
    """Write ``folder`` as a package; ``Unsupported`` names the first node that cannot be expressed."""
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.all_nodes())
    prepare(model)
    halves = any(value.dtype == ir.DataType.FLOAT16 for node in model.graph for value in node.outputs)
    pictures = {image.name: image for image in choices.pictures}
    ports = tuple(_port(value, pictures.get(str(value.name)), choices.kept) for value in model.graph.inputs)
    if all(port.kept for port in ports):
        raise Unsupported("the model has no inputs, which Core ML wants at least one of", ways_out=WAYS_OUT)
    program, outputs, notes = _program(model, ports, choices)
    images = {identifier(name): image for name, image in pictures.items()}

    def serialize(weights: Path) -> Any:
        config = None
        if choices.labels:
            (answer,) = [port.name for port in outputs if not port.kept]
            config = ClassifierConfig(list(choices.labels), LABEL, predicted_probabilities_output=answer)
        settings = {"specification_version": choices.version, "classifier_config": config}
        written = serialized(program, str(weights), **settings)
        describe(written, {port.name: port.shape for port in ports}, choices, images)
        return written

    write_package(folder, serialize)
    if choices.kept and not halves:
        notes = (*notes, ROUNDED)
    return Compiled(ports, outputs, quantized, halves or bool(choices.kept), notes)


def prepare(model: ir.Model) -> None:
    """Bring ``model`` into the form that is lowered, in place."""
    without_classical(model)
    fold_constants(model)
    write_each(model, {"Trilu": write_triangle})
    opset = model.graph.opset_imports.get("", 1)
    if expand_functions(model, _is_handled(opset)):
        fold_constants(model)
    lower_suppressions(model)
    lower_picks(model)
    lower_ranks(model)


def _is_handled(opset: int) -> Callable[[ir.Node], bool]:
    return lambda node: COREML.find(node.op_type, opset, node.domain) is not None


def _port(value: ir.Value, image: Image | None, kept: Sequence[str]) -> Port:
    try:
        dtype, shape = declared(value)
    except Unsupported as refusal:
        raise refusal.located(f"input {value.name}", "", WAYS_OUT) from None
    name = identifier(str(value.name))
    if value.name in kept:
        return Port(name, "float16", shape or (1,), kept=True)
    if image is None:
        return Port(name, "int32" if dtype == "bool" else dtype, shape or (1,))
    perm = () if place_of_channels(image, TensorSpec(name, shape, dtype)) == 1 else (0, 3, 1, 2)
    return Port(name, "float32", tuple(shape[axis] for axis in perm) or shape, perm)


def _program(
    model: ir.Model, ports: Sequence[Port], choices: Choices
) -> tuple[Program, tuple[Port, ...], tuple[str, ...]]:
    symbols: dict[str, object] = {}
    program = Program()
    target = _target(choices.version)
    pictures = {image.name: image for image in choices.pictures}
    inputs = {port.name: _placeholder(port, symbols) for port in ports}
    if len(inputs) < len(ports):
        raise Unsupported("two inputs have names that are the same in Core ML, which knows letters and digits alone")
    with Function(inputs, opset_version=target) as function:
        builder = Builder(version=choices.version, palette=choices.palette)
        largest = {sizes.name: sizes.most for sizes in choices.sizes}
        lowering = Lowering(builder, COREML, dict(model.graph.opset_imports), largest)
        for value, port in zip(model.graph.inputs, ports, strict=True):
            builder.prefix = port.name
            entered = _read(builder, function, port)
            image = pictures.get(str(value.name))
            found = _entered(builder, value, entered) if image is None else _seen(builder, value, entered, port, image)
            lowering.bind(value, found)
        lowering.run(model.graph)
        names = {str(symbol): name for name, symbol in symbols.items()}
        told = _leave(builder, lowering, function, model.graph, choices, names)
    program.add_function("main", function)
    drop_unused(function)
    return program, told, lowering.ranges.notes


def _leave(
    b: Builder,
    lowering: Lowering,
    function: Function,
    graph: ir.Graph,
    choices: Choices,
    names: Mapping[str, str],
) -> tuple[Port, ...]:
    """State into its buffers, everything else out of ``function``; the outputs in the source's order."""
    taken, told, outputs = set(function.inputs), list[Port](), list[Any]()
    for value in graph.outputs:
        if state := carried_in(str(value.name), choices.kept):
            told.append(_written(b, lowering, function, value, identifier(state)))
            continue
        tensor = _left(b, lowering, value, taken)
        outputs.append(tensor.var)
        told.append(_told(tensor, names))
    if not outputs:
        raise Unsupported("no output besides the state, and Core ML wants at least one", ways_out=WAYS_OUT)
    if choices.labels and taken & {LABEL, f"{LABEL}_probs"}:
        raise Unsupported(f"an input or output is called {LABEL}, as the answer of a classifier is")
    function.set_outputs(outputs)
    return tuple(replace(port, dtype="float32") if choices.labels and not port.kept else port for port in told)


def _target(version: int) -> object:
    (name,) = [name for name, each in TARGETS.items() if each == version]
    return getattr(deployment, name)


def _placeholder(port: Port, symbols: dict[str, object]) -> Placeholder:
    kind = StateTensorPlaceholder if port.kept else Placeholder
    return kind(_sizes(port, symbols), _TYPES[port.dtype])


def _read(b: Builder, function: Function, port: Port) -> Tensor:
    """What enters by a port."""
    var = function.inputs[port.name]
    return b.op("read_state", input=Tensor("state", (), None, var)) if port.kept else tensor_of(var)


def _sizes(port: Port, symbols: dict[str, object]) -> list[object]:
    for size in port.shape:
        if isinstance(size, str) and size not in symbols:
            symbols[size] = get_new_symbol(size)
    return [size if isinstance(size, int) else symbols[size] for size in port.shape]


def _entered(b: Builder, value: ir.Value, tensor: Tensor) -> Tensor:
    """An input as the model means it: booleans, and scalars."""
    if value.dtype == ir.DataType.FLOAT and tensor.dtype == "float16":
        tensor = b.cast(tensor, "float32")
    if value.dtype == ir.DataType.BOOL:
        tensor = b.op("not_equal", x=tensor, y=b.full(0, tensor))
    return b.op("squeeze", x=tensor, axes=(0,)) if value.shape is not None and not len(value.shape) else tensor


def _seen(b: Builder, value: ir.Value, pixels: Tensor, port: Port, image: Image) -> Tensor:
    """An image as the model has it: scaled and moved in float32, then in the model's type and order of axes."""
    found = pixels
    for kind, numbers, neutral in (("mul", image.scale, 1.0), ("add", image.bias, 0.0)):
        if set(numbers) != {neutral}:
            each = np.array(numbers, np.float32)
            found = b.op(kind, x=found, y=constant(each.reshape(1, -1, 1, 1) if each.size > 1 else each.reshape(())))
    if value.dtype == ir.DataType.FLOAT16:
        found = b.cast(found, "float16")
    return b.transpose(found, [int(axis) for axis in np.argsort(port.perm)]) if port.perm else found


def _left(b: Builder, lowering: Lowering, value: ir.Value, taken: set[str]) -> Tensor:
    """An output: a variable of its own with exactly its name, in a type that Core ML hands out."""
    tensor = lowering.value(value)
    b.prefix = str(value.name)
    if tensor.array is None and tensor.dtype in ("bool", "int8", "uint8"):
        tensor = b.cast(tensor, "int32")
    if tensor.rank == 0:
        tensor = b.op("expand_dims", x=tensor, axes=(0,))
    name = identifier(str(value.name))
    if name in taken:
        raise Unsupported(f"output {value.name} has the name of an input or of another output, in letters and digits")
    taken.add(name)
    if tensor.dtype == "bool":
        tensor = b.cast(tensor, "int32")
    return tensor_of(mil.Builder.identity(x=b.var(tensor), name=name))


def _written(b: Builder, lowering: Lowering, function: Function, value: ir.Value, state: str) -> Port:
    """The next value of a state, in its buffer when everything else has read the one before."""
    b.prefix = str(value.name)
    tensor = b.cast(lowering.value(value), "float16")
    if tensor.rank == 0:
        tensor = b.op("expand_dims", x=tensor, axes=(0,))
    buffer = Tensor("state", (), None, function.inputs[state])
    b.op("coreml_update_state", state=buffer, value=Tensor(tensor.dtype, tensor.shape, None, b.var(tensor)))
    return Port(state, tensor.dtype, tensor.sizes, kept=True)


def drop_unused(function: Function) -> None:
    """Remove operations whose results nobody reads."""
    kept = {id(var) for var in function.outputs}
    for operation in reversed(list(function.operations)):
        if operation.op_type == "coreml_update_state" or any(id(var) in kept for var in operation.outputs):
            for value in operation.inputs.values():
                kept.update(id(each) for each in (value if isinstance(value, list | tuple) else [value]))
        else:
            operation.remove_from_block()


def _told(tensor: Tensor, names: Mapping[str, str]) -> Port:
    shape = tuple(
        names.get(str(size), f"{tensor.var.name}_{axis}") if any_symbolic([size]) else int(size)
        for axis, size in enumerate(tensor.var.shape)
    )
    return Port(tensor.var.name, tensor.dtype, shape)
