"""Resource variables that never change: what CALL_ONCE puts into them is a constant.

Those that change are inputs and outputs before anything is read here, where that says what they do (``states.py``).

Source: ``tensorflow/lite/kernels/{var_handle,read_variable,assign_variable,call_once}.cc``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from convertkit.converters.tflite.builder import Builder, Tensor
from convertkit.converters.tflite.model import Operator, Subgraph, TensorInfo, TFLiteModel
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import Unsupported

variables = Registry()

_NAME = "tflite.variable"
_WHY = (
    "which ONNX has as an input and an output of the main graph alone: of one size and element type, "
    "set to a constant before the first call, and read and changed in no other graph"
)


def constants(model: TFLiteModel) -> Mapping[str, TensorInfo]:
    """Variables by name that are assigned a constant once, in a graph that CALL_ONCE runs, and nowhere else."""
    found, once = starts(model), initial_graphs(model)
    for index, graph in enumerate(model.subgraphs):
        for op in _assigning(graph):
            name = handles(graph).get(op.inputs[0])
            if name is None:
                return {}  # a handle from elsewhere: any variable may change
            if index not in once:
                found.pop(name, None)
    return found


def starts(model: TFLiteModel) -> dict[str, TensorInfo]:
    """What variables hold before the first call: by name, where CALL_ONCE assigns them one constant."""
    found = dict[str, TensorInfo | None]()
    for index in initial_graphs(model):
        graph = model.subgraphs[index]
        for op in _assigning(graph):
            name = handles(graph).get(op.inputs[0], "")
            found[name] = None if name in found else _constant(graph, op.inputs[1])
    return {name: value for name, value in found.items() if value is not None}


def initial_graphs(model: TFLiteModel) -> tuple[int, ...]:
    """The graphs that CALL_ONCE runs."""
    called = [op.options["init_subgraph_index"] for op in _operators(model) if op.builtin == "CALL_ONCE"]
    return tuple(index for index in dict.fromkeys(called) if isinstance(index, int) and index < len(model.subgraphs))


def handles(graph: Subgraph) -> dict[int, str]:
    """Names of variables by the tensors that stand for them."""
    return {op.outputs[0]: _name(op) for op in graph.operators if op.builtin == "VAR_HANDLE" and op.outputs}


def _assigning(graph: Subgraph) -> Iterator[Operator]:
    return (op for op in graph.operators if op.builtin == "ASSIGN_VARIABLE" and len(op.inputs) > 1)


def _operators(model: TFLiteModel) -> Iterator[Operator]:
    for graph in model.subgraphs:
        yield from graph.operators


def _constant(graph: Subgraph, index: int) -> TensorInfo | None:
    return graph.tensors[index] if index >= 0 and graph.tensors[index].data is not None else None


def _name(op: Operator) -> str:
    return f"{op.options.get('container', '')}/{op.options.get('shared_name', '')}"


@variables.reads("VAR_HANDLE", "VarHandleOptions", stored=True)
def var_handle(b: Builder, *, container: str, shared_name: str) -> Tensor:
    handle = ir.Value(name=b.name())
    handle.meta[_NAME] = f"{container}/{shared_name}"
    return Tensor(handle, (), "resource")


@variables.reads("READ_VARIABLE", stored=True)
def read_variable(b: Builder, handle: Tensor) -> Tensor:
    name = handle.value.meta.get(_NAME, "")
    info = b.variables.get(name)
    if info is None or info.data is None:
        raise Unsupported(f"the variable {name!r} lives from call to call, {_WHY}")
    return b.constant(info.data)


@variables.reads("ASSIGN_VARIABLE", stored=True)
def assign_variable(b: Builder, handle: Tensor, value: Tensor) -> Tensor:
    name = handle.value.meta.get(_NAME, "")
    raise Unsupported(f"it changes the variable {name!r} from call to call, {_WHY}")


@variables.reads("CALL_ONCE", "CallOnceOptions", stored=True)
def call_once(b: Builder, *, init_subgraph_index: int) -> tuple[Tensor, ...]:
    """What it assigns is known to READ_VARIABLE."""
    return ()
