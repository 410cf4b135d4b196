"""Read a StableHLO module and bring it to the operators that handlers exist for.

StableHLO's own passes do the exact expansions: CHLO mathematics as JAX and XLA decompose it,
quantized operators as dequantize, compute, quantize, and so on.  CHLO operators with an ONNX
counterpart of the same meaning are kept from being expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from jaxlib.mlir import ir as mlir
from jaxlib.mlir import passmanager
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from convertkit.converters.stablehlo import compat
from convertkit.converters.stablehlo.mlir import element
from convertkit.converters.stablehlo.newer import installed_version, newer_version
from convertkit.converters.stablehlo.older import in_todays_spelling
from convertkit.errors import SourceError

PORTABLE = b"ML\xefR"
_UNREADABLE = (mlir.MLIRError, ValueError, RuntimeError)
_UNKNOWN = re.compile(r"unregistered operation '([\w.]+)'")
_DIALECT = re.compile(r"dialect '(\w+)' is unknown")
_KEPT_CHLO = frozenset({"chlo.erf", "chlo.top_k", "chlo.tan", "chlo.sinh", "chlo.cosh", "chlo.asin", "chlo.acos"})
_TOP_K = frozenset({"chlo.top_k", "mhlo.topk"})
AS_NUMBERS = "convertkit.as_numbers"
"""Marks an order that takes zeros of both signs for equal, where StableHLO's own is total."""
_HALF_OR_SINGLE = frozenset({"f32", "f16", "bf16"})
_PIPELINE = (
    "inline",
    "func.func(stablehlo-legalize-quantized-op-to-qdq)",
    "func.func(shape-legalize-to-stablehlo)",
    "func.func(chlo-legalize-to-stablehlo)",
    "func.func(stablehlo-complex-math-expander)",
    "func.func(stablehlo-legalize-deprecated-ops)",
    "func.func(stablehlo-canonicalize-dynamism)",
    "canonicalize",
    "cse",
    "symbol-dce",
)


@cache
def _register_passes() -> None:
    stablehlo.register_stablehlo_passes()


def context() -> Any:
    """A context that knows every dialect that jaxlib carries."""
    _register_passes()
    ctx = mlir.Context()
    registry = mlir.DialectRegistry()
    compat.add_dialects(registry)
    ctx.append_dialect_registry(registry)
    ctx.load_all_available_dialects()
    stablehlo.register_dialect(ctx)
    chlo.register_dialect(ctx)
    sdy.register_dialect(ctx)  # JAX annotates shardings with it, even for one device
    _load_quant(ctx)
    return ctx


def _load_quant(ctx: Any) -> None:
    """Quantized types, whose dialect jaxlib registers only as one that this pass depends on."""
    run_pass(mlir.Module.parse("", ctx), "vhlo-legalize-to-stablehlo")


def read_module(ctx: Any, source: bytes | str) -> Any:
    """Parse MLIR text, MLIR bytecode or a portable StableHLO artifact.

    Raises ``SourceError`` with the parser's first complaint.
    """
    try:
        if isinstance(source, bytes) and source.startswith(PORTABLE):
            try:
                return stablehlo.deserialize_portable_artifact(ctx, source)
            except _UNREADABLE:
                return mlir.Module.parse(source, ctx)
        return mlir.Module.parse(source, ctx) if isinstance(source, bytes) else _parsed_text(ctx, source)
    except _UNREADABLE as error:
        if foreign := _foreign(source):
            raise SourceError(f"operators that are not StableHLO's: {', '.join(foreign)}") from error
        if unknown := _DIALECT.search(str(error)):
            raise SourceError(f"it has operators of the dialect {unknown[1]!r}, which are not StableHLO's") from error
        raise SourceError(
            f"the StableHLO module cannot be read: {_of_newer(source, error) or _complaint(error)}"
        ) from error


def _of_newer(source: bytes | str, error: Exception) -> str:
    """What is wrong with an artifact that a newer StableHLO wrote; empty for any other."""
    version = newer_version(source)
    if version is None:
        return ""
    unknown = _UNKNOWN.search(str(error))
    what = f"it has the operator {unknown[1]}, which is not known here" if unknown else _complaint(error)
    theirs, ours = (".".join(map(str, each)) for each in (version, installed_version()))
    return (
        f"{what}; StableHLO {theirs} wrote it, the installed jaxlib reads {ours}: install a newer jaxlib, or export "
        "the program with an older JAX"
    )


def _foreign(source: bytes | str) -> list[str]:
    """The operators of dialects that are not known, as TensorFlow's bridge leaves those it cannot convert."""
    ctx = context()
    ctx.allow_unregistered_dialects = True
    try:
        module = mlir.Module.parse(source, ctx)
    except _UNREADABLE:
        return []
    return sorted({op.name for op in walk(module.operation) if not ctx.is_registered_operation(op.name)})


def _parsed_text(ctx: Any, source: str) -> Any:
    """Text of any version; what is wrong with it is said of the text as it stands."""
    try:
        return mlir.Module.parse(source, ctx)
    except _UNREADABLE:
        today = in_todays_spelling(source)
        if today == source:
            raise
        return mlir.Module.parse(today, ctx)


def portable(module: Any) -> bytes:
    """The module as a portable artifact of this StableHLO version; CHLO operators stay, as in what JAX serializes."""
    return compat.portable(module, stablehlo.get_current_version())


def prepare(module: Any) -> None:
    """Run the pipeline in place.  Raises ``SourceError`` where a pass refuses the module."""
    with module.context:
        for op in [op for op in walk(module.operation) if _is_kept(op)]:
            _keep(op)
        for step in _PIPELINE:
            run_pass(module, step)


def compare_as_numbers(module: Any) -> None:
    """Mark every ``chlo.top_k``, by whatever name, in place: it orders numbers, not their bits."""
    for op in walk(module.operation):
        called = op.attributes["call_target_name"] if op.name == "stablehlo.custom_call" else None
        if op.name == "chlo.top_k" or (called is not None and mlir.StringAttr(called).value in _TOP_K):
            op.attributes[AS_NUMBERS] = mlir.UnitAttr.get(module.context)


def run_pass(module: Any, step: str) -> None:
    """Run one pass in place; ``SourceError`` where it refuses the module."""
    try:
        passmanager.PassManager.parse(f"builtin.module({step})", context=module.context).run(module.operation)
    except mlir.MLIRError as error:
        raise SourceError(f"the StableHLO module does not survive {step}: {_complaint(error)}") from error


def functions(module: Any) -> dict[str, Any]:
    """Functions of the module by name."""
    found = (op for op in module.body.operations if op.operation.name == "func.func")
    return {mlir.StringAttr(op.attributes["sym_name"]).value: op for op in found}


def walk(operation: Any) -> Iterator[Any]:
    """Every operation below ``operation``, in order."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation
                yield from walk(op.operation)


def _is_kept(op: Any) -> bool:
    if op.name == "chlo.erfc":
        # GELU scales it; elsewhere the far tail counts, which only the expansion computes.
        users = [use.owner.operation.name for use in op.results[0].uses]
        single = element(op.operands[0].type) in _HALF_OR_SINGLE
        return single and bool(users) and set(users) == {"stablehlo.multiply"}
    if op.name not in _KEPT_CHLO:
        return False
    return op.name == "chlo.top_k" or element(op.operands[0].type) in _HALF_OR_SINGLE


def _keep(op: Any) -> None:
    """Hide a CHLO operator from the expansion as a custom call of the same name."""
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["call_target_name"] = mlir.StringAttr.get(op.name)
    call = mlir.Operation.create(
        "stablehlo.custom_call",
        results=[result.type for result in op.results],
        operands=list(op.operands),
        attributes=attributes,
        ip=mlir.InsertionPoint(op),
        loc=op.location,
    )
    for old, new in zip(op.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def _complaint(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if "error:" in line] or lines
    return useful[0].split("error:")[-1].strip()[:300] if useful else type(error).__name__
