"""StableHLO → ONNX: the one function that everything else calls.

Imports jaxlib's MLIR bindings, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.accumulators import drop_accumulators
from convertkit.converters.stablehlo.assertions import Assertions, is_assertion
from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.inlining import inline_calls
from convertkit.converters.stablehlo.interpreter import Interpreter
from convertkit.converters.stablehlo.mlir import dtype_of, element, is_complex, shape_of
from convertkit.converters.stablehlo.module import (
    PORTABLE,
    compare_as_numbers,
    context,
    functions,
    portable,
    prepare,
    read_module,
    run_pass,
    walk,
)
from convertkit.converters.stablehlo.naming import apart_from, argument_names, result_names
from convertkit.converters.stablehlo.ops import HANDLERS
from convertkit.converters.stablehlo.ops.control import LOOP
from convertkit.converters.stablehlo.ops.fourier import restate_axes
from convertkit.converters.stablehlo.quantization import QUANTIZED_WAY_OUT, quantization_of
from convertkit.converters.stablehlo.recognise import recognise
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import Complex, Operand, Tensor
from convertkit.errors import SourceError, Unsupported

IR_VERSION = 10
_IR_VERSION_OF_OPSET_26 = 13
_HALVES = {"bf16": "bfloat16", "f16": "float16"}
_STORING = frozenset(
    f"stablehlo.{name}" for name in ("constant", "reshape", "transpose", "broadcast_in_dim", "slice", "concatenate")
)
_EXPANSION = (
    "func.func(stablehlo-legalize-quant-to-math)",
    "func.func(chlo-legalize-to-stablehlo)",
    "canonicalize",  # a number goes with any shape: what CHLO asserts of dynamic dimensions
    "func.func(shape-legalize-to-stablehlo)",
)


@dataclass(frozen=True, slots=True)
class Names:
    """How inputs, outputs and their dynamic dimensions are called.

    A complex input or output gets a last axis of size 2, real and imaginary part.  ``dims`` gives
    a name to a dynamic dimension by (input index, axis); the others are called ``<input>_<axis>``.
    """

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    dims: Mapping[tuple[int, int], str] = field(default_factory=dict)
    output_dims: Mapping[tuple[int, int], str] = field(default_factory=dict)


def to_onnx(
    source: bytes | str,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dims: Mapping[tuple[int, int], str] | None = None,
    output_dims: Mapping[tuple[int, int], str] | None = None,
) -> ir.Model:
    """The ONNX model of a StableHLO module (MLIR text, bytecode or portable artifact).

    The public function ``main`` (or the only public one) is converted.  Names default to the
    module's own argument names where it carries them, else ``x0, x1, …`` and ``y0, y1, …``.
    Large constants are views of the module's memory, which lives as long as they do.
    Raises ``SourceError`` for a module that cannot be read and ``Unsupported``, with operator and
    source location, for one that has no exact ONNX form.
    """
    return Parsed(source).to_onnx(Names(input_names or (), output_names or (), dims or {}, output_dims or {}))


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output; a complex one counts its parts as a last axis of size 2.

    A quantized one is its integers, ``integers`` the half-open interval in which they lie.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    is_complex: bool
    integers: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Interface:
    """What goes into and comes out of a module's entry point."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class Parsed:
    """A module in memory, read once."""

    def __init__(self, source: bytes | str) -> None:
        self._context = context()
        with self._context:
            self._module = read_module(self._context, source)

    def changed(self, change: Callable[[Any], bool]) -> bytes | None:
        """Change the module in place; what it is then as a portable artifact, where ``change`` says that it did."""
        with self._context, mlir.Location.unknown(self._context):
            return portable(self._module) if change(self._module) else None

    def compare_as_numbers(self) -> None:
        """Let the greatest elements be those of numbers: zeros of both signs are equal, as in TensorFlow."""
        with self._context:
            compare_as_numbers(self._module)

    def interface(self, input_names: Sequence[str] = ()) -> Interface:
        """The interface of the function that :meth:`to_onnx` converts, under the names it carries."""
        with self._context:
            function = entry_point(self._module)
            kind = mlir.FunctionType(mlir.TypeAttr(function.attributes["function_type"]).value)
            names = input_names or argument_names(self._module, function)
            results = apart_from(names, result_names(function, len(kind.results)))
            inputs = tuple(_port(name, each) for name, each in zip(names, kind.inputs, strict=True))
            return Interface(inputs, tuple(_port(name, each) for name, each in zip(results, kind.results, strict=True)))

    @contextmanager
    def assertions(self) -> Iterator[Assertions]:
        """What the module asserts of the sizes of its inputs."""
        with self._context, mlir.Location.unknown(self._context):
            module = self._module.operation.clone().opview
            inline_calls(module)
            yield Assertions(entry_point(module))

    def half_precision(self) -> str:
        """``bfloat16`` or ``float16`` where the program computes in it, not only stores; else empty."""
        with self._context:
            computed = {
                str(mlir.RankedTensorType(result.type).element_type)
                for op in walk(self._module.operation)
                if op.name.startswith(("stablehlo.", "chlo.")) and op.name not in _STORING
                for result in op.results
                if isinstance(result.type, mlir.RankedTensorType)
            }
        return next((name for short, name in _HALVES.items() if short in computed), "")

    def is_quantized(self) -> bool:
        """Whether any value is of a quantized type."""
        with self._context:
            made = (result.type for op in walk(self._module.operation) for result in op.results)
            taken = mlir.FunctionType(mlir.TypeAttr(entry_point(self._module).attributes["function_type"]).value).inputs
            return any(quantization_of(kind) is not None for kind in (*taken, *made))

    def expanded(self) -> str:
        """The module's text with quantized types spelled out by StableHLO's own passes, so that XLA can run it.

        Quantized operators first become float ones between a dequantization and a quantization: the direct
        expansion into integers truncates and wraps the result of a product, where the specification rounds
        and saturates.
        """
        with self._context, mlir.Location.unknown(self._context):
            module = self._module.operation.clone().opview
            inline_calls(module)
            for step in ("symbol-dce", "func.func(stablehlo-legalize-quantized-op-to-qdq)"):
                run_pass(module, step)
            try:
                for step in _EXPANSION:
                    run_pass(module, step)
            except SourceError as refusal:
                raise Unsupported(
                    f"quantized operators that no runtime executes: {refusal}; {QUANTIZED_WAY_OUT}"
                ) from refusal
            return str(module)

    def to_onnx(self, names: Names) -> ir.Model:
        """The ONNX model; see :func:`to_onnx`."""
        with self._context, mlir.Location.unknown(self._context):
            # The passes change a copy of the operators; constants belong to the context and are not copied.
            module = self._module.operation.clone().opview
            inline_calls(module)
            prepare(module)
            drop_accumulators(module)
            buffered: set[Any] = set()
            while True:
                model = recognise(convert_function(module, entry_point(module), names, buffered=buffered))
                left = _collectors_of_free_rows(model) - buffered
                if not left:
                    return model
                buffered |= left  # a loop that is not a recurrent operator fills a buffer, as it stands


def interface_of(source: bytes | str) -> Interface:
    """The interface of the function that :func:`to_onnx` would convert."""
    return Parsed(source).interface()


def _port(name: str, kind: Any) -> Port:
    has_parts = is_complex(kind)
    shape = tuple(f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape_of(kind)))
    quantized = quantization_of(kind)
    integers = None if quantized is None else (quantized.low, quantized.high + 1)
    return Port(name, (*shape, 2) if has_parts else shape, dtype_of(kind).numpy().name, has_parts, integers)


def serialized(source: bytes | str) -> bytes:
    """The module as a portable artifact; one that is an artifact already stays the version that it is."""
    if isinstance(source, bytes) and source.startswith(PORTABLE + b"\rStableHLO_v"):
        return source
    with context() as ctx, mlir.Location.unknown(ctx):
        return portable(read_module(ctx, source))


def refined(source: bytes | str, shapes: Sequence[Sequence[int]]) -> str:
    """The module's text with its entry point specialised to inputs of these shapes; a last axis of parts is ignored."""
    with context() as ctx, mlir.Location.unknown(ctx):
        module = read_module(ctx, source)
        kind = mlir.FunctionType(mlir.TypeAttr(entry_point(module).attributes["function_type"]).value)
        types = [
            f"tensor<{'x'.join([*map(str, shape[: len(shape_of(each))]), element(each)])}>"
            for each, shape in zip(kind.inputs, shapes, strict=True)
        ]
        # Refinement compares the function of a composite or a call with types that it has refined only in part.
        run_pass(module, "func.func(stablehlo-legalize-composite-to-call)")
        inline_calls(module)
        for step in (
            "symbol-dce",
            f"stablehlo-refine-arguments{{types={','.join(types)}}}",
            "stablehlo-refine-shapes",
        ):
            run_pass(module, step)
        for op in [op for op in walk(module.operation) if is_assertion(op)]:
            op.erase()  # fulfilled by these shapes, and no runtime implements it
        return str(module)


def entry_point(module: Any) -> Any:
    """The function to convert: ``main``, else the only public one."""
    found = functions(module)
    if "main" in found:
        return found["main"]
    public = [
        op
        for op in found.values()
        if "sym_visibility" not in op.attributes or "private" not in str(op.attributes["sym_visibility"])
    ]
    if len(public) != 1:
        raise SourceError(f"the StableHLO module has no function main and {len(public)} public functions")
    return public[0]


def _collectors_of_free_rows(model: ir.Model) -> set[Any]:
    """The loops of the module that were left as a ``Loop`` of a number of turns or with rows of a dynamic size."""
    left = set()
    for node in model.graph.all_nodes():
        if node.op_type == "Loop" and LOOP in node.meta:
            rows = [each.shape for each in node.outputs[len(node.inputs) - 2 :]]
            free_turns = node.inputs[0] is not None and node.inputs[0].const_value is None
            if free_turns or any(shape is None or not shape.is_static() for shape in rows):
                left.add(node.meta[LOOP])
    return left


def convert_function(
    module: Any, function: Any, names: Names, handlers: Handlers = HANDLERS, *, buffered: Collection[Any] | None = None
) -> ir.Model:
    """Translate one function of a prepared module; for ``buffered`` see :meth:`Interpreter.collects`."""
    b = Builder()
    b.regions = Interpreter(handlers, functions(module), buffered)
    block = function.regions[0].blocks[0]
    arguments = [_argument(b, index, value, names) for index, value in enumerate(block.arguments)]
    operands = [_operand(b, value, tensor) for value, tensor in zip(block.arguments, arguments, strict=True)]
    results = b.regions.inline(b, block, operands)
    outputs = [_result(b, index, operand, names) for index, operand in enumerate(results)]
    return _model(b, arguments, outputs)


def _argument(b: Builder, index: int, value: Any, names: Names) -> Tensor:
    name = names.inputs[index] if index < len(names.inputs) else f"x{index}"
    shape = shape_of(value.type) + ((2,) if is_complex(value.type) else ())
    tensor = b.fresh(shape, dtype_of(value.type), name)
    assert isinstance(tensor.core, ir.Value)
    tensor.core.name = name
    tensor.core.shape = ir.Shape(
        [names.dims.get((index, axis), f"{name}_{axis}") if size is None else size for axis, size in enumerate(shape)]
    )
    return tensor


def _operand(b: Builder, value: Any, tensor: Tensor) -> Operand:
    if not is_complex(value.type):
        return tensor
    return Complex(b.gather(tensor, 0, tensor.rank - 1), b.gather(tensor, 1, tensor.rank - 1))


def _result(b: Builder, index: int, operand: Operand, names: Names) -> ir.Value:
    tensor = joined(b, operand) if isinstance(operand, Complex) else b.full(operand)
    copied = b.op("Identity", [tensor], tensor.shape, tensor.dtype)
    assert isinstance(copied.core, ir.Value)
    copied.core.name = names.outputs[index] if index < len(names.outputs) else f"y{index}"
    copied.core.shape = ir.Shape(
        [names.output_dims.get((index, axis)) if size is None else size for axis, size in enumerate(tensor.shape)]
    )
    return copied.core


def joined(b: Builder, operand: Complex) -> Tensor:
    """Both parts stacked along a new last axis."""
    return b.concat([b.unsqueeze(b.full(part), [operand.rank]) for part in (operand.re, operand.im)], operand.rank)


def _model(b: Builder, arguments: Sequence[Tensor], outputs: Sequence[ir.Value]) -> ir.Model:
    graph = ir.Graph(
        [b.value(each) for each in arguments],
        outputs,
        nodes=b.nodes,
        initializers=b.initializers,
        opset_imports={"": b.opset},
        name="main",
    )
    version = _IR_VERSION_OF_OPSET_26 if b.opset > 23 else IR_VERSION
    model = ir.Model(graph, ir_version=version, producer_name="convertkit")
    restate_axes(model)
    return model
