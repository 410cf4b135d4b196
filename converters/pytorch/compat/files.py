"""Reading files: what torch's own unpickler calls, and which programs this torch reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

REBUILT: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor"): torch._utils._rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
}
"""What makes a tensor of its storage, by the names that pickles have for it."""

PLAIN_FUNCTIONS = torch._C._disabled_torch_function_impl
"""As ``__torch_function__`` of a subclass of tensors: torch's functions take it as any tensor."""


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


@cache
def read_on_processor() -> None:
    """Let this process, a worker, read what was saved on a GPU as if it had been saved on the processor.

    An exported program names its device beside every tensor, constant and operator that makes one, and torch reads it
    on that device alone.  Source: ``deserialize_device`` of torch/_export/serde/serialize.py, which the reader of the
    archive has imported by its name (torch/export/pt2_archive/_package.py).
    """
    from torch._export.serde import serialize  # as above
    from torch.export.pt2_archive import _package

    torch.serialization.register_package(0, lambda _: None, _on_processor)
    for module in (serialize, _package):
        module.deserialize_device = lambda _: torch.device("cpu")


def _on_processor(storage: Any, location: str) -> Any:
    """A storage as it was read, which is on the processor; None leaves it to torch."""
    return None if location in ("cpu", "meta") else storage
