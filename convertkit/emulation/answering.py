"""The program that executes a model file on whatever processor runs it: ``python -m convertkit.emulation.answering``.

It needs Python, NumPy and the runtime alone.  The first message on stdin names the file; each after it holds the inputs
of a call, and is answered with the outputs.  What a runtime refuses ends the program, with the reason on stderr.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from convertkit.artifact import Array
from convertkit.workers.messages import reader, receive, send


class _Model(Protocol):
    def answer(self, feed: Mapping[str, Array]) -> dict[str, Array]: ...


class _LiteRT:
    """As an app runs the file: XNNPACK, one thread; state that the file keeps between calls starts at zero."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(model_path=asked["path"], num_threads=1)
        self._signature = str(asked["signature"])
        self._inputs = dict(asked["inputs"]) or _places(self._interpreter.get_input_details())
        self._outputs = dict(asked["outputs"]) or _places(self._interpreter.get_output_details())

    def answer(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        interpreter = self._interpreter
        shapes = {each["index"]: tuple(each["shape"]) for each in interpreter.get_input_details()}
        if self._signature:
            interpreter.allocate_tensors()
            interpreter.reset_all_variables()
            answers = interpreter.get_signature_runner(self._signature)(**feed)
            return {name: np.asarray(value) for name, value in answers.items()}
        for name, value in feed.items():
            if shapes[self._inputs[name]] != value.shape:
                interpreter.resize_tensor_input(self._inputs[name], value.shape)
        interpreter.allocate_tensors()
        interpreter.reset_all_variables()
        for name, value in feed.items():
            interpreter.set_tensor(self._inputs[name], value)
        interpreter.invoke()
        sizes = {each["index"]: each for each in interpreter.get_output_details()}
        return {name: self._read(sizes[place]) for name, place in self._outputs.items()}

    def _read(self, output: Mapping[str, Any]) -> Array:
        if 0 in output["shape"]:  # LiteRT has no memory to hand out for it
            return np.zeros(tuple(output["shape"]), output["dtype"])
        return np.asarray(self._interpreter.get_tensor(output["index"]))


def _places(details: Any) -> dict[str, int]:
    return {str(each["name"]): int(each["index"]) for each in details}


class _OnnxRuntime:
    """As an app runs the file: default optimisations, the CPU provider, one thread."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(asked["path"], options, providers=["CPUExecutionProvider"])
        self._names = [each.name for each in self._session.get_outputs()]

    def answer(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        values = self._session.run(self._names, dict(feed))
        return {name: np.asarray(value) for name, value in zip(self._names, values, strict=True)}


_RUNTIMES: Mapping[str, Callable[[Mapping[str, Any]], _Model]] = {"litert": _LiteRT, "onnxruntime": _OnnxRuntime}


def main() -> None:
    """Answer until stdin ends; what runtimes print goes to stderr, not between the messages."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        read = reader(sys.stdin.buffer)
        asked, _ = receive(read)
        model = _RUNTIMES[asked["runtime"]](asked)
        send(answers, {"machine": platform.machine()}, {})
        while True:
            try:
                _, feed = receive(read)
            except EOFError:
                return
            send(answers, {}, model.answer(feed))


if __name__ == "__main__":
    main()
