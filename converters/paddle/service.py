"""In the engine's environment: PaddlePaddle holds the model, executes it and exports it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import SourceError, Unsupported
from convertkit.workers.process import Reply

_OPSET = 18
_ERRORS = (RuntimeError, ValueError, TypeError, KeyError, OSError, AttributeError, NotImplementedError)
"""What PaddlePaddle raises about a model: it has no exception of its own."""


class PaddleService:
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._layer: Any = None

    def open(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Load ``model``; the value is its inputs: name, sizes (None where dynamic) and dtype.

        Graph and weights alone are copied into ``folder`` first: a file of variables beside them, which older releases
        write, is a pickle.
        """
        import paddle

        paddle.set_device("cpu")
        source, folder = Path(params["model"]), Path(params["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        self._model, self._weights = folder / f"m{source.suffix}", folder / "m.pdiparams"
        shutil.copyfile(source, self._model)
        shutil.copyfile(source.with_suffix(".pdiparams"), self._weights)
        try:
            self._layer = paddle.jit.load(str(folder / "m"))
            self._layer.eval()
            specs = [(str(spec.name), list(spec.shape), str(spec.dtype)) for spec in self._layer._input_spec()]
        except _ERRORS as error:
            raise SourceError(f"PaddlePaddle does not load {source.name}: {_brief(error)}") from error
        return Reply([[name, [None if size < 0 else size for size in shape], kind] for name, shape, kind in specs])

    def convert(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Export what was loaded to the ONNX file ``to``."""
        import paddle2onnx

        files = (str(self._model), str(self._weights), str(params["to"]))
        try:
            paddle2onnx.export(*files, opset_version=_OPSET, enable_onnx_checker=True, verbose=False)
        except _ERRORS as error:
            raise Unsupported(f"Paddle2ONNX does not export the model: {_brief(error)}") from error
        if not Path(params["to"]).is_file():
            raise Unsupported("Paddle2ONNX does not export the model, and says no reason")
        return Reply()

    def run(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """All outputs by their places; ``inputs`` are the names of arrays in the order of the model."""
        import paddle

        given = [paddle.to_tensor(np.array(arrays[name])) for name in params["inputs"]]
        try:
            with paddle.no_grad():
                found = self._layer(*given)
        except _ERRORS as error:
            raise SourceError(f"PaddlePaddle does not run the model: {_brief(error)}") from error
        outputs = found if isinstance(found, (list, tuple)) else [found]
        return Reply(arrays={str(place): np.array(each.numpy()) for place, each in enumerate(outputs)})


def _brief(error: Exception) -> str:
    """The last line that says something: the lines before it are places in PaddlePaddle's own sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "rror:" in line]
    return (told or lines or [type(error).__name__])[-1][:300]
