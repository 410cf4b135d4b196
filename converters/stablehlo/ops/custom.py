"""Custom calls: CHLO operators that ONNX has, annotations without meaning here, and refusals."""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import integer, shape_of, text
from convertkit.converters.stablehlo.ops.lapack import ROUTINES
from convertkit.converters.stablehlo.ops.window import dynamic_reduce_window
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import I32, Operand, Tensor
from convertkit.errors import Unsupported

custom = Handlers()

_FUNCTIONS = {
    f"{dialect}.{name.lower()}": name
    for dialect in ("chlo", "mhlo")  # older exports call what CHLO has now
    for name in ("Erf", "Tan", "Sinh", "Cosh", "Asin", "Acos")
}
_TRANSPARENT = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"})
_ASSERTIONS = frozenset({"shape_assertion"})
_REFUSED = {
    "ApproxTopK": "which values it finds is the accelerator's own choice; lax.top_k is exact",
}


@custom.translates
def custom_call(b: Builder, op: hlo.CustomCallOp, *operands: Tensor) -> tuple[Operand, ...]:
    target = text(op.call_target_name)
    if target in _FUNCTIONS:
        return (b.elementwise(_FUNCTIONS[target], operands[0]),)
    if target == "chlo.erfc":
        wide = b.widened(operands[0])
        return (b.cast(b.sub(b.like(wide, 1.0), b.elementwise("Erf", wide)), operands[0].dtype),)
    if target in _HANDLED:
        return _HANDLED[target](b, op, *operands)
    if target in _TRANSPARENT:
        return operands
    if target in _ASSERTIONS:
        return ()
    if target.startswith("lapack_"):
        raise Unsupported(
            f"custom call @{target}: of LAPACK, only getrf, potrf and trsm of real numbers have an ONNX form"
        )
    unknown = "only the runtime that the module was exported for knows what it computes"
    raise Unsupported(f"custom call @{target}: {_REFUSED.get(target, unknown)}")


def top_k(b: Builder, op: hlo.CustomCallOp, x: Tensor) -> tuple[Operand, ...]:
    """``chlo.top_k``: the greatest values of the last axis, equal ones in order; NaN counts as greatest."""
    from convertkit.converters.stablehlo.ops.sort import greatest_first

    count = integer(op.attributes["k"]) if "k" in op.attributes else shape_of(op.results[0].type)[-1]
    carried = op.attributes.get("mhlo.attributes", {})
    if "largest" in carried and str(carried["largest"]) != "true":
        raise Unsupported("the least values of an axis with their places")
    values, places = greatest_first(b, x, count or 0)
    return values, b.cast(places, I32)


_HANDLED: dict[str, Callable[..., tuple[Operand, ...]]] = {"chlo.top_k": top_k, "mhlo.topk": top_k, **ROUTINES}
_HANDLED["stablehlo.dynamic_reduce_window"] = dynamic_reduce_window
