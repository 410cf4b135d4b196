"""In the engine's environment: ONNX through IREE's importer and compiler, and modules in its runtime."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.workers.held import HeldCalls
from convertkit.workers.process import Reply

_MODULE = "model.mlir"
_DRIVER = "local-task"
_MAGIC = b"PK\x03\x04"
_SAME_BYTES = ("--iree-vm-bytecode-module-strip-source-map=true", "--iree-llvmcpu-debug-symbols=false")
"""Without them, where a file lay is part of the module."""
_OPERATOR = re.compile(r'"onnx\.(\w+)"')
_LINE = re.compile(rf"{re.escape(_MODULE)}:(\d+):\d+: error:")


class IreeService(HeldCalls):
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._module: Any = None

    def read(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Import the ONNX at ``model`` into MLIR beside it."""
        model = Path(params["model"])
        os.chdir(model.parent)
        tool = [sys.executable, "-P", "-s", "-m", "iree.compiler.tools.import_onnx", model.name, "-o", _MODULE]
        done = subprocess.run(tool, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolError(f"IREE does not read {model.name}: {_last(done.stderr)}")
        return Reply()

    def compile(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Compile what was read into ``module``, for a processor and, where one is given, a ``triple``.

        The value is None, or why not: :func:`_refusal`.
        """
        from iree.compiler.tools import CompilerToolError, compile_file

        flags = [f"--iree-llvmcpu-target-cpu={params['cpu']}", *_SAME_BYTES]
        flags += [f"--iree-llvmcpu-target-triple={params['triple']}"] if params["triple"] else []
        try:
            made = compile_file(_MODULE, input_type="onnx", target_backends=["llvm-cpu"], extra_args=flags)
        except CompilerToolError as error:
            return Reply(_refusal(str(error)))
        Path(params["module"]).write_bytes(made)
        return Reply()

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Open ``module``; ``ToolError`` where it is not one."""
        import iree.runtime as runtime

        path = Path(params["module"])
        if not path.read_bytes()[: len(_MAGIC)] == _MAGIC:
            raise ToolError(f"{path.name} is not a module of IREE: it does not begin as one")
        try:
            self._module = runtime.load_vm_flatbuffer_file(str(path), driver=_DRIVER)[params["entry"]]
        except (RuntimeError, ValueError, KeyError) as error:
            raise ToolError(f"IREE does not load {path.name}: {_last(str(error))}") from error
        return Reply()

    def _array(self, value: Any) -> Array:
        return np.array(value.to_host())

    def _outputs(self) -> list[Any]:
        try:
            found = self._module(*self._given)
        except (RuntimeError, ValueError) as error:
            raise ToolError(f"IREE fails: {_last(str(error))}") from error
        return list(found) if isinstance(found, tuple | list) else [found]


def _refusal(said: str) -> dict[str, Any]:
    """What the compiler says, the operator at the line that it names, and which of these operators it is."""
    told = next((line for line in said.splitlines() if "error:" in line), "")
    reason = told.partition("error:")[2].strip().partition(": %")[0] or " ".join(said.split())
    found = _LINE.search(told)
    lines = Path(_MODULE).read_text(encoding="utf-8").splitlines()[: int(found[1])] if found else []
    operators = [named[1] for line in lines if (named := _OPERATOR.search(line))]
    if not operators or _OPERATOR.search(lines[-1]) is None:
        return {"operator": None, "place": 0, "reason": reason[:300]}
    return {"operator": operators[-1], "place": operators.count(operators[-1]) - 1, "reason": reason[:300]}


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["it does not say why"])[-1][:300]
