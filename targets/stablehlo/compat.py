"""What we use of jaxlib's private modules.

``tests/targets/stablehlo/test_stablehlo.py`` names what a new version moves or changes.
"""

from __future__ import annotations

from typing import Any

from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, stablehlo

UNREADABLE = (ir.MLIRError, ValueError, RuntimeError)
"""What reading, checking and executing a module raise."""


def context() -> Any:
    """A context that knows StableHLO; attributes of other dialects are kept as text."""
    made, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made.append_dialect_registry(registry)
    made.load_all_available_dialects()
    stablehlo.register_dialect(made)
    chlo.register_dialect(made)
    made.allow_unregistered_dialects = True
    return made


def compiled(client: Any, device: Any, artifact: bytes) -> Any:
    """A portable artifact as an executable of XLA; a program runs on one device."""
    return client.compile_and_load(artifact, _jax.DeviceList((device,)), _jax.CompileOptions())
