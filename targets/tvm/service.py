"""In the engine's environment: ONNX through TVM's importer and compiler, and libraries in its virtual machine."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.workers.held import HeldCalls, brief
from convertkit.workers.process import Reply

_ENTRY = "main"
_ELF, _HEADER_BYTES = b"\x7fELF\x02", 64
"""Of a file of 64 bits."""
_UNKNOWN = re.compile(r"not supported for frontend ONNX: (\w+)")
_BROKEN = (
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    NotImplementedError,
)
"""What TVM's importer and compiler raise for what they do not take."""


class TvmService(HeldCalls):
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._program: Any = None
        self._function: Any = None

    def read(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Import the ONNX at ``model``; the value is None, or why not and the kind of operator that it is about."""
        try:
            self._program = from_onnx(onnx.load(params["model"]), keep_params_in_input=False)
        except _BROKEN as error:
            found = _UNKNOWN.search(str(error))
            return Reply({"operator": found[1] if found else None, "reason": _last(error)})
        return Reply()

    def compile(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Write ``library`` of what was read, for ``triple`` and ``cpu``, linked by ``linker``."""
        target = tvm.target.Target({"kind": "llvm", "mtriple": params["triple"], "mcpu": params["cpu"]})
        try:
            with tvm.transform.PassContext(opt_level=3):
                made = tvm.compile(self._program, target=target)
        except _BROKEN as error:
            return Reply({"operator": None, "reason": _last(error)})
        try:
            made.export_library(params["library"], cc=params["linker"])
        except (RuntimeError, OSError) as error:
            raise ToolError(
                f"{params['linker']} does not link {Path(params['library']).name}: {_last(error)}"
            ) from error
        return Reply()

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Open ``library``; ``ToolError`` where it is not one."""
        path = Path(params["library"])
        if not _is_whole(path.read_bytes()):
            raise ToolError(f"{path.name} is not a whole library of TVM")
        try:
            machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
            self._function = machine[_ENTRY]
        except _BROKEN as error:
            raise ToolError(f"TVM does not load {path.name}: {_last(error)}") from error
        return Reply()

    def _held(self, value: Array) -> Any:
        return tvm.runtime.tensor(value)

    def _array(self, value: Any) -> Array:
        found: Array = value.numpy()
        return found

    def _outputs(self) -> Sequence[Any]:
        try:
            found = self._function(*self._given)
        except _BROKEN as error:
            raise ToolError(f"TVM fails: {_last(error)}") from error
        return [found] if hasattr(found, "numpy") else list(found)


def _is_whole(data: bytes) -> bool:
    """Whether an ELF file of 64 bits reaches to the end of its section headers: what is cut off ends the process.

    Source: the ELF header, ``e_shoff`` at 40, ``e_shentsize`` and ``e_shnum`` at 58.
    """
    if data[:5] != _ELF or len(data) < _HEADER_BYTES:
        return False
    (offset,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    return bool(len(data) >= offset + size * count)


def _last(error: Exception) -> str:
    """Of an error that holds a traceback, its last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else brief(error)
