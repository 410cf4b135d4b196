"""Run ``model.param`` and ``model.bin`` in ncnn's own runtime, in a worker."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from convertkit.errors import FeedError, ToolError
from convertkit.stage import Feed, Outputs
from convertkit.targets.ncnn.runtime import SERVICE, runtime_name
from convertkit.workers.process import Worker
from convertkit.workers.running import PlacedRunner

PORTS = "ports.json"
"""Which blob is which input or output, and their sizes: blobs have no batch, and no white space in their names."""


class NcnnRunner(PlacedRunner):
    """Executes the delivered files in float32."""

    fixed = "files"

    def _begun(self) -> Worker:
        return Worker(SERVICE)

    def _load(self, worker: Worker) -> None:
        path = self._artifact.path
        weights = path.with_suffix(".bin")
        if not weights.is_file():
            raise ToolError(f"{weights.name} is not beside {path.name}")
        inputs, outputs = _read(path.with_name(PORTS))
        if len(inputs) != len(self._artifact.inputs) or len(outputs) != len(self._artifact.outputs):
            raise ToolError(f"{PORTS} has another number of inputs and outputs than the model")
        shapes = [[int(size) for size in spec.shape] for spec in self._artifact.outputs]
        ports = {"inputs": inputs, "outputs": list(zip(outputs, shapes, strict=True))}
        worker.call("load", {"param": str(path), "bin": str(weights), **ports})

    @cached_property
    def _places(self) -> frozenset[str]:
        """Inputs that are places in a table."""
        ports, _ = _read(self._artifact.path.with_name(PORTS))
        return frozenset(spec.name for spec, port in zip(self._artifact.inputs, ports, strict=True) if port[2])

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for places that ncnn does not count as ONNX does."""
        for name, value in feed.items():
            if name in self._places and value.size and int(value.min()) < 0:
                raise FeedError(f"input {name} has negative places, which ncnn does not count from the end")
        return super().run(feed)

    @property
    def runtime(self) -> str:
        """What executes the files, with its version."""
        return runtime_name()


def _read(path: Path) -> tuple[list[tuple[str, list[int], bool]], list[str]]:
    """Names, sizes and types of the blobs of inputs, and names of those of outputs."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        inputs = [(str(port["blob"]), list(map(int, port["sizes"])), bool(port["whole"])) for port in found["inputs"]]
        return inputs, [str(port["blob"]) for port in found["outputs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path.name} is not beside model.param, or is not what an export wrote") from error
