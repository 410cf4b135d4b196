"""Calls of a module's functions replaced by what the functions do.

MLIR's own inliner leaves them alone, since jaxlib does not register what it needs for ``func``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.mlir import location, text
from convertkit.converters.stablehlo.module import functions, walk
from convertkit.errors import Unsupported


def inline_calls(module: Any) -> None:
    """Replace every call in place; the functions stay.  Raises ``Unsupported`` for one that calls itself."""
    known = functions(module)
    flat: set[str] = set()
    for name in known:
        _flatten(known, name, (), flat)


def _flatten(known: Mapping[str, Any], name: str, callers: tuple[str, ...], flat: set[str]) -> None:
    if name in callers:
        raise Unsupported(f"the function {name} calls itself; ONNX has no recursion")
    if name in flat:
        return
    for call in [op for op in walk(known[name].operation) if op.name == "func.call"]:
        callee = text(call.attributes["callee"])
        _flatten(known, callee, (*callers, name), flat)
        _splice(call, known[callee].regions[0].blocks[0])
    flat.add(name)


def _splice(call: Any, block: Any) -> None:
    """Copy the operators of ``block``, which holds no calls, to where ``call`` stands."""
    renamed = dict(zip(block.arguments, call.operands, strict=True))
    for op in block.operations:
        if op.operation.name == "func.return":
            for old, returned in zip(call.results, op.operands, strict=True):
                old.replace_all_uses_with(renamed.get(returned, returned))
            break
        copy = op.operation.clone(ip=mlir.InsertionPoint(call))
        for inner in _with(copy):
            if not location(inner):
                inner.location = mlir.Location.callsite(inner.location, [call.location])
            for place, operand in enumerate(inner.operands):
                if operand in renamed:
                    inner.operands[place] = renamed[operand]
        renamed.update(zip(op.operation.results, copy.results, strict=True))
    call.erase()


def _with(operation: Any) -> Iterator[Any]:
    yield operation
    yield from walk(operation)
