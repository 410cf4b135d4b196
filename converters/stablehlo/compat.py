"""What we use of jaxlib's private modules, each with a test of what we rely on.

``jaxlib.mlir`` has the bindings of MLIR and StableHLO under public names, but no promise either: the whole importer
builds on them.  Where a new version moves or changes one of these here, ``tests/converters/stablehlo/test_compat.py``
names it.
"""

from __future__ import annotations

from typing import Any

from jaxlib import _jax
from jaxlib.mlir._mlir_libs import _jax_mlir_ext


def add_dialects(registry: Any) -> None:
    """Make a registry know the dialects that jaxlib brings."""
    _jax_mlir_ext.register_dialects(registry)


def portable(text: str | bytes, version: str) -> bytes:
    """A module as a portable artifact of that version of StableHLO, newer forms than that included."""
    return bytes(_jax.mlir.serialize_portable_artifact(text, version, use_mixed_serialization=True))
