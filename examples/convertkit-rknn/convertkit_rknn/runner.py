"""Run a ``.rknn`` file in Rockchip's simulator.

The toolkit simulates what it has built in the same process, and does not load a file for that.  So the runner builds
the graph beside the file again, finds that this is the file, and runs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.errors import ToolError
from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs
from convertkit.workers.elsewhere import SAME_ADDRESSES
from convertkit.workers.process import Worker
from convertkit_rknn.files import Build, build_of, check_same
from convertkit_rknn.runtime import SERVICE, VARIABLES, runtime_name, there
from convertkit_rknn.stage import build_folder, build_in

_OTHER_BUILDS = 2


def shaped(spec: TensorSpec, found: Array | None) -> Array:
    """What the simulator gives for an output, in its shape; ``ToolError`` where it gives nothing, or another number."""
    shape = tuple(int(size) for size in spec.shape)
    if found is None:
        raise ToolError(f"{runtime_name()} gives no output {spec.name}")
    if found.size != math.prod(shape):
        raise ToolError(f"{runtime_name()} gives output {spec.name} as {found.shape}, and the model says {shape}")
    return found.reshape(shape)


class RknnRunner:
    """Executes the file that the toolkit makes of the delivered graph, once that is the delivered one."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._stack = ExitStack()
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        build = build_of(self._artifact.path)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(build_folder()))
            worker = stack.enter_context(Worker(SERVICE, env=VARIABLES, elsewhere=there()))
            again = build_in(folder, worker, self._artifact, build)
            check_same(self._artifact.path, again, lambda: self._others(build))
            worker.call("simulate")
            self._stack, self._worker = stack.pop_all(), worker
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker = None
        self._stack.__exit__(kind, error, trace)

    @property
    def runtime(self) -> str:
        """What executes the model here."""
        return f"{runtime_name()}, simulator"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for one that does not fit."""
        assert self._worker is not None, "the runner is used as a context manager"
        found = self._worker.call("run", {}, encoded(self._artifact.inputs, feed, "file")).arrays
        specs = self._artifact.outputs
        return {spec.name: spec.decode(shaped(spec, found.get(str(place)))) for place, spec in enumerate(specs)}

    def _others(self, build: Build) -> Iterator[Path]:
        """More builds, each in a process that has its memory elsewhere; a file is there until the next."""
        random = {name: value for name, value in VARIABLES.items() if name != SAME_ADDRESSES}
        for _ in range(_OTHER_BUILDS):
            with build_folder() as folder, Worker(SERVICE, env=random, elsewhere=there()) as worker:
                yield build_in(Path(folder), worker, self._artifact, build)
