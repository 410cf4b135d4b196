"""Keeping what libraries log and print out of a caller's terminal, and nothing else."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from convertkit.telemetry import without_telemetry

_LOGGERS = ("onnxscript", "onnx_ir")
"""They tell by warnings which rewrites they left out: ours to judge, every one is proven or not."""


_STDERR = threading.RLock()
"""Held while native code may print what must not be seen, and while something is printed that must."""


@contextmanager
def native_stderr_silent() -> Iterator[None]:
    """Discard what native code prints; the whole process has one stderr, so :func:`visible_stderr` waits meanwhile."""
    with _STDERR:
        kept = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)


class CapturedStderr:
    """What native code has printed so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @property
    def text(self) -> str:
        """All of it, while it is being kept."""
        self._file.seek(0)
        return self._file.read().decode("utf-8", "replace")


@contextmanager
def native_stderr_captured() -> Iterator[CapturedStderr]:
    """Keep what native code prints off the terminal, to be read inside: where a library tells its errors only there."""
    with _STDERR, tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            yield CapturedStderr(file)
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def visible_stderr() -> Iterator[None]:
    """What is printed inside is seen, although another thread may be keeping native code silent."""
    with _STDERR:
        yield


@contextmanager
def stderr_if_free() -> Iterator[bool]:
    """Whether what is printed inside is seen: for what may be left out, since nobody is waited for."""
    free = _STDERR.acquire(blocking=False)
    try:
        yield free
    finally:
        if free:
            _STDERR.release()


@contextmanager
def quiet_libraries(*, verbose: bool) -> Iterator[None]:
    """Silence them, except with ``verbose`` and where the caller has set a level for one; telemetry is off always."""
    loggers = [] if verbose else [each for name in _LOGGERS if not (each := logging.getLogger(name)).level]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with without_telemetry():
            yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
