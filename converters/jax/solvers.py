"""JAX's calls of the solvers of GPUs as the calls of LAPACK that mean the same, which XLA has on a CPU.

``cusolver_potrf_ffi {lower = true}`` becomes ``lapack_spotrf_ffi {uplo = "L"}``, and so on.  The reference runs the
program so, and it is converted so.  Left alone is what LAPACK has no call for.

Source: ``jax/_src/lax/linalg.py``, where one rule lowers a primitive for CPUs and for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax import export, lax
from jax.extend.random import threefry2x32_p
from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.importer import entry_point
from convertkit.converters.stablehlo.inlining import inline_calls
from convertkit.converters.stablehlo.mlir import dtype_of, element, is_complex, shape_of, text
from convertkit.converters.stablehlo.module import read_module, walk
from convertkit.errors import Unsupported

Letters = Mapping[str, str]
"""The character arguments of a routine."""
Rule = Callable[[Any, Any], bool]
"""Replaces a call of the module, which is its first argument; whether it did."""

_KINDS: Letters = MappingProxyType({"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"})
_CONFIGS = ("mhlo.backend_config", "backend_config")


def on_processor(module: Any) -> tuple[str, ...]:
    """Replace such calls in place; the names of those that were replaced."""
    replaced = []
    for op in [op for op in walk(module.operation) if op.name == "stablehlo.custom_call"]:
        name = text(op.attributes["call_target_name"])
        if name in _RULES and _RULES[name](module, op):
            replaced.append(name)
    return tuple(dict.fromkeys(replaced))


def _cholesky(module: Any, op: Any) -> bool:
    return _replaced(op, _called(op, "potrf", {"uplo": _half(op)}))


def _elimination(module: Any, op: Any) -> bool:
    return _replaced(op, _called(op, "getrf", {}))


def _reflections(module: Any, op: Any) -> bool:
    return _replaced(op, _called(op, "geqrf", {}))


def _reflections_product(module: Any, op: Any) -> bool:
    return _replaced(op, _called(op, "ungqr" if is_complex(op.operands[0].type) else "orgqr", {}))


def _eigenvalues(module: Any, op: Any) -> bool:
    name = "heevd" if is_complex(op.operands[0].type) else "syevd"
    return _replaced(op, _called(op, name, {"mode": "V", "uplo": _half(op)}))


def _singular_values(module: Any, op: Any) -> bool:
    """``gesvdj`` and ``gesvdp`` give V where LAPACK gives its transpose."""
    if is_complex(op.operands[0].type):
        return False
    types = [result.type for result in op.results]
    rank = len(shape_of(types[3]))
    turned = [*range(rank - 2), rank - 1, rank - 2]
    sizes = list(mlir.RankedTensorType(types[3]).shape)
    types[3] = mlir.RankedTensorType.get([sizes[axis] for axis in turned], mlir.RankedTensorType(types[3]).element_type)
    made = _called(op, "gesdd", {"mode": _mode(op)}, types)
    axes = {"permutation": mlir.DenseI64ArrayAttr.get(turned)}
    point = mlir.InsertionPoint(op)
    v = mlir.Operation.create(
        "stablehlo.transpose", [op.results[3].type], [made.results[3]], axes, ip=point, loc=op.location
    )
    op.results[3].replace_all_uses_with(v.result)
    return _replaced(op, made)


def _singular_values_by_rows(module: Any, op: Any) -> bool:
    """``gesvd``, of which JAX gives wide matrices by rows: their factors come the other way round."""
    if _truth(op, "transposed") or not _truth(op, "compute_uv"):
        return False
    return _replaced(op, _called(op, "gesdd", {"mode": _mode(op)}))


def _half(op: Any) -> str:
    return "L" if _truth(op, "lower") else "U"


def _mode(op: Any) -> str:
    if not _truth(op, "compute_uv"):
        return "N"
    return "A" if _truth(op, "full_matrices") else "S"


def _truth(op: Any, name: str) -> bool:
    for holder in _CONFIGS:
        if holder in op.attributes:
            found = op.attributes[holder]
            if isinstance(found, mlir.DictAttr) and name in found:
                return bool(mlir.BoolAttr(found[name]).value)
    raise Unsupported(f"custom call @{text(op.attributes['call_target_name'])} without its argument {name}")


def _called(op: Any, name: str, letters: Letters, types: list[Any] | None = None) -> Any:
    """LAPACK's routine of the operands of ``op``, in front of it."""
    attributes = {each: op.attributes[each] for each in op.attributes if each not in (*_CONFIGS, "sdy.sharding_rule")}
    byte = mlir.IntegerType.get_unsigned(8)
    config = {key: mlir.IntegerAttr.get(byte, ord(letter)) for key, letter in letters.items()}
    attributes[_CONFIGS[0]] = mlir.DictAttr.get(config)
    full = f"lapack_{_KINDS[element(op.operands[0].type)]}{name}_ffi"
    attributes["call_target_name"] = mlir.StringAttr.get(full)
    kinds = [result.type for result in op.results] if types is None else types
    point = mlir.InsertionPoint(op)
    return mlir.Operation.create(op.name, kinds, list(op.operands), attributes, ip=point, loc=op.location)


def _replaced(op: Any, made: Any) -> bool:
    """Let the results of ``made`` be read, where they are those of ``op``."""
    for old, new in zip(op.results, made.results, strict=True):
        if old.type == new.type:
            old.replace_all_uses_with(new)
    op.erase()
    return True


def _permutation(module: Any, op: Any) -> bool:
    """The rows that exchanges lead to, by the loop that JAX has on CPUs."""
    size = shape_of(op.results[0].type)[-1]
    if size is None:
        return False
    return _computed(module, op, lambda swaps: lax.linalg.lu_pivots_to_permutation(swaps, size), 1)


def _threefry(module: Any, op: Any) -> bool:
    return _computed(module, op, threefry2x32_p.bind, 4)


def _computed(module: Any, op: Any, function: Callable[..., Any], count: int) -> bool:
    """What JAX makes of a function of the first operands on CPUs; the others are shapes of results."""
    operands = list(op.operands)[:count]
    program = export.export(jax.jit(function), platforms=("cpu",))(*_described(operands))
    made = read_module(module.context, program.mlir_module_serialized)
    inline_calls(made)
    copy = entry_point(made).operation.clone(ip=mlir.InsertionPoint(module.body))
    taken = {text(each.attributes["sym_name"]) for each in module.body.operations if "sym_name" in each.attributes}
    name = next(free for number in range(len(taken) + 1) if (free := f"computed_{number}") not in taken)
    copy.attributes["sym_name"] = mlir.StringAttr.get(name)
    copy.attributes["sym_visibility"] = mlir.StringAttr.get("private")
    call = mlir.Operation.create(
        "func.call",
        [result.type for result in op.results],
        operands,
        {"callee": mlir.FlatSymbolRefAttr.get(name)},
        ip=mlir.InsertionPoint(op),
        loc=op.location,
    )
    return _replaced(op, call)


def _described(operands: list[Any]) -> list[Any]:
    """The operands for JAX; dynamic sizes of the same axis are one."""
    scope = export.SymbolicScope()
    described = []
    for each in operands:
        sizes = ["size" + str(axis) if size is None else str(size) for axis, size in enumerate(shape_of(each.type))]
        shape = export.symbolic_shape(",".join(sizes), scope=scope)
        described.append(jax.ShapeDtypeStruct(shape, np.dtype(dtype_of(each.type).numpy())))
    return described


def _of_makers(name: str) -> tuple[str, str]:
    """The name of a call for NVIDIA's GPUs and for AMD's."""
    return f"cu{name}", f"hip{name}"


_NAMED: tuple[tuple[str, Rule], ...] = (
    ("solver_potrf_ffi", _cholesky),
    ("solver_getrf_ffi", _elimination),
    ("blas_getrf_batched_ffi", _elimination),
    ("solver_geqrf_ffi", _reflections),
    ("solver_orgqr_ffi", _reflections_product),
    ("solver_syevd_ffi", _eigenvalues),
    ("solver_gesvdj_ffi", _singular_values),
    ("solver_gesvdp_ffi", _singular_values),
    ("solver_gesvd_ffi", _singular_values_by_rows),
    ("_lu_pivots_to_permutation", _permutation),
    ("_threefry2x32_ffi", _threefry),
)
_RULES: Mapping[str, Rule] = MappingProxyType({full: rule for name, rule in _NAMED for full in _of_makers(name)})
