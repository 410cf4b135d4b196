"""The worker that holds ncnn: files in its runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ncnn
import numpy as np

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.targets.ncnn.runtime import SETTINGS
from convertkit.workers.held import HeldCalls
from convertkit.workers.process import Reply


class NcnnService(HeldCalls):
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._net: Any = None
        self._inputs: Sequence[Sequence[Any]] = ()
        self._outputs_of: Sequence[Sequence[Any]] = ()

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Open ``param`` and ``bin``; ``inputs`` are names, sizes and types of blobs, ``outputs`` names and shapes."""
        net = ncnn.Net()
        for name, value in SETTINGS.items():
            setattr(net.opt, name, value)
        for kind, read in (("param", net.load_param), ("bin", net.load_model)):
            path = Path(params[kind])
            if read(str(path)) != 0:
                raise ToolError(f"ncnn does not load {path.name}: it is not a whole file of it")
        self._net, self._inputs, self._outputs_of = net, params["inputs"], params["outputs"]
        return Reply()

    def _outputs(self) -> list[Array]:
        extractor = self._net.create_extractor()
        extractor.set_light_mode(True)
        for (name, sizes, whole), value in zip(self._inputs, self._given, strict=True):
            numbers = np.ascontiguousarray(value, np.int32 if whole else np.float32)
            blob = ncnn.Mat(numbers.reshape(sizes)).clone()
            if extractor.input(name, blob) != 0:
                raise ToolError(f"ncnn has no input {name}")
        return [self._extracted(extractor, name, shape) for name, shape in self._outputs_of]

    def _extracted(self, extractor: Any, name: str, shape: Sequence[int]) -> Array:
        code, blob = extractor.extract(name)
        if code != 0:
            raise ToolError(f"ncnn fails at {name} with code {code}")
        found = np.array(blob, np.float32)
        if found.size != np.prod(shape, dtype=np.int64):
            raise ToolError(f"ncnn gives {name} with {found.size} elements, and the graph says {list(shape)}")
        return found.reshape(shape)
