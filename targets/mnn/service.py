"""The worker that holds MNN: its converter, and files in its runtime.

``MNN.tools`` is never imported: it installs a package by itself and reports what it converts.  The converter proper is
the module ``_tools``; it runs in a process of its own, whose end and output are told.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import MNN.expr as mnn
import MNN.nn
import numpy as np

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.targets.mnn.runtime import SETTINGS, WINOGRAD
from convertkit.workers.held import HeldCalls
from convertkit.workers.process import Reply

_CONVERTER = "import sys, _tools; sys.exit(not _tools.mnnconvert(['mnnconvert', *sys.argv[1:]]))"
_EXACT = ("--useGeluApproximation", "0", "--useOriginRNNImpl")
_GUIDE = ("--weightQuantBits", "8", "--compressionParamsFile")
_MADE = "__matmul_converted"
"""What MNN puts behind the name of a product that becomes a convolution."""
_TALK = ("The device supports", "Start to ", "[")
"""How lines begin that say nothing of a model."""
_UNKNOWN = re.compile(r"[Nn]ot [Ss]upport(?:ed)?[^:\n]*:+\s*(?:ONNX::)?(\w+)")
_TYPES: Mapping[str, Any] = {"f": (mnn.float, np.float32), "i": (mnn.int, np.int32)}


class MnnService(HeldCalls):
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._module: Any = None
        self._made: Sequence[Sequence[str]] = ()

    def convert(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Convert the ONNX at ``model`` into ``file``; the value is None, or why not.

        ``layers`` has, by the names of operators, the bits and blocks of weights that become integers.  The converter
        tells the operators that it knows in a first run, and in a second one takes what is said of them.
        """
        model, file, flags = params["model"], params["file"], list(params["flags"])
        if params["layers"]:
            guide = Path(model).with_name("compression.json")
            refusal = _converted(model, file, [*_GUIDE, str(guide)])
            if refusal is not None:
                return Reply(refusal)
            guide.write_text(json.dumps(_chosen(json.loads(guide.read_text()), params["layers"])))
            flags += ["--compressionParamsFile", str(guide)]
        return Reply(_converted(model, file, flags))

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Open ``model`` with the names of its ``inputs``, and ``outputs`` with their dtypes."""
        path = Path(params["model"])
        self._made = params["outputs"]
        try:
            names = [name for name, _ in self._made]
            manager = MNN.nn.create_runtime_manager((dict(SETTINGS),))
            manager.set_hint(*WINOGRAD)
            self._module = MNN.nn.load_module_from_file(str(path), params["inputs"], names, runtime_manager=manager)
        except (RuntimeError, ValueError, TypeError, SystemError) as error:
            raise ToolError(f"MNN does not load {path.name}: it is not a whole file of MNN") from error
        if self._module is None:
            raise ToolError(f"MNN does not load {path.name}")
        return Reply()

    def _held(self, value: Array) -> Any:
        kind, dtype = _TYPES[value.dtype.kind if value.dtype != np.bool_ else "i"]
        return mnn.const(np.ascontiguousarray(value, dtype), list(value.shape), mnn.NCHW, kind)

    def _outputs(self) -> list[Array]:
        try:
            found = self._module.forward(list(self._given))
            if len(found) != len(self._made):
                raise ToolError(f"MNN fails: it gives {len(found)} of {len(self._made)} outputs")
            return [_read(each, dtype) for each, (_, dtype) in zip(found, self._made, strict=True)]
        except (RuntimeError, ValueError, SystemError) as error:
            raise ToolError(f"MNN fails: {error}") from error


def _converted(model: str, file: str, flags: Sequence[str]) -> dict[str, Any] | None:
    """None, or why the converter does not write ``file``."""
    command = [sys.executable, "-P", "-s", "-c", _CONVERTER, "-f", "ONNX", "--bizCode", "convertkit"]
    command += ["--modelFile", model, "--MNNModel", file, *_EXACT, *flags]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0 and Path(file).exists():
        return None
    return _refusal(f"{done.stdout}\n{done.stderr}", done.returncode)


def _chosen(guide: dict[str, Any], layers: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """What the converter tells of its operators, with those alone that ``layers`` has, as it says."""
    parameters = guide["algo"][0]["quantParams"]
    kept = []
    for layer in parameters["layer"]:
        found = layers.get(layer["opName"].removesuffix(_MADE))
        if found is not None:
            bits, block = found
            (weight,) = layer["weight"]
            kept.append({**layer, "weight": [{**weight, "bits": bits, "blockSize": block, "asymmetric": False}]})
    parameters["layer"] = kept
    return guide


def _read(value: Any, dtype: str) -> Array:
    """A result in the layout of the source; integers of 64 bits and flags are 32-bit integers in MNN."""
    plain = mnn.convert(value, mnn.NCHW) if value.data_format == mnn.NC4HW4 else value
    array = np.array(plain.read()).reshape(value.shape)
    if array.dtype.kind in "iu" and np.dtype(dtype).kind in "iub":
        array = array.astype(dtype)
    return array


def _refusal(said: str, code: int) -> dict[str, Any]:
    """What the converter says, and the operator that it names where it does."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(_TALK)]
    found = _UNKNOWN.search(said)
    told = next((line for line in lines if "rror" in line or "upport" in line), lines[-1] if lines else "")
    ended = f"its converter ends by signal {-code}" if code < 0 else ""
    return {"operator": found[1] if found else None, "reason": (ended or told or "it does not say why")[:300]}
