"""Engines take seconds to import: a template of each worker imports once, and a case's workers are forks of it.

Services, protocol, isolation and variables are those of the command; only the start of the process is another.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import template

from convertkit.engines.environments import elsewhere
from convertkit.targets.stablehlo import runner as stablehlo
from convertkit.targets.tf_serving.stage import ENVIRONMENT as TENSORFLOW
from convertkit.workers import process
from convertkit.workers.elsewhere import Elsewhere
from convertkit.workers.launching import Launch, Launched, launched

_WAIT_S = 120.0
VARYING = frozenset({"PYTHONPATH"})
"""Variables that may be others in a template than in a worker."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a target starts a worker, and the ``modules`` that it imports then and later."""

    modules: tuple[str, ...]
    framework: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    package: str = "convertkit"

    @property
    def there(self) -> Elsewhere | None:
        """The engine's environment, which is lent the target's package, too."""
        if not self.engine:
            return None
        found = elsewhere(self.engine)
        return replace(found, lent=(*found.lent, self.package))

    @property
    def launch(self) -> Launch:
        """What the target's worker is launched with."""
        if not self.engine:
            return Launch.of(self.framework, self.variables)
        return Launch.there(elsewhere(self.engine), self.package, self.framework, self.variables)


def starts(target: str) -> tuple[Start, ...]:
    """Every way in which the target starts a worker; none where its engine runs in the process itself."""
    ours = f"convertkit.targets.{target.replace('-', '_')}"
    if target == "executorch":
        lowering = ("executorch.backends.xnnpack.partition.xnnpack_partitioner", f"{ours}.module", f"{ours}.service")
        lowering += ("warm_executorch",)
        return Start(lowering, "executorch.exir"), Start((f"{ours}.service",), "executorch.runtime")
    if target == "stablehlo":
        lowering = (f"{ours}.lowering",)
        return Start(lowering, "tensorflow", TENSORFLOW), Start((f"{ours}.running",), None, stablehlo.ENVIRONMENT)
    if target in ("iree", "tvm"):
        heavy = {"iree": ("iree.compiler.tools", "iree.runtime"), "tvm": ()}[target]
        return (Start((f"{ours}.service", *heavy), engine=target),)
    if target == "rknn":
        from convertkit_rknn.runtime import VARIABLES

        return (Start(("rknn.api", "convertkit_rknn.service"), None, VARIABLES, "rknn", "convertkit_rknn"),)
    if target == "litert-npu":
        return (Start(("convertkit.targets.qnn.service",)),)
    return (Start((f"{ours}.service",)),) if target in ("ethos-u", "mnn", "ncnn", "qnn") else ()


class Templates:
    """Those that run; a worker that would be launched otherwise is launched as ever."""

    def __init__(self) -> None:
        self._paths: dict[tuple[object, ...], Path] = {}
        self._kept: list[process.Worker] = []
        self._folder = tempfile.TemporaryDirectory(prefix="convertkit-templates-")

    def start(self, target: str) -> None:
        """Begin a template for every way in which the target starts a worker, and wait until all serve."""
        for start in starts(target):
            path = Path(self._folder.name) / f"{len(self._paths)}"
            worker = process.Worker(
                "template:Template", framework=start.framework, env=start.variables, elsewhere=start.there
            )
            worker.begin("serve", {"path": str(path), "modules": start.modules})
            self._kept.append(worker)
            self._paths[_key(start.launch)] = path
        process.launched = self.launched
        for worker, path in zip(self._kept, self._paths.values(), strict=True):
            _await(worker, path)

    def end(self) -> None:
        """Stop them."""
        for worker in self._kept:
            worker.__exit__(None, None, None)
        self._folder.cleanup()

    def launched(self, launch: Launch) -> Launched:
        """A fork of the template that was launched alike."""
        path = self._paths.get(_key(launch))
        if path is None:
            return launched(launch)
        log = tempfile.TemporaryFile(prefix="convertkit-worker-")  # noqa: SIM115 - closed with the worker
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))
        socket.send_fds(connection, [b"."], [log.fileno()])
        (pid,) = template.PID.unpack(connection.recv(template.PID.size, socket.MSG_WAITALL))
        streams = connection.makefile("wb", buffering=0), connection.makefile("rb", buffering=0)
        return Launched(launch, Forked(pid, *streams, connection.close), log)


@dataclass(slots=True)
class Forked:
    """What a worker needs of the ``Popen`` of its process; who forked it is told how it ended, and nobody else."""

    pid: int
    stdin: object
    stdout: object
    close: Callable[[], None]

    def wait(self) -> int:
        """It has closed its end, or was killed."""
        self.close()
        return 1


def _await(worker: process.Worker, path: Path) -> None:
    until = time.monotonic() + _WAIT_S
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"a template does not serve: {worker.log[-2000:]}")
        time.sleep(0.05)


def _key(launch: Launch) -> tuple[object, ...]:
    """What has to be the same."""
    variables = {name: value for name, value in launch.environment.items() if name not in VARYING}
    return launch.framework, launch.command, tuple(sorted(variables.items()))
