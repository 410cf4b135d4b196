"""By how much rounding changes a model's results, which decides by how much another engine may differ.

Two engines that compute the same model add up in other orders, fuse other operators, and so round at other places.
How much that may change is measured by taking the model's own roundings away: pairs of 8-bit integers and floats,
float16, bfloat16; of a model without any, by rounding the factors of its products to the 10 bits that TF32 keeps.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit import plugins
from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.onnx.bfloats import in_float32
from convertkit.onnx.edit import add_constant, initializer, inserted
from convertkit.onnx.halves import widen_halves
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model
from convertkit.parity.golden import Vector
from convertkit.stage import Runner

_GREATEST = {
    ir.DataType.INT8: (np.float32(-128), np.float32(127)),
    ir.DataType.FLOAT8E4M3FN: (np.float32(-448), np.float32(448)),
}
"""The ends of what TensorRT's pairs hold."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
_SPLIT = 2**13 + 1
"""Of the 24 bits of a float32, this factor leaves 11, as TF32 does: one implied, 10 stored."""


@contextmanager
def otherwise_rounded(artifact: Artifact) -> Iterator[Runner]:
    """Runs ``artifact`` without its roundings, or with those of TF32 where it has none; its interface is the same."""
    model = load_own(artifact.path)
    rounds = [widen_halves(model), in_float32(model, rounds=False), without_pairs(model)]
    if not any(rounds):
        round_factors(model)
    with tempfile.TemporaryDirectory(prefix="convertkit-") as folder:
        made = save_model(model, Path(folder) / artifact.path.name, "rounded otherwise")
        with plugins.runner(replace(artifact, path=made.path)) as runner:
            yield runner


def changed(artifact: Artifact, runner: Runner, vector: Vector) -> Mapping[str, float]:
    """For each output the greatest difference of ``vector`` from what ``runner`` computes.

    Of other than floats it is infinite where anything differs: what roundings decide may be any number.
    """
    got = runner.run({spec.name: spec.decode(np.asarray(vector.inputs[spec.name])) for spec in artifact.inputs})
    return {spec.name: _apart(spec, vector.outputs[spec.name], got[spec.name]) for spec in artifact.outputs}


def _apart(spec: TensorSpec, rounded: Array, other: Array) -> float:
    if "float" not in spec.dtype:
        return 0.0 if np.array_equal(rounded, other) else math.inf
    apart = np.abs(rounded.astype(np.float64) - np.asarray(other, np.float64))
    return float(apart[np.isfinite(apart)].max(initial=0))


def without_pairs(model: ir.Model) -> bool:
    """Values that are computed keep their floats, in place, and their limits; False where none were rounded.

    Stored weights stay as they are.
    """
    found = False
    for node in list(model.graph.all_nodes()):
        integers = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        rounds = None if integers is None else integers.producer()
        if rounds is not None and rounds.op_type == "QuantizeLinear":
            found = True
            _stand_in(node, ir.node("Clip", [rounds.inputs[0], *_limits(node)], name=node.name))
    return found


def _limits(node: ir.Node) -> tuple[ir.Value, ...]:
    """The least and the greatest value of a pair with one scale and the zero point 0; none where there are several."""
    integers, scale = node.inputs[0], node.inputs[1]
    if integers is None or scale is None or scale.const_value is None or scale.const_value.size != 1:
        return ()
    greatest = _GREATEST.get(integers.dtype or ir.DataType.UNDEFINED)
    if greatest is None or not isinstance(node.graph, ir.Graph):
        return ()
    step = scale.const_value.numpy().reshape(())
    names = [f"{node.outputs[0].name}/{end}" for end in ("least", "greatest")]
    return tuple(add_constant(node.graph, name, step * end) for name, end in zip(names, greatest, strict=True))


def round_factors(model: ir.Model) -> None:
    """Both factors of every product to the 10 stored bits of TF32, in place; exponents stay as they are."""
    for node in list(model.graph.all_nodes()):
        for place, value in enumerate(node.inputs[:2]) if node.op_type in _PRODUCTS else ():
            if value is None or value.dtype not in (ir.DataType.FLOAT, None):
                continue
            node.replace_input_with(place, _leading_bits(node, value))


def _leading_bits(before: ir.Node, value: ir.Value) -> ir.Value:
    """``value`` rounded to nearest.

    Float16 has as many bits, and makes zeros of small numbers.
    Source: T. J. Dekker, "A floating-point technique for extending the available precision", 1971, section 5.
    """
    split = initializer(before, np.array(_SPLIT, np.float32), f"{value.name}/split")
    large = inserted(before, "Mul", [value, split], value).outputs[0]
    rest = inserted(before, "Sub", [value, large], value).outputs[0]
    return inserted(before, "Add", [large, rest], value).outputs[0]


def _stand_in(node: ir.Node, other: ir.Node) -> None:
    """``other`` in the place of ``node``; its result takes over name, type and readers."""
    old, new = node.outputs[0], other.outputs[0]
    new.type, new.shape, new.name = old.type, old.shape, old.name
    assert isinstance(node.graph, ir.Graph)
    node.graph.insert_before(node, other)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    node.graph.remove(node, safe=True)
