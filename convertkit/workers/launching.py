"""How a worker's process is started and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO

from convertkit.workers.elsewhere import Elsewhere, environment

TORCH_ENVIRONMENT = MappingProxyType(
    {
        "OMP_WAIT_POLICY": "PASSIVE",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }
)
"""Passive waiting: spinning OpenMP threads are five times slower on a busy machine.

No GPU: what a process has begun on one cannot go on in its forks, and it rounds products to TF32.
"""
_SAME_SETS = MappingProxyType({"PYTHONHASHSEED": "0"})


@dataclass(frozen=True, slots=True)
class Launch:
    """What a worker's process is started with."""

    framework: str | None
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def of(cls, framework: str | None, variables: Mapping[str, str]) -> Launch:
        """With this process's own environment and import path, and sets in the same order in every run.

        Converters name what they make in the order of their sets: names are part of an artifact.
        """
        path = os.pathsep.join(filter(None, sys.path))
        command = (sys.executable, "-P", "-m", "convertkit.workers.serving", *filter(None, [framework]))
        return cls(framework, command, {**os.environ, **_SAME_SETS, **variables, "PYTHONPATH": path})

    @classmethod
    def there(cls, elsewhere: Elsewhere, service: str, framework: str | None, variables: Mapping[str, str]) -> Launch:
        """In another environment, which sees what it is lent alone."""
        told = {**environment(os.environ), **_SAME_SETS, **variables}
        return cls(framework, tuple(elsewhere.command(service, framework)), told)


@dataclass(frozen=True, slots=True)
class Launched:
    """A worker's process, which waits to be told its service; ``log`` takes its stdout and stderr."""

    launch: Launch
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def stop(self) -> None:
        """End it and whatever it has started; the log stays open.

        Nobody waits for it: to give back the memory of a framework takes it up to 30 ms.
        """
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        threading.Thread(target=self.process.wait, daemon=True).start()


def launched(launch: Launch) -> Launched:
    """A new process, in a session of its own, that imports its framework and waits for its service."""
    log = tempfile.TemporaryFile(prefix="convertkit-worker-")  # noqa: SIM115 - closed with the worker
    process = subprocess.Popen(
        launch.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=dict(launch.environment),
        start_new_session=True,
    )
    return Launched(launch, process, log)
