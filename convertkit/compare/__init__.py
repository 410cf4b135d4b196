"""Two models beside each other: whether they compute the same, what differs, and where that begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convertkit.compare.agreement import Verification, verify

__all__ = ["Verification", "verify"]

_HOMES = {"Verification": "agreement", "verify": "agreement"}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a command that compares nothing loads nothing of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
