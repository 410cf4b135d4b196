"""An ONNX graph as a module of PyTorch: what ``torch.export`` reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.walk import check, walk
from convertkit.targets.executorch.forms import CONVERSIONS, FIXED, prepare
from convertkit.targets.executorch.resizing import write_resizes
from convertkit.targets.executorch.table import TABLE
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.unrolled_cells import write_cells
from convertkit.torch_graph.operators import DTYPES

_WAYS = ("--target onnxruntime", "--target ort-mobile")
_NEEDS = "--target executorch"


class Program(torch.nn.Module):  # type: ignore[misc]
    """Takes and gives tensors in the order of the graph's inputs and outputs."""

    def __init__(self, model: ir.Model) -> None:
        super().__init__()
        expand_functions(model, _is_known)
        write_cells(model, "ExecuTorch")
        write_resizes(model)
        prepare(model)
        self._graph = model.graph
        check(self._graph, TABLE, _NEEDS)
        for node in self._graph:
            _check(node)
        arguments = {value for node in self._graph for value in _arguments(node)}
        self._fixed = {value: _argument(value) for value in arguments}
        self._names = {value: f"c{number}" for number, value in enumerate(self._stored(arguments))}
        for value, name in self._names.items():
            self.register_buffer(name, _tensor(value))
        for value, kept in tuple(self._fixed.items()):
            if isinstance(kept, Tensor):
                self._names[value] = f"a{len(self._names)}"
                self.register_buffer(self._names[value], kept)
                del self._fixed[value]

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """All outputs; one that is an input, or another output, is a copy of it."""
        stored = {value: getattr(self, name) for value, name in self._names.items()}
        inputs = dict(zip(self._inputs(), given, strict=True))
        found = walk(self._graph, TABLE, {**self._fixed, **stored, **inputs})
        made: list[Tensor] = []
        for value in self._graph.outputs:
            kept = found[value]
            fresh = value not in inputs and value not in stored and all(kept is not each for each in made)
            made.append(kept if fresh else kept.clone())
        return tuple(made)

    def _inputs(self) -> list[ir.Value]:
        return [value for value in self._graph.inputs if value.const_value is None]

    def _stored(self, arguments: set[ir.Value]) -> list[ir.Value]:
        """Initializers that are tensors of the program, in the graph's order."""
        used = {value for node in self._graph for value in node.inputs if value is not None} | set(self._graph.outputs)
        return [each for each in self._graph.initializers.values() if each in used and each not in arguments]


def _is_known(node: ir.Node) -> bool:
    """Whether the table has it; other operators get the body that ONNX defines, and so does an approximated Gelu.

    Of the latter ExecuTorch's kernel is up to 2e-4 from ONNX's formula.
    """
    approximated = node.op_type == "Gelu" and node.attributes.get_string("approximate", "none") != "none"
    means = node.op_type == "LayerNormalization" and len(node.outputs) > 1
    return node.op_type in TABLE and not approximated and not means


def _arguments(node: ir.Node) -> list[ir.Value]:
    places = FIXED.get(node.op_type, ())
    found = [node.inputs[place] for place in places if place < len(node.inputs)]
    return [value for value in found if value is not None]


def _argument(value: ir.Value) -> Any:
    """A number of NumPy, a tuple of whole numbers, or a tensor of scales or zero points."""
    array = _array(value)
    reader = next(node for node, _ in value.uses())
    if reader.op_type not in (*CONVERSIONS, "Clip") and array.ndim and array.dtype.kind in "iu":
        return tuple(int(each) for each in array.reshape(-1))
    if array.size == 1:
        return array.reshape(())[()]
    integers = np.issubdtype(array.dtype, np.integer)
    return torch.from_numpy(array.astype(np.int64) if integers else array.copy())  # XNNPACK wants int64 zero points


def _check(node: ir.Node) -> None:
    """``Unsupported`` for what the table's functions cannot tell from their arguments."""
    subject = f"{node.name or node.outputs[0].name} ({node.op_type})"
    for value in _arguments(node):
        if value.const_value is None:
            raise Unsupported(f"its argument {value.name} is computed", subject=subject, ways_out=_WAYS)
    if node.op_type in ("Cast", "BitCast") and node.attributes.get_int("to", 0) not in DTYPES:
        raise Unsupported("ExecuTorch has no tensors of that type", subject=subject, ways_out=_WAYS)
    if node.op_type == "BitShift" and node.outputs[0].dtype != ir.DataType.UINT8:
        raise Unsupported("ExecuTorch shifts uint8 alone", subject=subject, ways_out=_WAYS)
    reduction = node.attributes.get_string("reduction", "none") if node.op_type.startswith("Scatter") else "none"
    if reduction not in ("none", "add"):
        reason = f"reduction {reduction}: ExecuTorch's scatters overwrite or add"
        raise Unsupported(reason, subject=subject, ways_out=_WAYS)
    if node.op_type in CONVERSIONS and _is_unknown(node):
        raise Unsupported("ExecuTorch has no such form of it", subject=subject, ways_out=_WAYS)


def _is_unknown(node: ir.Node) -> bool:
    """Blocks, activations per channel, and integers other than 8 bits and int16."""
    integers = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    scale = node.inputs[1]
    several = scale is not None and scale.const_value is not None and scale.const_value.size > 1
    per_channel = several and (integers is None or integers.const_value is None)
    known = integers is not None and integers.dtype in (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16)
    return per_channel or not known or node.attributes.get_int("block_size", 0) != 0


def _array(value: ir.Value) -> Array:
    assert value.const_value is not None
    return value.const_value.numpy()


def _tensor(value: ir.Value) -> Tensor:
    return torch.from_numpy(np.array(_array(value)))
