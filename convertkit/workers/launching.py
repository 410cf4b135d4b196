"""How a worker's process is started, and the one that is started before it is known to be wanted.

Importing a framework takes a second, reading flags and recognising a file a tenth of one: :func:`foresee` starts the
process that a source's name promises, :class:`~convertkit.workers.process.Worker` takes it where it is exactly the
one that it would have started itself, and nothing but an installed framework is imported in it before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO

TORCH_ENVIRONMENT = MappingProxyType(
    {
        "OMP_WAIT_POLICY": "PASSIVE",
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }
)
"""Spinning, threads that wait for each other would cost a busy machine five times the time."""
_TORCH_SUFFIXES = (".pt", ".pth", ".pt2", ".ptl", ".jit", ".ckpt", ".safetensors")


@dataclass(frozen=True, slots=True)
class Launch:
    """What a worker's process is started with."""

    framework: str | None
    environment: Mapping[str, str]

    @classmethod
    def of(cls, framework: str | None, environment: Mapping[str, str]) -> Launch:
        """With this process's own environment and import path."""
        path = os.pathsep.join(filter(None, sys.path))
        return cls(framework, {**os.environ, **environment, "PYTHONPATH": path})


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


_SPARE: ContextVar[Launched | None] = ContextVar("spare", default=None)


def launched(launch: Launch) -> Launched:
    """The process that was foreseen, where it is the one that is wanted, or else a new one."""
    spare = _SPARE.get()
    if spare is not None:
        _SPARE.set(None)
        if spare.launch == launch and spare.process.poll() is None:
            return spare
        _discarded(spare)
    return _started(launch)


def foresee(arguments: Sequence[str]) -> None:
    """Start what an export will want, as far as the name of its source tells; it is taken at most once."""
    if arguments[:1] == ["export"] and any(each.endswith(_TORCH_SUFFIXES) for each in arguments):
        _SPARE.set(_started(Launch.of("torch", TORCH_ENVIRONMENT)))


def discard() -> None:
    """End what was foreseen and not taken."""
    spare = _SPARE.get()
    if spare is not None:
        _SPARE.set(None)
        _discarded(spare)


def _discarded(spare: Launched) -> None:
    spare.stop()
    spare.log.close()


def _started(launch: Launch) -> Launched:
    log = tempfile.TemporaryFile(prefix="convertkit-worker-")  # noqa: SIM115 - closed with the worker
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "convertkit.workers.serving", *filter(None, [launch.framework])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=dict(launch.environment),
        start_new_session=True,
    )
    return Launched(launch, process, log)
