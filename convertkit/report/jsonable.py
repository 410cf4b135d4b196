"""Values of ours as JSON that any reader takes, deterministic and without ``NaN`` or ``Infinity``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any


def jsonable(value: object) -> Any:
    """``value`` with dataclasses as objects, tuples and sets as lists, paths as text.

    JSON has no infinity, so floats that are not finite become ``"inf"``, ``"-inf"`` and ``"nan"``.
    """
    if isinstance(value, str | int) or value is None:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return [jsonable(item) for item in sorted(value)]
    if isinstance(value, (tuple, list)):
        return [jsonable(item) for item in value]
    if (values := getattr(value, "tolist", None)) is not None:  # NumPy's, which need not be imported to tell
        return jsonable(values())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value) if isinstance(value, PurePath) else value


def dumps(value: object) -> str:
    """Indented JSON text with a newline at the end."""
    return json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
