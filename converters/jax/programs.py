"""A bare StableHLO module as a ``jax.export.Exported``, so that JAX can execute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax import export

from convertkit.artifact import Array
from convertkit.converters.stablehlo.importer import Interface, interface_of, refined, serialized
from convertkit.errors import Unsupported


def exported_module(module: bytes | str, interface: Interface) -> Any:
    """The module's ``main`` with flat positional inputs and a tuple of outputs."""
    scope = export.SymbolicScope()
    inputs = [_aval(each.shape, each.dtype, each.is_complex, scope) for each in interface.inputs]
    outputs = [_aval(each.shape, each.dtype, each.is_complex, scope) for each in interface.outputs]
    in_tree = jax.tree_util.tree_structure((tuple(inputs), {}))
    fields: dict[str, Any] = {
        "fun_name": "main",
        "in_tree": in_tree,
        "in_avals": tuple(inputs),
        "out_tree": jax.tree_util.tree_structure(tuple(outputs)),
        "out_avals": tuple(outputs),
        "_has_named_shardings": True,
        "_in_named_shardings": (None,) * len(inputs),
        "_out_named_shardings": (None,) * len(outputs),
        "in_shardings_hlo": (None,) * len(inputs),
        "out_shardings_hlo": (None,) * len(outputs),
        "nr_devices": 1,
        "platforms": ("cpu",),
        "ordered_effects": (),
        "unordered_effects": (),
        "disabled_safety_checks": (),
        "mlir_module_serialized": serialized(module),
        "calling_convention_version": export.maximum_supported_calling_convention_version,
        "module_kept_var_idx": tuple(range(len(inputs))),
        "uses_global_constants": any(isinstance(size, str) for each in interface.inputs for size in each.shape),
        "_get_vjp": None,
    }
    known = set(export.Exported.__dataclass_fields__)
    return export.Exported(**{name: value for name, value in fields.items() if name in known})


def specialised(module: bytes | str, feeds: Sequence[Array]) -> Any:
    """A module with dynamic dimensions, for inputs of these very shapes."""
    fixed = refined(module, [feed.shape for feed in feeds])
    return exported_module(fixed, interface_of(fixed))


def _aval(shape: tuple[int | str, ...], dtype: str, is_complex: bool, scope: Any) -> Any:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if is_complex:
        shape, kind = shape[:-1], np.dtype(np.complex64 if kind == np.float32 else np.complex128)
    if all(isinstance(size, int) for size in shape):
        return jax.core.ShapedArray(shape, kind)
    try:
        symbolic = export.symbolic_shape(",".join(map(str, shape)), scope=scope)
    except ValueError as error:
        raise Unsupported(f"dynamic dimensions {shape} that JAX cannot name: {error}") from error
    return jax.core.ShapedArray(symbolic, kind)
