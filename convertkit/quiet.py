"""Keeping what libraries log out of a caller's terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("onnxscript", "onnx_ir")
"""They tell by warnings which rewrites they left out: ours to judge, every one is proven or not."""


@contextmanager
def quiet_libraries(*, verbose: bool) -> Iterator[None]:
    """Silence them, except with ``verbose`` and where the caller has set a level for one."""
    loggers = [] if verbose else [each for name in _LOGGERS if not (each := logging.getLogger(name)).level]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
