"""Functions of the user's own, named ``pkg.mod:func``: found beside the script, their failures told with the line.

What such code raises is foreign: every kind of error becomes a sentence of ours.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convertkit.errors import ConvertKitError, FeedError, UsageError
from convertkit.recipe import METRICS


def imported(title: str, reference: str, refusal: type[ConvertKitError]) -> Callable[..., Any]:
    """The function behind ``pkg.mod:func``; ``refusal`` where there is none."""
    module, _, name = reference.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` would find it
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise refusal(f"{title} cannot be imported: {error}") from error
    except Exception as error:
        raise refusal(f"{title} cannot be imported: {told(error)}") from error
    if not callable(found):
        raise refusal(f"{title} is not a function")
    function: Callable[..., Any] = found
    return function


def metric_function(name: str) -> Callable[..., Any]:
    """The function of ``--metric pkg.mod:func``."""
    if ":" not in name:
        raise UsageError(f"--metric {name}: unknown; use {', '.join(METRICS)} or pkg.mod:func")
    return imported(f"--metric {name}", name, UsageError)


def data_function(source: str, flag: str = "--calib") -> Callable[..., Any]:
    """The function of ``--calib pkg.mod:func``, where ``source``, which ``flag`` gives, is not a path that exists."""
    module, colon, name = source.partition(":")
    if colon and name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return imported(source, source, FeedError)
    raise FeedError(f"{flag} {source} does not exist; expected an .npz, an .npy, a folder or pkg.mod:func")


def told(error: Exception) -> str:
    """What was raised, and where."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({Path(frame.f_code.co_filename).name}:{line})"
