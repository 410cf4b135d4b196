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

from convertkit.errors import ConvertKitError


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
        raise refusal(f"{title} is no function")
    function: Callable[..., Any] = found
    return function


def told(error: Exception) -> str:
    """What was raised, and where."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({Path(frame.f_code.co_filename).name}:{line})"
