"""TFLite → ONNX: walks the operators of a graph and calls their handlers.

Every tensor that the file stores as integers with a scale stays integers in the ONNX graph, with
exactly that scale and zero point; between them stand DequantizeLinear → operator → QuantizeLinear.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import onnx_ir as ir

from convertkit.converters.tflite import (
    activations,
    arithmetic,
    control,
    convolutions,
    indexing,
    matmul,
    pooling,
    recurrent,
    reductions,
    scattering,
    shapes,
    suppression,
    variables,
)
from convertkit.converters.tflite.builder import FREE, GENERATED, QUANTIZED, Builder, Tensor, named_dims, onnx_dtype
from convertkit.converters.tflite.model import (
    ABSENT,
    Operator,
    Quantization,
    Signature,
    Subgraph,
    TensorInfo,
    TFLiteModel,
)
from convertkit.converters.tflite.registry import Entry, visible
from convertkit.errors import SourceError, Unsupported

HANDLERS = (
    activations.activations
    | arithmetic.arithmetic
    | control.control
    | convolutions.convolutions
    | indexing.indexing
    | matmul.matmul
    | pooling.pooling
    | recurrent.recurrent
    | reductions.reductions
    | scattering.scattering
    | shapes.shapes
    | suppression.suppression
    | variables.variables
)

OPSET = 20
OPSET_WIDE_QDQ = 21
"""The first opset whose QuantizeLinear knows 16 and 4 bit integers."""

IR_VERSION = 10
_WIDE = frozenset({"int16", "uint16", "int4", "uint4", "int2"})
_MAX_DEPTH = 32
_HOSTILE = (ValueError, IndexError, KeyError, TypeError, OverflowError, ZeroDivisionError)
"""What NumPy and onnx_ir raise for constants that contradict the operator they belong to."""


def to_onnx(model: TFLiteModel, signature: Signature) -> ir.Model:
    """The graph that ``signature`` names, its public names as input and output names."""
    graph = model.subgraphs[signature.subgraph]
    importer = _Importer(model)
    builder = Builder(importer.inline, {}, itertools.count())
    builder.variables = variables.constants(model)
    names = {index: name for name, index in signature.inputs}
    inputs = tuple(_input(graph.tensors[index], names[index]) for index in graph.inputs)
    results = dict(zip(graph.outputs, importer.translate(builder, graph, inputs), strict=True))
    outputs: list[ir.Value] = []
    for name, index in signature.outputs:
        outputs.append(_output(builder, results[index], name, outputs))
        _shaped(outputs[-1], name, graph.tensors[index])
    wide = any(tensor.dtype in _WIDE for each in model.subgraphs for tensor in each.tensors)
    made = ir.Graph(
        [x.value for x in inputs],
        outputs,
        nodes=builder.nodes,
        initializers=list(builder.constants.values()),
        opset_imports={"": OPSET_WIDE_QDQ if wide else OPSET},
        name=graph.name or "main",
    )
    return ir.Model(made, ir_version=IR_VERSION)


def _input(info: TensorInfo, name: str) -> Tensor:
    value = ir.Value(name=name, type=ir.TensorType(onnx_dtype(info.dtype)))
    if info.shape is None:
        raise Unsupported(f"the rank of input {name!r} is unknown")
    dims = [
        size if size != FREE else "batch" if axis == 0 else f"{name}_{axis}" for axis, size in enumerate(info.shape)
    ]
    value.shape = ir.Shape(dims)
    return Tensor(value, info.shape, info.dtype)


def _output(builder: Builder, result: Tensor, name: str, taken: list[ir.Value]) -> ir.Value:
    """The value of ``result`` under its public name; a copy where it is not a node's own output."""
    value = result.value
    if value.producer() is None or any(value is other for other in taken):
        value = builder.op("Identity", [result]).value
    value.name = name
    value.type = ir.TensorType(onnx_dtype(result.dtype))
    return value


def _shaped(value: ir.Value, name: str, info: TensorInfo) -> None:
    """Tell the shape of an output whose dynamic batch the file declares; else inference finds it."""
    if info.shape and info.shape[0] == FREE:
        value.shape = ir.Shape(named_dims(name, info.shape))


class _Importer:
    """Translates the subgraphs of one model; knows how deep the calls are nested."""

    def __init__(self, model: TFLiteModel) -> None:
        self._model = model
        self._depth = 0
        self._names = {"", *(name for each in model.signatures for name, _ in (*each.inputs, *each.outputs))}

    def inline(self, builder: Builder, index: int, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The operators of subgraph ``index`` on ``inputs``, in the builder's graph."""
        if not 0 <= index < len(self._model.subgraphs):
            raise SourceError(f"subgraph {index} does not exist; the file has {len(self._model.subgraphs)}")
        graph = self._model.subgraphs[index]
        if len(graph.inputs) != len(inputs):
            raise SourceError(f"subgraph {index} takes {len(graph.inputs)} inputs and is given {len(inputs)}")
        if self._depth >= _MAX_DEPTH:
            raise SourceError(f"subgraphs call each other deeper than {_MAX_DEPTH} times")
        self._depth += 1
        outer = builder.operator, builder.results, builder.tensors
        results = self.translate(builder, graph, inputs)
        builder.operator, builder.results, builder.tensors = outer
        self._depth -= 1
        return results

    def translate(self, builder: Builder, graph: Subgraph, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """All operators of ``graph``; gives its outputs as the file stores them."""
        known = {index: _declared(x, graph.tensors[index]) for index, x in zip(graph.inputs, inputs, strict=True)}
        for op in graph.operators:
            builder.operator = op
            builder.tensors = graph.tensors
            builder.results = tuple(graph.tensors[index] for index in op.outputs)
            results, integers = self._operator(builder, graph, op, known)
            for index, info, result in zip(op.outputs, builder.results, results, strict=True):
                known[index] = self._as_declared(builder, info, result, integers)
        return tuple(_required(_read(builder, graph, index, known), "an output") for index in graph.outputs)

    def _operator(
        self, builder: Builder, graph: Subgraph, op: Operator, known: dict[int, Tensor]
    ) -> tuple[tuple[Tensor, ...], Quantization | None]:
        """What the handler gives, and the parameters by which to round it where the output's do not count."""
        subject = f"{builder.results[0].name if builder.results else 'an operator'} ({op.builtin})"
        entry = HANDLERS.find(op.builtin)
        try:
            if entry is None:
                raise Unsupported("this TFLite operator has no translation to ONNX")
            if op.options_name not in ("", entry.options) and visible(entry.options):
                raise SourceError(f"{subject} carries {op.options_name}, expected {entry.options}")
            stored = [_read(builder, graph, index, known) for index in op.inputs]
            integers = _moved_parameters(entry, stored)
            inputs = [_for_handler(builder, entry, x, integers) for x in _counted(entry, subject, stored)]
            results = entry.handler(builder, *inputs, **_options(entry, op))
        except Unsupported as error:
            raise error.located(subject) from None
        except _HOSTILE as error:
            raise SourceError(f"{subject} contradicts itself: {error}") from error
        given = results if isinstance(results, tuple) else (results,)
        if len(given) < len(op.outputs):
            raise SourceError(f"{subject} has {len(op.outputs)} outputs, expected {len(given)}")
        return given[: len(op.outputs)], integers

    def _as_declared(self, builder: Builder, info: TensorInfo, result: Tensor, integers: Quantization | None) -> Tensor:
        """``result`` as the file stores this tensor: quantized, in the declared element type, named."""
        if info.quantization is not None and info.dtype in QUANTIZED and result.dtype == "float32":
            result = builder.quantize(result, integers or info.quantization, info.dtype)
        if result.dtype != info.dtype:
            if "float" in result.dtype or "float" in info.dtype:
                raise SourceError(f"{info.name!r} is declared {info.dtype}, its operator gives {result.dtype}")
            result = builder.cast(result, info.dtype)
        value = result.value
        if value.producer() is not None and info.name not in self._names and (value.name or "").startswith(GENERATED):
            self._names.add(info.name)
            value.name = info.name or value.name
        return replace(
            result, shape=info.shape if result.const is None else result.shape, quantization=info.quantization
        )


def _read(builder: Builder, graph: Subgraph, index: int, known: dict[int, Tensor]) -> Tensor | None:
    """A tensor as the file stores it; None for what is left out and for state, which starts at zero."""
    if index == ABSENT:
        return None
    if index not in known:
        info = graph.tensors[index]
        if info.data is None:
            return None
        known[index] = replace(builder.constant(info.data), quantization=info.quantization)
    return known[index]


def _declared(x: Tensor, info: TensorInfo) -> Tensor:
    if x.dtype != info.dtype:
        raise SourceError(f"{info.name!r} is declared {info.dtype} and given {x.dtype}")
    return replace(x, shape=info.shape, quantization=info.quantization)


def _required(x: Tensor | None, what: str) -> Tensor:
    if x is None:
        raise Unsupported(f"{what} is a state variable")
    return x


def _counted(entry: Entry, subject: str, inputs: list[Tensor | None]) -> list[Tensor | None]:
    if entry.accepted is not None and len(inputs) > entry.accepted:
        raise SourceError(f"{subject} has {len(inputs)} inputs, expected at most {entry.accepted}")
    if len(inputs) < entry.required or any(x is None for x in inputs[: entry.required]):
        raise SourceError(f"{subject} lacks one of its {entry.required} inputs")
    return inputs


def _moved_parameters(entry: Entry, inputs: list[Tensor | None]) -> Quantization | None:
    """The parameters that all tensors of a kernel share that moves integers without a look at scales."""
    found = [x.quantization for x in inputs if x is not None and x.quantization is not None and x.dtype in QUANTIZED]
    return found[0] if entry.moves and found else None


def _for_handler(builder: Builder, entry: Entry, x: Tensor | None, integers: Quantization | None) -> Tensor | None:
    if x is None or entry.stored or x.quantization is None or x.dtype not in QUANTIZED:
        return x
    return builder.dequantize(x, integers or x.quantization)


def _options(entry: Entry, op: Operator) -> dict[str, object]:
    """What the handler asks for; options that the file leaves out have the schema's defaults."""
    fields = visible(entry.options)
    empty: dict[str, object] = {"str": "", "[i32]": (), "[f32]": (), "[u8]": ()}
    return {field.name: op.options.get(field.name, empty.get(field.kind, field.default)) for field in fields}
