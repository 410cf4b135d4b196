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
        self._predictor: Any = None

    def open(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Load ``model``; the value is the names of its inputs, in their order.

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
            if source.suffix == ".pdmodel":
                self._predictor = self._older()
                return Reply([str(name) for name in self._predictor.get_input_names()])
            self._layer = paddle.jit.load(str(folder / "m"))
            self._layer.eval()
            return Reply([str(spec.name) for spec in self._layer._input_spec()])
        except _ERRORS as error:
            raise SourceError(f"PaddlePaddle does not load {source.name}: {_brief(error)}") from error

    def _older(self) -> Any:
        """A predictor of a program of the form before PIR: to load it as a layer needs gradients of its operators."""
        from paddle import inference

        config = inference.Config(str(self._model), str(self._weights))
        config.disable_gpu()
        config.disable_glog_info()
        config.switch_ir_optim(False)  # what the program says, and no fusion
        return inference.create_predictor(config)

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
            if self._predictor is not None:
                return Reply(arrays=self._predicted(params["inputs"], arrays))
            with paddle.no_grad():
                found = self._layer(*given)
        except _ERRORS as error:
            raise SourceError(f"PaddlePaddle does not run the model: {_brief(error)}") from error
        outputs = found if isinstance(found, (list, tuple)) else [found]
        return Reply(arrays={str(place): np.array(each.numpy()) for place, each in enumerate(outputs)})

    def _predicted(self, names: list[str], arrays: Mapping[str, Array]) -> dict[str, Array]:
        for name in names:
            handle = self._predictor.get_input_handle(name)
            handle.reshape(arrays[name].shape)
            handle.copy_from_cpu(np.ascontiguousarray(arrays[name]))
        self._predictor.run()
        handles = [self._predictor.get_output_handle(name) for name in self._predictor.get_output_names()]
        return {str(place): np.array(each.copy_to_cpu()) for place, each in enumerate(handles)}


def _brief(error: Exception) -> str:
    """The last line that says something: the lines before it are places in PaddlePaddle's own sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "rror:" in line]
    return (told or lines or [type(error).__name__])[-1][:300]
