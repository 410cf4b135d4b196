"""The branch of one platform of a program that ``jax.export`` made for several.

before:  main(platform, x) { case(platform) { cpu's operators } { cuda's operators } }
after:   main(x) { cpu's operators }

Source: JAX's documentation of ``jax.export``, "Module calling convention": the platform's index is the first argument
of every function that chooses by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.inlining import inline_calls
from convertkit.converters.stablehlo.module import run_pass
from convertkit.errors import SourceError

_INDEX = "_platform_index"


def take_branch(module: Any, function: Any, index: int) -> None:
    """Let ``function`` of the module be that of one platform, in place; calls are inlined."""
    inline_calls(module)
    block = function.regions[0].blocks[0]
    described = list(function.attributes["arg_attrs"]) if "arg_attrs" in function.attributes else []
    if not described or _INDEX not in str(described[0]):
        raise SourceError("the artifact is damaged: it is for several platforms, its module takes no platform")
    platform = block.arguments[0]
    with mlir.InsertionPoint.at_block_begin(block):
        kind = mlir.RankedTensorType(platform.type).element_type
        attribute = mlir.DenseElementsAttr.get(np.array(index, np.int64 if str(kind) == "i64" else np.int32))
        number = mlir.Operation.create("stablehlo.constant", [platform.type], attributes={"value": attribute})
    platform.replace_all_uses_with(number.result)
    block.erase_argument(0)
    signature = mlir.FunctionType(mlir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = mlir.TypeAttr.get(
        mlir.FunctionType.get(list(signature.inputs)[1:], list(signature.results))
    )
    function.attributes["arg_attrs"] = mlir.ArrayAttr.get(described[1:])
    _fold_cases(function.operation)
    run_pass(module, "symbol-dce")


def _fold_cases(operation: Any) -> None:
    """Replace every choice by a known number below ``operation`` by what is chosen, outer ones first."""
    for region in operation.regions:
        for block in region.blocks:
            for op in list(block.operations):
                _fold(op.operation)


def _fold(op: Any) -> None:
    chosen = _number(op.operands[0]) if op.name == "stablehlo.case" else None
    if chosen is None:
        _fold_cases(op)
    else:
        _splice(op, chosen)


def _number(value: Any) -> int | None:
    """The number that a scalar is; None where it is not known."""
    if isinstance(value.owner, mlir.Block):
        return None
    op = value.owner
    if op.name == "stablehlo.constant":
        found = np.asarray(op.attributes["value"])
        return int(found) if found.ndim == 0 else None
    return _number(op.operands[0]) if op.name == "stablehlo.convert" else None


def _splice(case: Any, chosen: int) -> None:
    """Move the operators of the chosen branch, the last for a number out of range, to where ``case`` stands."""
    regions = list(case.regions)
    block = regions[chosen if 0 <= chosen < len(regions) else -1].blocks[0]
    for op in list(block.operations):
        if op.operation.name == "stablehlo.return":
            for old, returned in zip(case.results, list(op.operands), strict=True):
                old.replace_all_uses_with(returned)
            break
        op.operation.move_before(case)
        _fold(op.operation)
    case.erase()
