"""Canonical ONNX: what every pass and target may rely on.

Opset 18 to 26 of the default domain, an IR version that ONNX Runtime loads, functions inlined,
shapes inferred, constants folded, initializers no inputs, every node and value named; names and
order of inputs and outputs kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common
from onnx import defs

from convertkit.errors import Unsupported
from convertkit.formulas import names_in, sizes_of_dims
from convertkit.model_flags import check_dims
from convertkit.onnx.block_sums import sum_in_blocks
from convertkit.onnx.computed_constants import fold_computed_constants
from convertkit.onnx.contrib import decompose_contrib, name_domains
from convertkit.onnx.declared import correct_declared
from convertkit.onnx.flags import choose_flags
from convertkit.onnx.grown_lists import write_out_grown_lists
from convertkit.onnx.inlining import at_one_opset
from convertkit.onnx.integer_products import multiply_integers
from convertkit.onnx.invented_sizes import forget_invented_sizes, name_invented_sizes
from convertkit.onnx.lacking_kernels import write_out_lacking
from convertkit.onnx.ml import decompose_ml
from convertkit.onnx.newer import to_older
from convertkit.onnx.older import SEVEN, numbers_as_data, sampled_as_before, state_meanings, to_seven
from convertkit.onnx.pool_pads import trim_pads
from convertkit.onnx.recognise import recognise_operators
from convertkit.onnx.repeated_ones import squeeze_repeated_ones
from convertkit.onnx.rounding_up import round_down
from convertkit.onnx.scalars import make_scalars
from convertkit.onnx.sequences import restore_sequences
from convertkit.onnx.sigmoids import write_out_sigmoids
from convertkit.onnx.size_readers import ask_behind
from convertkit.onnx.static_sequences import write_out_sequences
from convertkit.onnx.steps_first import put_steps_first
from convertkit.onnx.thresholds import compare_arguments
from convertkit.onnx.trained_norms import write_out_trained_norms
from convertkit.onnx.widened import ask_unwidened

MIN_OPSET, MAX_OPSET = 18, 26
_COORDINATES_SINCE, _LAST_AXES_SINCE = 11, 13
"""Opsets since which Resize states its coordinates, numbers are inputs, and Softmax and others take one axis."""
MIN_IR_VERSION, MAX_IR_VERSION = 8, 13
_QUANTIZED = frozenset({"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear"})
_REARRANGES = frozenset({"Slice", "Split", "Concat", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose"})
_LARGE_ENTRIES = 64
"""Below this a constant may be in the file twice."""


def canonicalize(model: ir.Model, max_opset: int = MAX_OPSET) -> ir.Model:
    """The canonical form of ``model``; its inputs' and outputs' names and order stay.

    ``max_opset`` above 26 keeps newer models as they are, for targets that need no ONNX Runtime.

    Raises ``Unsupported`` where an operator of an older or newer opset has no exact counterpart.
    """
    inputs = [value.name for value in model.graph.inputs if value.name not in model.graph.initializers]
    outputs = [value.name for value in model.graph.outputs]
    if same := sorted({str(name) for name in outputs} & {str(name) for name in inputs}):
        raise Unsupported(f"output {same[0]} is the input of that name itself; give it another one through Identity")
    common.RemoveInitializersFromInputsPass()(model)
    forget_invented_sizes(model, free_dims(model))
    # Before IR version 4 an initializer had to be an input too, and the opset converter insists on it.
    model.ir_version = min(max(model.ir_version, MIN_IR_VERSION), MAX_IR_VERSION)
    model.graph.opset_imports.setdefault("", MIN_OPSET)  # a file of other domains alone need not have it
    at_one_opset(model)
    if model.functions:
        common.InlinePass()(model)  # ONNX's version converter drops them
    name_domains(model)
    model = _at_supported_opset(model, max_opset)
    put_steps_first(model)
    decompose_contrib(model)
    decompose_ml(model)
    write_out_trained_norms(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    write_out_sequences(model)
    make_scalars(model)
    while round_down(model):  # of sizes that the file tells
        pass
    squeeze_repeated_ones(model)
    simplify(model)
    while squeeze_repeated_ones(model):  # of operands whose sizes had to be inferred first
        simplify(model)
    while round_down(model):
        simplify(model)
    correct_declared(model)
    written = write_out_sequences(model)  # of places that had to be folded first
    if write_out_grown_lists(model) or written:
        simplify(model)
    make_scalars(model)
    ask_unwidened(model)
    recognise_operators(model)
    compare_arguments(model)
    write_out_sigmoids(model)
    write_out_lacking(model)
    drop_plain_dilations(model)
    trim_pads(model)
    multiply_integers(model)
    choose_flags(model)
    sum_in_blocks(model)
    common.NameFixPass()(model)
    name_invented_sizes(model, free_dims(model))
    assert [value.name for value in model.graph.inputs] == inputs, "canonicalize keeps the inputs"
    assert [value.name for value in model.graph.outputs] == outputs, "canonicalize keeps the outputs"
    return model


def drop_plain_dilations(model: ir.Model) -> None:
    """Dilations of 1 of an AveragePool, in place: ONNX Runtime 1.31 fuses it to an operator that knows no dilations."""
    for node in model.graph.all_nodes():
        is_plain = all(each == 1 for each in node.attributes.get_ints("dilations", ()))
        if node.op_type == "AveragePool" and not node.domain and is_plain:
            node.attributes.pop("dilations", None)


def simplify(model: ir.Model) -> None:
    """Inline functions, infer shapes and fold constants in place; QDQ pairs stay as they are."""
    from convertkit.onnx.optimizer import optimize_ir  # imports that reading and running models does not need

    _at_equal_ranks(model)
    ask_behind(model)
    optimize_ir(model, should_fold=_should_fold)
    _keep_constants(model.graph)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    if fold_computed_constants(model):
        common.RemoveUnusedNodesPass()(model)
    common.DeduplicateInitializersPass()(model)
    common.RemoveUnusedNodesPass()(model)
    if not _are_all_known(model.graph):
        common.ShapeInferencePass()(model)
    restore_sequences(model)


def _are_all_known(graph: ir.Graph) -> bool:
    """Whether the optimizer, which infers shapes node by node, has found all types and sizes.

    A dynamic size counts that an input has, too; any other may be one of which a look at the whole graph tells more.
    """
    free = {str(dim.value) for value in graph.inputs for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)}
    return all(_is_known(value, free) for node in graph.all_nodes() for value in node.outputs if value.name)


def _is_known(value: ir.Value, free: set[str]) -> bool:
    if value.dtype is None or value.shape is None:
        return False
    return all(isinstance(dim, int) or str(dim.value) in free for dim in value.shape)


def _keep_constants(graph: ir.Graph) -> None:
    """Store again what the optimizer loses: weights that are outputs, too, and bounds of Clips that it has joined."""
    used = [value for node in graph.all_nodes() for value in node.inputs if value is not None]
    for value in (*graph.outputs, *used):
        is_stored = value.is_initializer() or value.is_graph_input() or value.producer() is not None
        if not is_stored and value.const_value is not None and value.name not in graph.initializers:
            graph.register_initializer(value)


def _at_equal_ranks(model: ir.Model) -> None:
    """Unsqueeze what Max and Min broadcast: the optimizer makes Clip of such pairs and forgets the result's rank."""
    for node in [node for node in model.graph.all_nodes() if node.op_type in ("Max", "Min") and not node.domain]:
        shapes = [value.shape for value in node.inputs if value is not None]
        ranks = [len(shape) for shape in shapes if shape is not None]
        if len(ranks) < len(node.inputs) or node.graph is None:
            continue
        for index, rank in enumerate(ranks):
            if rank == max(ranks):
                continue
            axes = ir.node("Constant", [], {"value_ints": list(range(max(ranks) - rank))})
            grown = ir.node("Unsqueeze", [node.inputs[index], axes.outputs[0]])
            node.graph.insert_before(node, (axes, grown))
            node.replace_input_with(index, grown.outputs[0])


def name_free_dims(model: ir.Model) -> None:
    """Give every unnamed dynamic dimension of an input the name that ``specs.interface`` reports, in place."""
    for value in model.graph.inputs:
        if value.shape is not None:
            dims = enumerate(tuple(value.shape))
            value.shape = ir.Shape(
                [
                    f"{value.name}_{axis}" if isinstance(d, ir.SymbolicDim) and not d.value else _named(d)
                    for axis, d in dims
                ]
            )


def _named(dim: object) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value if isinstance(dim, ir.SymbolicDim) else None


def freeze_dims(model: ir.Model, sizes: dict[str, int]) -> None:
    """Give named dynamic dimensions a fixed size, in place; ``UsageError`` for a name that the model lacks.

    A name may be one of a formula: ``H`` of ``16*H``.
    """
    check_dims(sizes, free_dims(model))
    values = (*model.graph.inputs, *model.graph.outputs, *_inner_values(model))
    sizes = sizes_of_dims(sizes, _names_of(values))
    for value in values:
        if value.shape is not None:
            dims: tuple[object, ...] = tuple(value.shape)
            value.shape = ir.Shape([_frozen(dim, sizes) for dim in dims])


def freeze_dims_left(model: ir.Model, sizes: Mapping[str, int]) -> None:
    """The same for a model that may have been read at some of these sizes already."""
    left = free_dims(model)
    parts = left | {part for dim in left for part in names_in(dim)}
    freeze_dims(model, {name: size for name, size in sizes.items() if name in parts})


def free_dims(model: ir.Model) -> frozenset[str]:
    """The names of the inputs' dynamic dimensions, which all get one here."""
    name_free_dims(model)
    return _names_of(model.graph.inputs)


def _names_of(values: Iterable[ir.Value]) -> frozenset[str]:
    dims = (_named(dim) for value in values for dim in value.shape or ())
    return frozenset(dim for dim in dims if isinstance(dim, str))


def _inner_values(model: ir.Model) -> list[ir.Value]:
    return [value for node in model.graph.all_nodes() for value in node.outputs]


def _frozen(dim: object, sizes: dict[str, int]) -> int | str | None:
    if isinstance(dim, int):
        return dim
    name = _named(dim)
    return sizes.get(name, name) if isinstance(name, str) else None


def _should_fold(node: ir.Node) -> bool | None:
    # Folding DequantizeLinear of a constant weight would turn an integer model back into a float one.
    if node.op_type in _QUANTIZED:
        return False
    # Exporters slice and join the gates of recurrent weights, which are too large for the optimizer's own limit.
    return True if _rearranges_constants(node) and _replaces_its_operands(node) else None


def _rearranges_constants(node: ir.Node) -> bool:
    operands = [value for value in node.inputs if value is not None]
    known = all(value.const_value is not None and not value.is_graph_input() for value in operands)
    return not node.domain and node.op_type in _REARRANGES and known


def _replaces_its_operands(node: ir.Node) -> bool:
    """Whether nothing else needs the operands, so that results take their place in the file."""
    for operand in node.inputs:
        if operand is None or operand.const_value is None or operand.const_value.size < _LARGE_ENTRIES:
            continue
        readers = {use.node for use in operand.uses()}
        if operand.is_graph_output() or not all(map(_rearranges_constants, readers)):
            return False
        if len(readers) > 1 and any(reader.op_type not in ("Slice", "Split") for reader in readers):
            return False
    return True


def _at_supported_opset(model: ir.Model, max_opset: int) -> ir.Model:
    opset = model.graph.opset_imports.get("", MIN_OPSET)
    if MIN_OPSET <= opset <= max_opset:
        return model
    if opset < 9 and any(node.op_type == "Scan" and node.domain == "" for node in model.graph.all_nodes()):
        raise Unsupported(
            "Scan of opset 8 runs over a batch axis, which no later opset has; export with opset 9 or later"
        )
    if opset > max_opset:
        to_older(model, max_opset)
        return model
    target = MIN_OPSET if opset < MIN_OPSET else max_opset
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    if opset < SEVEN:
        to_seven(model)
    _refuse_taken_back(model, max(opset, SEVEN))
    if opset < _LAST_AXES_SINCE:
        state_meanings(model)
    large = detached(model)
    try:
        converted = onnx.version_converter.convert_version(ir.to_proto(model), target)
    except (onnx.version_converter.ConvertError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1][:200]
        raise Unsupported(f"the model's opset {opset} cannot be brought to {target} exactly: {reason}") from error
    result: ir.Model = ir.from_proto(converted)
    reattach(result, large)
    if opset < _COORDINATES_SINCE:
        sampled_as_before(result)
        numbers_as_data(result)
    return result


def _refuse_taken_back(model: ir.Model, opset: int) -> None:
    """Name what ONNX does not have at ``opset``: its converter dies of that without a name."""
    for node in model.graph.all_nodes():
        if not node.domain and not defs.has(node.op_type, opset, ""):
            title = f"{node.name or node.op_type} ({node.op_type}-{opset})"
            raise Unsupported(f"ONNX has no such operator at opset {opset}", subject=title)


_LARGE_BYTES = 1 << 16


def detached(model: ir.Model) -> dict[str, ir.Value]:
    """Large initializers turned into plain inputs, so that the converter does not copy weights."""
    large = {
        name: value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and value.const_value.nbytes > _LARGE_BYTES
    }
    for name, value in model.graph.initializers.items():
        if name not in large and isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = ir.tensor(value.const_value.numpy(), name=name)  # a protobuf does not say where it lies
    for name, value in large.items():
        del model.graph.initializers[name]
        if value.shape is None or value.dtype is None:
            assert value.const_value is not None
            value.shape, value.type = ir.Shape(value.const_value.numpy().shape), ir.TensorType(value.const_value.dtype)
        model.graph.inputs.append(value)
    return large


def reattach(model: ir.Model, large: dict[str, ir.Value]) -> None:
    """Put back what :func:`detached` took from the model that this one was made of."""
    for value in [value for value in model.graph.inputs if value.name in large]:
        assert value.name is not None
        model.graph.inputs.remove(value)
        value.const_value = large[value.name].const_value
        model.graph.register_initializer(value)
