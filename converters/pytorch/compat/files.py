"""Reading files: what torch's own unpickler calls, and which programs this torch reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

REBUILT: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor"): torch._utils._rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
}
"""What makes a tensor of its storage, by the names that pickles have for it."""


def program_version() -> int:
    """The major version of exported programs that this torch reads."""
    from torch._export.serde.schema import SCHEMA_VERSION  # which other files need not wait for

    return int(SCHEMA_VERSION[0])


def invalid_program() -> type[Exception]:
    """What ``torch.export.load`` raises for a graph that torch has saved and does not take back.

    It is not one of Python's own errors.  Source: torch/_export/verifier.py.
    """
    from torch._export.verifier import SpecViolationError  # as above

    found: type[Exception] = SpecViolationError
    return found


def forbid_pickles() -> None:
    """Let no ``torch.load`` of this process, a worker, run code that a file holds.

    ``torch.export.load`` falls back to pickles that do (torch/_export/serde/serialize.py).
    """
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
