"""Run ``model.param`` and ``model.bin`` in ncnn's own runtime, in a worker."""

from __future__ import annotations

import json
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
        ports = _read(path.with_name(PORTS))
        inputs = [[port["blob"], port["sizes"], port["whole"]] for port in ports["inputs"]]
        outputs = [
            [port["blob"], [int(size) for size in spec.shape]]
            for port, spec in zip(ports["outputs"], self._artifact.outputs, strict=True)
        ]
        worker.call("load", {"param": str(path), "bin": str(weights), "inputs": inputs, "outputs": outputs})

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for places that ncnn does not count as ONNX does."""
        for name, value in feed.items():
            if value.dtype.kind == "i" and value.size and int(value.min()) < 0:
                raise FeedError(f"input {name} has negative places, which ncnn does not count from the end")
        return super().run(feed)

    @property
    def runtime(self) -> str:
        """What executes the files, with its version."""
        return runtime_name()


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ToolError(f"{path.name} is not beside model.param, or is not JSON") from error
    return found
