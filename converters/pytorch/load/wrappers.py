"""Modules without the wrappers that hide what ``forward`` takes: torch.compile, data parallelism, averages.

A wrapper's own ``forward`` takes ``*args``, and a compiled one would call a C++ compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from convertkit.converters.pytorch.compat import modules

_INNER: Mapping[str, str] = {
    "OptimizedModule": "_orig_mod",  # torch/_dynamo/eval_frame.py, imported by whoever made one
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "AveragedModel": "module",
}
"""torch's wrappers, and the name under which each holds the module."""
_COMPILED = "_orig_mod."


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside all wrappers, those of its parts taken off too, in place; nothing in it is compiled."""
    module = _inside(module)
    for each in module.modules():
        modules.forget_compiled(each)
        held = modules.parts(each)
        for name, child in held.items():
            if child is not None:
                held[name] = _inside(child)
    return module


def without_compiled(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights of compiled modules, wherever those lie, under the names of the modules themselves."""
    return {name.replace(_COMPILED, ""): value for name, value in weights.items()}


def _inside(module: Any) -> Any:
    while (inner := _held(module)) is not None:
        module = inner
    return module


def _held(module: Any) -> Any:
    kind = type(module)
    name = _INNER.get(kind.__name__)
    return modules.parts(module).get(name) if name and kind.__module__.startswith("torch.") else None
