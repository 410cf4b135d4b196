"""Libraries that would tell their makers how they are used do not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_telemetry() -> Iterator[None]:
    """ONNX Runtime that is imported inside, here or in a worker process, sends nothing and keeps no events.

    Its official builds do, unless this variable is set when they are imported; a user's own value stays.  Source: its
    Privacy.md.
    """
    with _variable("ORT_DISABLE_TELEMETRY", os.environ.get("ORT_DISABLE_TELEMETRY", "1")):
        yield


@contextmanager
def as_in_ci() -> Iterator[None]:
    """OpenVINO that is imported inside sends no event about that and draws no number for its user.

    It does so at every import but for one in a CI job.  Source: openvino_telemetry, utils/opt_in_checker.py.
    """
    with _variable("CI", "true"):
        yield


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """The environment as it was before, but for one variable; worker processes that begin inside inherit it."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
