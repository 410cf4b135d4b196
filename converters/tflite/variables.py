"""Resource variables that never change: what CALL_ONCE puts into them is a constant.

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


def constants(model: TFLiteModel) -> Mapping[str, TensorInfo]:
    """Variables by name that are assigned a constant once, in a graph that CALL_ONCE runs, and nowhere else."""
    once = {op.options["init_subgraph_index"] for op in _operators(model) if op.builtin == "CALL_ONCE"}
    found: dict[str, TensorInfo] = {}
    changing = set()
    for index, graph in enumerate(model.subgraphs):
        handles = {op.outputs[0]: _name(op) for op in graph.operators if op.builtin == "VAR_HANDLE" and op.outputs}
        for op in graph.operators:
            if op.builtin != "ASSIGN_VARIABLE" or len(op.inputs) < 2:
                continue
            if op.inputs[0] not in handles:
                return {}  # a handle from elsewhere: any variable may change
            name, value = handles[op.inputs[0]], _constant(graph, op.inputs[1])
            if index not in once or value is None or name in found:
                changing.add(name)
            else:
                found[name] = value
    return {name: value for name, value in found.items() if name not in changing}


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
        raise Unsupported(f"the variable {name!r} lives from call to call; ONNX has none")
    return b.constant(info.data)


@variables.reads("ASSIGN_VARIABLE", stored=True)
def assign_variable(b: Builder, handle: Tensor, value: Tensor) -> Tensor:
    raise Unsupported(f"it changes the variable {handle.value.meta.get(_NAME, '')!r} from call to call; ONNX has none")


@variables.reads("CALL_ONCE", "CallOnceOptions", stored=True)
def call_once(b: Builder, *, init_subgraph_index: int) -> tuple[Tensor, ...]:
    """What it assigns is known to READ_VARIABLE."""
    return ()
