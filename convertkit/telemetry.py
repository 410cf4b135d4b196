"""Libraries that would tell their makers how they are used do not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_OFF = "ORT_DISABLE_TELEMETRY"


@contextmanager
def without_telemetry() -> Iterator[None]:
    """ONNX Runtime that is imported inside, here or in a worker process, sends nothing and keeps no events.

    Its official builds do, unless this variable is set when they are imported; the environment is as before in the end.
    A user's own value stays.  Source: its Privacy.md.
    """
    told = _OFF in os.environ
    os.environ.setdefault(_OFF, "1")
    try:
        yield
    finally:
        if not told:
            os.environ.pop(_OFF, None)
