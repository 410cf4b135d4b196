"""What a module holds."""

from __future__ import annotations

from typing import Any

import torch

OWN = frozenset(torch.nn.Module().__dict__)
"""Attributes that every module has."""


def attributes(module: torch.nn.Module) -> dict[str, Any]:
    """What a module itself holds by name, buffers that are None included; parameters and parts are not among them."""
    return {**module.__dict__, **module._buffers}


def parts(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """The modules that a module holds by name; what is put there takes their place."""
    held: dict[str, torch.nn.Module | None] = module._modules
    return held


def forget_compiled(module: torch.nn.Module) -> None:
    """Undo ``Module.compile()``."""
    module.__dict__.pop("_compiled_call_impl", None)
