"""Weights with the settings of their model beside them: a folder that ``save_pretrained`` of transformers wrote.

``config.json`` is data.  It names a class of transformers, which is imported only where ``--model`` names it, too.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import torch

from convertkit.errors import UsageError

_SETTINGS = "config.json"
_MOST_BYTES = 16 << 20


def missing(weights: Path) -> UsageError:
    """What to write for weights whose module nobody named."""
    name = _architecture(weights)
    if name is None:
        return UsageError(
            f"{weights.name} holds weights only; the module that they belong to is missing\n"
            "  try   --model pkg.mod:factory or --model file.py:factory, a function or class that returns the module"
        )
    return UsageError(
        f"{weights.name} holds weights only; {_SETTINGS} beside them says that they belong to {name}\n"
        f"  try   --model transformers:{name}"
    )


def module(kind: Any, weights: Path) -> torch.nn.Module | None:
    """The module that a class of transformers makes of the settings beside ``weights``; None for anything else.

    ``AutoModel`` and its like are told by ``from_config``, classes of models by ``config_class``.
    """
    folder = _folder(weights)
    if not inspect.isclass(kind) or not (folder / _SETTINGS).is_file():
        return None
    settings = getattr(kind, "config_class", None)
    if settings is not None:
        make: Any = kind
        made: torch.nn.Module = make(settings.from_pretrained(str(folder)))
        return made
    if hasattr(kind, "from_config"):
        package = importlib.import_module(kind.__module__.partition(".")[0])
        found: torch.nn.Module = kind.from_config(package.AutoConfig.from_pretrained(str(folder)))
        return found
    return None


def _folder(weights: Path) -> Path:
    return weights if weights.is_dir() else weights.parent


def _architecture(weights: Path) -> str | None:
    file = _folder(weights) / _SETTINGS
    try:
        settings = json.loads(file.read_bytes()) if file.stat().st_size <= _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(settings, dict) or "model_type" not in settings:
        return None
    named = settings.get("architectures")
    name = named[0] if isinstance(named, list) and named else "AutoModel"
    return name if isinstance(name, str) and name.isidentifier() else None
