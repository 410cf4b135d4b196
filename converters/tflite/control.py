"""Control flow: subgraphs become ONNX subgraphs; ONNX captures outer values, TFLite passes them.

Source: ``tensorflow/lite/kernels/{if,while,call_once}.cc``.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.converters.tflite.builder import Builder, Tensor, onnx_dtype
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

control = Registry()


def fresh(b: Builder, xs: tuple[Tensor, ...]) -> list[ir.Value]:
    """Fresh values: a subgraph's outputs must be made inside it, each by a node of its own."""
    return [_fresh(b, x) for x in xs]


def _fresh(b: Builder, x: Tensor) -> ir.Value:
    node = ir.node("Identity", [x.value])
    b.nodes.append(node)
    node.outputs[0].name = b.name()
    node.outputs[0].type = ir.TensorType(onnx_dtype(x.dtype))
    return node.outputs[0]


def _graph(b: Builder, inputs: list[ir.Value], outputs: list[ir.Value], name: str) -> ir.Graph:
    return ir.Graph(inputs, outputs, nodes=b.nodes, name=name)


@control.reads("IF", "IfOptions", stored=True)
def if_(b: Builder, condition: Tensor, *xs: Tensor, then_subgraph_index: int, else_subgraph_index: int) -> object:
    branches = {}
    for name, index in (("then_branch", then_subgraph_index), ("else_branch", else_subgraph_index)):
        inner = b.nested()
        results = b.inline(inner, index, xs)
        _counted(len(results), len(b.results), index)
        branches[name] = _graph(inner, [], fresh(inner, results), name)
    made = b.ops("If", [_scalar(b, condition)], branches, len(b.results))
    return tuple(Tensor(x.value, None, info.dtype) for x, info in zip(made, b.results, strict=True))


@control.reads("WHILE", "WhileOptions", stored=True)
def while_(b: Builder, *xs: Tensor, cond_subgraph_index: int, body_subgraph_index: int) -> object:
    """The condition is asked once before the loop and again at the end of each turn."""
    begin = _condition(b, cond_subgraph_index, xs)
    inner = b.nested()
    turn = ir.Value(name=b.name(), type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    still = ir.Value(name=b.name(), type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    carried = tuple(
        Tensor(ir.Value(name=b.name(), type=ir.TensorType(onnx_dtype(x.dtype))), x.shape, x.dtype) for x in xs
    )
    results = b.inline(inner, body_subgraph_index, carried)
    _counted(len(results), len(xs), body_subgraph_index)
    again = _condition(inner, cond_subgraph_index, results)
    outputs = fresh(inner, (again, *results))
    body = _graph(inner, [turn, still, *(x.value for x in carried)], outputs, "body")
    made = b.ops("Loop", [None, begin, *xs], {"body": body}, len(xs), dtype="bool")
    return tuple(Tensor(x.value, None, info.dtype) for x, info in zip(made, b.results, strict=True))


@control.reads("CALL", "CallOptions", stored=True)
def call(b: Builder, *xs: Tensor, subgraph: int) -> object:
    return b.inline(b, subgraph, xs)


@control.reads("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions", stored=True)
def composite(
    b: Builder,
    *xs: Tensor,
    name: str,
    decomposition_subgraph_index: int,
    composite_attributes: tuple[int, ...],
    composite_attributes_format: int,
    version: int,
) -> object:
    """The decomposition says exactly what a composite computes."""
    return b.inline(b, decomposition_subgraph_index, xs)


def _condition(b: Builder, index: int, xs: tuple[Tensor, ...]) -> Tensor:
    results = b.inline(b, index, xs)
    _counted(len(results), 1, index)
    return _scalar(b, results[0])


def _scalar(b: Builder, condition: Tensor) -> Tensor:
    if condition.dtype != "bool":
        raise SourceError(f"a condition of {condition.dtype}, expected bool")
    return condition if condition.shape == () else b.op("Reshape", [condition, b.constant([])])


def _counted(given: int, expected: int, index: int) -> None:
    if given != expected:
        raise SourceError(f"subgraph {index} gives {given} outputs, expected {expected}")


def _refused(builtins: str, reason: str) -> None:
    def refuse(b: Builder, *xs: Tensor | None) -> Tensor:
        raise Unsupported(reason)

    for builtin in builtins.split():
        control.reads(builtin)(refuse)


_refused(
    "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE HASHTABLE_LOOKUP",
    "a lookup table; ONNX holds none",
)
_refused("SVDF RNN", "one step of a recurrence whose state lives from call to call; ONNX has no state")
_refused("RANDOM_STANDARD_NORMAL RANDOM_UNIFORM MULTINOMIAL", "random numbers, of which no two runs give the same")
_refused("RFFT2D REAL IMAG COMPLEX_ABS", "complex numbers; ONNX operators take none")
