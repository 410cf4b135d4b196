"""In the engine's environment: builds with RKNN-Toolkit2, and runs what it built in its simulator."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rknn.api import RKNN

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.workers.process import Reply

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_RANK_WITH_LAYOUT = 4


class RknnService:
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._built: Any = None
        self._inputs: list[str] = []

    def build(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Compile the ONNX at ``model`` for ``chip``, optimized at ``level``, into a file beside it, ``rknn``.

        ``inputs`` are names with their sizes.  The seal is written where the toolkit keeps a text of the user's.
        """
        made = RKNN(verbose=False)
        names, sizes = zip(*params["inputs"], strict=True)
        model = Path(params["model"])
        os.chdir(model.parent)
        with _told(model.name) as demand:
            settings = {"target_platform": params["chip"], "optimization_level": params["level"]}
            demand(made.config(**settings, custom_string=params["seal"]), "configure")
            demand(made.load_onnx(model=model.name, inputs=list(names), input_size_list=[*map(list, sizes)]), "load")
            demand(made.build(do_quantization=False), "build")
            demand(made.export_rknn(params["rknn"]), "export")
        self._built, self._inputs = made, list(names)
        return Reply()

    def simulate(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Start the simulator of what was built last."""
        with _told("the simulator") as demand:
            demand(self._built.init_runtime(), "start")
        return Reply()

    def run(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """All outputs for one call, by their places."""
        given = [np.ascontiguousarray(arrays[name]) for name in self._inputs]
        # One layout for each input, also for those of other ranks, which it does not move.
        layouts = ["nchw"] * len(given) if any(value.ndim == _RANK_WITH_LAYOUT for value in given) else None
        with _told("the simulator") as demand:
            found = self._built.inference(inputs=given, data_format=layouts)
            demand(0 if found is not None else -1, "run")
        return Reply(arrays={str(place): np.asarray(each) for place, each in enumerate(found)})


@contextlib.contextmanager
def _told(subject: str) -> Iterator[Any]:
    """Collects what the toolkit prints; ``ToolError`` with its first error where a step fails."""
    said = io.StringIO()

    def demand(code: int, step: str) -> None:
        if code != 0:
            raise ToolError(f"RKNN-Toolkit2 does not {step} {subject}: {_first_error(said.getvalue())}")

    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            yield demand
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError) as error:
            raise ToolError(f"RKNN-Toolkit2 fails at {subject}: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    """Of what the toolkit raises, which holds its own traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


def _first_error(said: str) -> str:
    lines = [_COLOURS.sub("", line).strip() for line in said.splitlines()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ") and "Unkown op target" not in line]
    return (errors or ["it does not say why"])[0][:300]
