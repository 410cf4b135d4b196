"""Cumulative sums, products and extremes as JAX lowers them for GPUs, in the form that it has for a CPU.

before:  chlo.scan(x) inits(0) { ^(x, carry): add(x, carry) }
after:   reduce_window(x, 0) { add } over all elements before one and itself

XLA aborts on the first on a CPU, and cannot run what StableHLO's own passes expand it into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.mlir import dtype_of, integer, shape_of, text
from convertkit.converters.stablehlo.module import walk
from convertkit.converters.stablehlo.ops.regions import expressions
from convertkit.errors import Unsupported

_SCAN, _COMPOSITE = "chlo.scan", "stablehlo.composite"
_IDENTITIES: Mapping[str, Callable[[np.dtype[Any]], float]] = {
    "add": lambda kind: 0,
    "multiply": lambda kind: 1,
    "maximum": lambda kind: -np.inf if kind.kind == "f" else np.iinfo(kind).min,
    "minimum": lambda kind: np.inf if kind.kind == "f" else np.iinfo(kind).max,
}


def without_scans(module: Any) -> bool:
    """Replace every scan in place; whether there was one.  Raises ``Unsupported`` for one that has no such form.

    A portable artifact holds a scan as a composite.
    """
    scans = [op for op in walk(module.operation) if _is_scan(op)]
    for op in scans:
        reducer = _reducer(op)
        start = None if reducer is None else _start(op, reducer)
        if reducer is None or start is None:
            raise Unsupported(
                f"{_SCAN} of another operator than add, multiply, maximum and minimum, or from another start than "
                "their identity: XLA does not run it on a CPU; export the program for a CPU (platforms=('cpu',))"
            )
        _windowed(op, reducer, start)
    return bool(scans)


def _is_scan(op: Any) -> bool:
    return op.name == _SCAN or (op.name == _COMPOSITE and text(op.attributes["name"]) == _SCAN)


def _reducer(scan: Any) -> str | None:
    """The operator that combines elements, where all that the scan gives is its results so far."""
    if len(scan.operands) != 2 or any(True for _ in scan.results[1].uses):
        return None
    found = expressions(scan.regions[0].blocks[0])
    head, *operands = found[0]
    same = len(set(found)) == 1 and sorted(operands) == [("arg", 0), ("arg", 1)]
    return head if same and head in _IDENTITIES and None not in shape_of(scan.operands[0].type) else None


def _start(scan: Any, reducer: str) -> Any:
    """The scalar that the scan starts with; None where it is not one that leaves every element as it is."""
    made = scan.operands[1].owner
    while not isinstance(made, mlir.Block) and made.name == "stablehlo.broadcast_in_dim":
        made = made.operands[0].owner
    if isinstance(made, mlir.Block) or made.name != "stablehlo.constant":
        return None
    attribute = mlir.DenseElementsAttr(made.attributes["value"])
    kind = dtype_of(made.results[0].type).numpy()
    if kind.kind not in "fiu" or not attribute.is_splat:
        return None
    value = np.asarray(attribute).reshape(-1)[0]
    if value != _IDENTITIES[reducer](kind):
        return None
    scalar = mlir.RankedTensorType.get((), mlir.RankedTensorType(made.results[0].type).element_type)
    splat = mlir.DenseElementsAttr.get_splat(scalar, attribute.get_splat_value())
    return mlir.Operation.create(
        "stablehlo.constant", [scalar], attributes={"value": splat}, ip=mlir.InsertionPoint(scan), loc=scan.location
    ).result


def _windowed(scan: Any, reducer: str, start: Any) -> None:
    told = scan.attributes["composite_attributes"] if scan.name == _COMPOSITE else scan.attributes
    x, axis = scan.operands[0], integer(told["dimension"])
    shape = [size or 0 for size in shape_of(x.type)]
    window = [size if place == axis else 1 for place, size in enumerate(shape)]
    padding = np.zeros((len(shape), 2), np.int64)
    backward = "is_reverse" in told and bool(mlir.BoolAttr(told["is_reverse"]).value)
    padding[axis, int(backward)] = max(shape[axis] - 1, 0)
    ones = mlir.DenseI64ArrayAttr.get([1] * len(shape))
    attributes = {
        "window_dimensions": mlir.DenseI64ArrayAttr.get(window),
        **dict.fromkeys(("window_strides", "base_dilations", "window_dilations"), ones),
        "padding": mlir.DenseElementsAttr.get(padding),
    }
    made = mlir.Operation.create(
        "stablehlo.reduce_window",
        [x.type],
        [x, start],
        attributes,
        regions=1,
        ip=mlir.InsertionPoint(scan),
        loc=scan.location,
    )
    body = made.regions[0].blocks.append(start.type, start.type)
    with mlir.InsertionPoint(body), scan.location:
        pair = mlir.Operation.create(f"stablehlo.{reducer}", [start.type], list(body.arguments))
        mlir.Operation.create("stablehlo.return", [], [pair.result])
    scan.results[0].replace_all_uses_with(made.result)
    scan.erase()
