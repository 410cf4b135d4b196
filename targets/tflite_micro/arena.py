"""How large the tensor arena has to be, as TensorFlow Lite Micro itself says, in a process that may crash."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from convertkit.errors import ToolError
from convertkit.targets.tflite_micro.file import FileGraph
from convertkit.targets.tflite_micro.footprint import Arena, foretold_arena
from convertkit.workers.programs import run_to_end

_PROBE = Path(__file__).with_name("probe.py")
_STEP_BYTES = 16
_SPARE_BYTES = 16 << 20
"""For what stays and for scratch, beside all values at once, when the runtime is first asked what it uses."""
_SET_UP_BYTES, _SET_UP_BYTES_OF_A_TENSOR = 4096, 160
"""More than setting a model up takes beside what stays: records for planning (``AllocationInfo``,
``GreedyMemoryPlanner``) and tensors that it reads scales from.  The search goes down from there where what was
foretold is not enough."""
_USED = re.compile(r"Arena allocation (head|tail) (\d+) bytes")
_SECONDS = 600


def measured_arena(model: Path, graphs: tuple[FileGraph, ...]) -> Arena:
    """The smallest arena, a multiple of 16, in which the model can be set up here.

    It may be more than what is in use: setting a small model up takes more than keeping it.  ``ToolError`` in the
    runtime's words where it does not take the model, or crashes.
    """
    ample = _ample_bytes(graphs)
    first = _probe(model, ample, ample)
    used = dict(_USED.findall(first.stderr))
    if len(used) < 2 or not first.stdout.strip():
        raise _not_run(model, first)
    head, tail = int(used["head"]), int(used["tail"])
    least = -(-(head + tail) // _STEP_BYTES) * _STEP_BYTES
    tensors = sum(len(graph.tensors) for graph in graphs)
    guess = least + (_SET_UP_BYTES + _SET_UP_BYTES_OF_A_TENSOR * tensors) // _STEP_BYTES * _STEP_BYTES
    for start in (max(foretold_arena(graphs).size, least), guess):
        if enough := [int(line) for line in _probe(model, start, least).stdout.split()]:
            return Arena(min(enough), head, tail)
    return Arena(ample, head, tail)


def _ample_bytes(graphs: tuple[FileGraph, ...]) -> int:
    """More than any model of these values takes, a multiple of 16."""
    values = sum(tensor.size_bytes for graph in graphs for tensor in graph.tensors if not tensor.constant)
    return _SPARE_BYTES + 4 * values // _STEP_BYTES * _STEP_BYTES


def _not_run(model: Path, found: subprocess.CompletedProcess[str]) -> ToolError:
    lines = [line.strip() for line in found.stderr.splitlines() if line.strip()]
    said = "; ".join(lines)[:400] or f"it ended with {found.returncode}"
    return ToolError(f"TensorFlow Lite Micro does not run {model.name}: {said}")


def _probe(model: Path, start: int, stop: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(_PROBE), str(model), str(start), str(stop)]
    return run_to_end(command, timeout_s=_SECONDS)
