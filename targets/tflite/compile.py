"""ONNX model in, TFLite program out: passes, then lowering."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from convertkit.artifact import Quantization, TensorSpec
from convertkit.onnx.classical import without_classical
from convertkit.onnx.halves import widen_bfloats, widen_halves
from convertkit.onnx.specs import interface
from convertkit.profile import RECURRENT
from convertkit.targets.forms.constants import fix_inputs, fold_constants
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.image_norms import recognise_group_norms
from convertkit.targets.forms.quantized_lstm import expand_quantized_lstms
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.costs.loops import loops
from convertkit.targets.tflite.costs.tables import tables
from convertkit.targets.tflite.devices import decided_for
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.halves import has_halves, store_halves
from convertkit.targets.tflite.handlers import TFLITE
from convertkit.targets.tflite.integers_only import refuse_floats
from convertkit.targets.tflite.lowering import Lowering
from convertkit.targets.tflite.metadata import BUFFER, Metadata, append_labels, packed
from convertkit.targets.tflite.moved_memory import read_behind_factors
from convertkit.targets.tflite.origins import folded
from convertkit.targets.tflite.passes import InterfaceChange, Options, prepare
from convertkit.targets.tflite.reshaped_again import notice_new_sizes
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor
from convertkit.targets.tflite.transposes import reasons, remaining
from convertkit.targets.tflite.writer import Signature, write_model

METADATA = "convertkit"
"""Name of our metadata buffer: JSON with the interface's layouts and every tensor's origin."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program with its interface as the artifact has it."""

    program: Program
    signature: Signature
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    transposes: tuple[Mapping[str, object], ...]
    """What is left of them, with the reason of each, JSON-able."""
    from_halves: bool = False
    """Whether the source rounds to float16 between its operators, which the kernels do not."""
    from_integers: bool = False
    """Whether the source rounds to integers, with kernels of integers or with float ones that round like it."""

    def write(self, path: Path, metadata: Metadata | None = None) -> None:
        """Write the model file, with what the user says about the model."""
        notes = {METADATA: json.dumps(self._description(), separators=(",", ":")).encode()}
        if metadata is not None and metadata.says_something:
            notes[BUFFER] = packed(metadata, tuple(self.signature.inputs), tuple(self.signature.outputs))
        write_model(self.program, self.signature, path, metadata=notes, description="convertkit")
        if metadata is not None and metadata.labels:
            append_labels(path, metadata.labels)

    def _description(self) -> dict[str, object]:
        named = self.program.names
        origins = (
            (
                operation.origin if result in named else ""
                for operation in each.operations
                for result in operation.outputs
            )
            for each in self.program.subgraphs
        )
        return {
            "inputs": {spec.name: {"perm": list(spec.perm)} for spec in self.inputs if spec.perm},
            "outputs": {spec.name: {"perm": list(spec.perm)} for spec in self.outputs if spec.perm},
            **folded(origins),
        }


def compile_model(model: ir.Model, options: Options, fixed: Mapping[str, int] | None = None) -> Compiled:
    """Compile canonical ONNX (float or QDQ); ``Unsupported`` names the first node that cannot be expressed.

    ``fixed`` are integer inputs that by the user's word have one value only: the model is compiled
    for it, and keeps the input.
    """
    specs_in, specs_out = interface(model)
    fix_inputs(model, fixed or {})
    from_integers = any(node.op_type == "QuantizeLinear" for node in model.graph.all_nodes())
    without_classical(model)
    keeps_halves = has_halves(model)
    from_halves = widen_halves(model)
    widen_bfloats(model)
    expand_quantized_lstms(model)
    fold_constants(model)
    recognise_group_norms(model)  # before functions: an instance norm is one
    if expand_functions(model, _is_handled(model.graph.opset_imports.get("", 1))):
        fold_constants(model)  # bodies ask for sizes, too
    interface_change = prepare(model, options)
    why = reasons(model.graph)
    program = Program(
        portable=options.full_integer,
        kernel_costs=tables(decided_for(options.device, options.precision), options.measured).kernel_costs,
        loops=loops(options.device),
        recurrences=sum(map(_directions, model.graph.all_nodes())),
    )
    opsets: Mapping[str, int] = dict(model.graph.opset_imports)
    lowering = Lowering(program, TFLITE, opsets)
    inputs, outputs = lowering.main(model.graph)
    for subgraph in program.subgraphs:
        subgraph.drop_unused()
    notice_new_sizes(program)
    read_behind_factors(program)
    if keeps_halves:
        store_halves(program)
    if options.full_integer:
        refuse_floats(program)
    signature = Signature(
        {spec.name: tensor for spec, tensor in zip(specs_in, inputs, strict=True)},
        {spec.name: tensor for spec, tensor in zip(specs_out, outputs, strict=True)},
    )
    return Compiled(
        program,
        signature,
        _specs(specs_in, inputs, interface_change),
        _specs(specs_out, outputs, interface_change),
        tuple(remaining(program, why)),
        from_halves,
        from_integers,
    )


def _specs(before: Sequence[TensorSpec], tensors: Sequence[Tensor], change: InterfaceChange) -> tuple[TensorSpec, ...]:
    pairs = zip(before, tensors, strict=True)
    return tuple(_spec(spec, tensor, change.perms.get(spec.name, ())) for spec, tensor in pairs)


def _directions(node: ir.Node) -> int:
    """Of a recurrent layer."""
    if node.domain or node.op_type not in RECURRENT:
        return 0
    return 2 if node.attributes.get_string("direction", "forward") == "bidirectional" else 1


def _is_handled(opset: int) -> Callable[[ir.Node], bool]:
    def handled(node: ir.Node) -> bool:
        spatial = TFLITE.find(node.op_type, 1, NHWC) if node.domain == "" else None
        return (spatial or TFLITE.find(node.op_type, opset, node.domain)) is not None

    return handled


def _spec(source: TensorSpec, tensor: Tensor, perm: tuple[int, ...]) -> TensorSpec:
    stated = source.shape or [f"{source.name}_{axis}" for axis in range(tensor.rank)]  # a rank that nobody stated
    names = [stated[axis] for axis in perm or range(len(stated))]
    shape = tuple(name if size == DYNAMIC else size for name, size in zip(names, tensor.shape, strict=True))
    # A model whose own interface is integer keeps speaking integers; only --io-dtype puts them in place of floats.
    params = tensor.quantization if tensor.dtype != source.dtype else None
    is_plain = params is None or not source.dtype.startswith("float")  # integers that the source has too
    quantization = None if is_plain or params is None else Quantization(params.scale[0], params.zero_point[0])
    return replace(source, shape=shape, dtype=tensor.dtype, perm=perm, quantization=quantization)
