"""Custom calls: CHLO operators that ONNX has, annotations without meaning here, and refusals."""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import integer, shape_of, text
from convertkit.converters.stablehlo.module import AS_NUMBERS
from convertkit.converters.stablehlo.ops.dynamic_window import dynamic_reduce_window
from convertkit.converters.stablehlo.ops.lapack import ROUTINES
from convertkit.converters.stablehlo.ops.orthogonal import ROUTINES as ORTHOGONAL
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
_ROUTINES = "only geqrf, gesdd, getrf, orgqr, potrf, syevd and trsm"
_OF_GPUS = ("cu", "hip", "gpu$", "triton", "mosaic_gpu", "xla.gpu")
_FOR_THE_PROCESSOR = "export the program for a CPU (platforms=('cpu',)), which spells out what it computes"


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
        raise Unsupported(f"custom call @{target}: of LAPACK, {_ROUTINES} of real numbers have an ONNX form")
    if target.removeprefix("__").startswith(_OF_GPUS):
        raise Unsupported(f"custom call @{target}: a kernel of a GPU; {_FOR_THE_PROCESSOR}")
    raise Unsupported(
        f"custom call @{target}: only the runtime that the module was exported for knows what it computes"
    )


def top_k(b: Builder, op: hlo.CustomCallOp, x: Tensor) -> tuple[Operand, ...]:
    """``chlo.top_k``: the greatest values of the last axis, equal ones in order; NaN counts as greatest.

    Marked with ``AS_NUMBERS`` it takes zeros of both signs for equal, as TensorFlow's own kernel does.
    """
    from convertkit.converters.stablehlo.ops.sort import greatest_first

    count = integer(op.attributes["k"]) if "k" in op.attributes else shape_of(op.results[0].type)[-1]
    carried = op.attributes.get("mhlo.attributes", {})
    if "largest" in carried and str(carried["largest"]) != "true":
        raise Unsupported("the least values of an axis with their places")
    values, places = greatest_first(b, x, count or 0, total=AS_NUMBERS not in op.attributes)
    return values, b.cast(places, I32)


def approximate_top_k(b: Builder, op: hlo.CustomCallOp, x: Tensor, places: Tensor, *_: Tensor) -> tuple[Operand, ...]:
    """``ApproxTopK``: the exact extremes, which JAX finds on a CPU; an accelerator may miss some."""
    from convertkit.converters.stablehlo.ops.sort import sort_keys

    how = next(op.attributes[name] for name in ("mhlo.backend_config", "backend_config") if name in op.attributes)
    axis, count = integer(how["reduction_dim"]) % x.rank, integer(how["top_k"])
    if shape_of(op.results[0].type)[axis] != count:
        raise Unsupported("custom call @ApproxTopK: candidates that are not aggregated to the extremes")
    keys = sort_keys(b.regions.function(text(op.called_computations[0])), 2)
    if keys is None:
        raise Unsupported("custom call @ApproxTopK: a comparator that is not recognised as an order by values")
    values, found = b.top_k(x, count, axis, keys[0].descending)
    return values, b.take_along(places, found, axis)


_HANDLED: dict[str, Callable[..., tuple[Operand, ...]]] = {**ROUTINES, **ORTHOGONAL}
_HANDLED |= {"chlo.top_k": top_k, "mhlo.topk": top_k, "ApproxTopK": approximate_top_k}
_HANDLED["stablehlo.dynamic_reduce_window"] = dynamic_reduce_window
