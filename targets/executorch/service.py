"""The worker that holds PyTorch and ExecuTorch: writes programs, and runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.runtime import Runtime, Verification

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.onnx.load import load_own
from convertkit.workers.held import HeldCalls, brief
from convertkit.workers.process import Reply

_IDENTIFIER = b"ET12"
"""Of the FlatBuffer, behind the offset of its root."""
_DELEGATE = "executorch_call_delegate"
_BROKEN = (RuntimeError, ValueError, TypeError, KeyError, IndexError, AssertionError, NotImplementedError)
"""What tracing and lowering raise for what they do not take."""
_INNER = frozenset({"getitem", "alloc", "lowered_module"})


class ExecuTorchService(HeldCalls):
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._program: Any = None
        self._method: Any = None

    def compile(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Write ``program`` from the ONNX at ``model``, traced with ``arrays``; what XNNPACK took, and what it left."""
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        from convertkit.targets.executorch.compat import spec_violation
        from convertkit.targets.executorch.module import Program

        module = Program(load_own(Path(params["model"]))).eval()
        example = tuple(torch.from_numpy(np.array(arrays[name])) for name in params["inputs"])
        try:
            with torch.no_grad():
                exported = torch.export.export(module, example, strict=False)
            edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
            left = _left(edge.exported_program().graph)
            buffer = edge.to_executorch().buffer
        except (*_BROKEN, spec_violation()) as error:
            raise ToolError(f"ExecuTorch does not compile {Path(params['model']).name}: {brief(error)}") from error
        Path(params["program"]).write_bytes(buffer)
        return Reply({"delegates": left.pop(_DELEGATE, 0), "left": dict(sorted(left.items()))})

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Open ``program``; ``ToolError`` where it is not one."""
        path = Path(params["program"])
        with path.open("rb") as file:
            start = file.read(8)
        if start[4:] != _IDENTIFIER:
            raise ToolError(f"{path.name} is not a program of ExecuTorch: it does not begin as one")
        try:
            self._program = Runtime.get().load_program(path, verification=Verification.InternalConsistency)
            self._method = self._program.load_method("forward")
        except (RuntimeError, ValueError) as error:
            raise ToolError(f"ExecuTorch does not load {path.name}: {brief(error)}") from error
        return Reply()

    def _held(self, value: Array) -> torch.Tensor:
        return torch.from_numpy(value)

    def _array(self, value: torch.Tensor) -> Array:
        return np.array(value.numpy())

    def _outputs(self) -> list[torch.Tensor]:
        try:
            return list(self._method.execute(list(self._given)))
        except (RuntimeError, ValueError, TypeError) as error:
            raise ToolError(f"ExecuTorch fails: {brief(error)}") from error


def _left(graph: torch.fx.Graph) -> Counter[str]:
    """Calls of the program by operator: of delegates, and of ExecuTorch's own kernels."""
    found = Counter[str]()
    for node in graph.nodes:
        name = getattr(node.target, "__name__", str(node.target)).removesuffix(".default")
        if node.op == "call_function" and name not in _INNER:
            found[name] += 1
    return found
