"""Attention as products and a Softmax, which have integer kernels, for ``--full-integer``.

before:  y = Attention (q, k, v)
after:   y = MatMul (Softmax (MatMul (Mul (q, scale), Transpose (k))), v)

Heads that are packed are taken apart and packed again.  Several heads of queries on one of keys are rows of one matrix.
Places in order, flags and infinities in a mask become a mask in front of the Softmax; see ``finite_masks``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, inserted, is_float32, replaced
from convertkit.profile import QuantProfile

_PARTS = ("MatMul.dynamic", "Mul", "Softmax")
_OPERANDS = _MASK = 3


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of one Attention; ``packed`` says that heads lie beside each other in the last axis."""

    batch: int | ir.SymbolicDim
    heads: int
    shared: int
    rows: int
    places: int
    width: int
    out: int
    packed: bool

    @property
    def together(self) -> int:
        """Heads of queries that read one head of keys."""
        return self.heads // self.shared


def attention_in_parts(model: ir.Model, profile: QuantProfile) -> None:
    """Write out every Attention in place that has a form, where ``profile`` has rules for the parts alone."""
    if profile.rule(("Attention",)) is not None or any(profile.rule((part,)) is None for part in _PARTS):
        return
    for node in tuple(model.graph):
        if node.op_type == "Attention" and not node.domain and (sizes := _sizes(node)) is not None:
            _rewrite(model.graph, node, sizes)


def _sizes(node: ir.Node) -> _Sizes | None:
    """Of float32 operands that are all of them; None for all others."""
    operands = node.inputs[:_OPERANDS]
    windows = [node.attributes.get_int(f"{side}_window_size", -1) >= 0 for side in ("left", "right")]
    more = any(value is not None for value in node.inputs[_MASK + 1 :])
    if more or any(windows) or _is_read_inside(node):
        return None
    if any(value is None or value.shape is None or not is_float32(value) for value in operands):
        return None
    shapes = [list(value.shape or ()) for value in operands if value is not None]
    q, k, v = ([size for size in shape[1:] if isinstance(size, int)] for shape in shapes)
    batch = shapes[0][0]
    if [len(q), len(k), len(v)] != [len(shape) - 1 for shape in shapes]:
        return None
    if len(q) == 3:
        found = _Sizes(batch, q[0], k[0], q[1], k[1], q[2], v[2], packed=False)
    else:
        heads, shared = (node.attributes.get_int(f"{each}_num_heads", 0) for each in ("q", "kv"))
        if not heads or not shared:
            return None
        found = _Sizes(batch, heads, shared, q[0], k[0], q[1] // heads, v[1] // shared, packed=True)
    return found if _is_added(_mask_of(node), found) else None


def _mask_of(node: ir.Node) -> ir.Value | None:
    return node.inputs[_MASK] if len(node.inputs) > _MASK else None


def _is_added(mask: ir.Value | None, sizes: _Sizes) -> bool:
    """Whether a mask, if there is one, is of a number to add to every product, or of a flag for it."""
    if mask is None:
        return True
    if mask.shape is None or mask.shape[-1] != sizes.places or sizes.together > 1:
        return False
    return is_float32(mask) or mask.dtype == ir.DataType.BOOL


def _is_read_inside(node: ir.Node) -> bool:
    """Whether more is asked for than the result: the keys and values as they are kept, the products."""
    return any(value.uses() or value.is_graph_output() for value in node.outputs[1:])


def _rewrite(graph: ir.Graph, node: ir.Node, sizes: _Sizes) -> None:
    scale = node.attributes.get_float("scale", 0.0) or 1 / np.sqrt(sizes.width)
    cap = node.attributes.get_float("softcap", 0.0)
    q, k, v = (value for value in node.inputs[:_OPERANDS] if value is not None)
    steps = _Steps(graph, node)
    queries = steps.times(q, scale)
    if sizes.packed:
        queries = steps.apart(queries, sizes.batch, (sizes.rows, sizes.heads, sizes.width), (0, 2, 1, 3))
        keys = steps.apart(k, sizes.batch, (sizes.places, sizes.shared, sizes.width), (0, 2, 3, 1))
        values = steps.apart(v, sizes.batch, (sizes.places, sizes.shared, sizes.out), (0, 2, 1, 3))
    else:
        keys, values = steps.turned(k, (0, 1, 3, 2)), v
    rows = sizes.together * sizes.rows
    if sizes.together > 1:
        queries = steps.reshaped(queries, sizes.batch, (sizes.shared, rows, sizes.width))
    scores = steps.op("MatMul", [queries, keys], (sizes.batch, sizes.shared, rows, sizes.places))
    if cap:
        scores = steps.times(steps.op("Tanh", [steps.times(scores, 1 / cap)], tuple(scores.shape or ())), cap)
    if node.attributes.get_int("is_causal", 0):
        order = np.tile(np.tri(sizes.rows, sizes.places, dtype=bool), (sizes.together, 1))
        scores = steps.kept(scores, steps.stored("order", order))
    if (mask := _mask_of(node)) is not None:
        added = is_float32(mask)
        scores = steps.op("Add", [scores, mask], tuple(scores.shape or ())) if added else steps.kept(scores, mask)
    shares = steps.op("Softmax", [scores], tuple(scores.shape or ()), axis=-1)
    result = steps.op("MatMul", [shares, values], (sizes.batch, sizes.shared, rows, sizes.out))
    if sizes.together > 1:
        result = steps.reshaped(result, sizes.batch, (sizes.heads, sizes.rows, sizes.out))
    if sizes.packed:
        result = steps.turned(result, (0, 2, 1, 3))
        result = steps.reshaped(result, sizes.batch, (sizes.rows, sizes.heads * sizes.out))
    node.resize_outputs(1)
    replaced(node, "Identity", [result])


class _Steps:
    """Nodes in front of one node."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self._graph, self._node, self._like = graph, node, node.outputs[0]

    def op(
        self, operator: str, inputs: list[ir.Value], sizes: tuple[int | ir.SymbolicDim, ...], **attributes: int
    ) -> ir.Value:
        return inserted(self._node, operator, inputs, self._like, attributes, ir.Shape(sizes)).outputs[0]

    def times(self, value: ir.Value, factor: float) -> ir.Value:
        return self.op("Mul", [value, self.stored("factor", np.array(factor, np.float32))], tuple(value.shape or ()))

    def kept(self, scores: ir.Value, flags: ir.Value) -> ir.Value:
        """The scores where the flags are true, else -inf."""
        nothing = self.stored("nothing", np.array(-np.inf, np.float32))
        return self.op("Where", [flags, scores, nothing], tuple(scores.shape or ()))

    def turned(self, value: ir.Value, order: tuple[int, ...]) -> ir.Value:
        sizes = tuple(value.shape or ())
        shape = ir.Shape([sizes[axis] for axis in order])
        return inserted(self._node, "Transpose", [value], self._like, {"perm": order}, shape).outputs[0]

    def reshaped(self, value: ir.Value, batch: int | ir.SymbolicDim, sizes: tuple[int, ...]) -> ir.Value:
        """The batch stays as it is."""
        wanted = self.stored("sizes", np.array([0, *sizes], np.int64))
        return self.op("Reshape", [value, wanted], (batch, *sizes))

    def apart(
        self, value: ir.Value, batch: int | ir.SymbolicDim, sizes: tuple[int, ...], order: tuple[int, ...]
    ) -> ir.Value:
        """Heads that are packed, in front of the places."""
        return self.turned(self.reshaped(value, batch, sizes), order)

    def stored(self, name: str, array: Array) -> ir.Value:
        return add_constant(self._graph, f"{self._like.name}_{name}", array)
