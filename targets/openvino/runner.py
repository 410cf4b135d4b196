"""Run an IR in OpenVINO's CPU plugin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.errors import FeedError
from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs
from convertkit.targets.openvino.ir import check_weights
from convertkit.targets.openvino.runtime import EXACT, compiled, runtime_name, told


def _check_bits(name: str, value: Array) -> None:
    """``FeedError`` for 64-bit integers that the plugin, which computes in 32 bits, would cut off."""
    limits = np.iinfo(np.int32)
    wide = value.dtype in (np.int64, np.uint64) and value.size
    if wide and (int(value.min()) < limits.min or int(value.max()) > limits.max):
        raise FeedError(f"input {name} has integers beyond 32 bits, which is what OpenVINO's CPU plugin holds")


class OpenVinoRunner:
    """Computes in float32 what the file has in float, and quantizes nothing that the file does not."""

    def __init__(self, artifact: Artifact, *, threads: int = 0, exact: bool = True) -> None:
        """``threads`` is what a call may use, 0 what OpenVINO thinks best.

        Without ``exact`` the plugin chooses: bfloat16 where the CPU has it.
        """
        self._exact = exact
        self._artifact = artifact
        self._threads = threads
        self._request: Any = None

    def __enter__(self) -> Self:
        check_weights(self._artifact.path)
        settings = dict(EXACT) if self._exact else {}
        if self._threads:
            settings["INFERENCE_NUM_THREADS"] = str(self._threads)
        self._request = compiled(self._artifact.path, settings).create_infer_request()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._request = None

    @property
    def runtime(self) -> str:
        """What executes the artifact, with its version."""
        return runtime_name() if self._exact else f"{runtime_name()}, in bfloat16 where the CPU has it"

    def with_threads(self, count: int) -> OpenVinoRunner:
        """The same with so many threads."""
        return OpenVinoRunner(self._artifact, threads=count, exact=self._exact)

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``ToolError`` where the runtime fails."""
        values = self._values(self._encoded(feed))
        return {spec.name: spec.decode(value) for spec, value in zip(self._artifact.outputs, values, strict=True)}

    def invocation(self, feed: Feed) -> Callable[[], object]:
        """A call that computes all outputs for ``feed``."""
        return partial(self._values, self._encoded(feed))

    def _encoded(self, feed: Feed) -> list[Array]:
        given = encoded(self._artifact.inputs, feed)
        for name, value in given.items():
            _check_bits(name, value)
        return list(given.values())

    def _values(self, inputs: list[Array]) -> list[Array]:
        """Outputs in their order, which is that of the ONNX graph, as that of the inputs is."""
        assert self._request is not None, "the runner is used as a context manager"
        with told(f"OpenVINO fails on {self._artifact.path.name}"):
            found = self._request.infer(inputs, share_inputs=True)
            return [np.array(found[place]) for place in range(len(self._artifact.outputs))]
