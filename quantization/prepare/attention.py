"""Attention as products and a Softmax, which have integer kernels, for ``--full-integer``.

before:  y = Attention (q, k, v)
after:   y = MatMul (Softmax (MatMul (Mul (q, scale), Transpose (k))), v)

Heads that are packed are taken apart and packed again.  Several heads of queries on one of keys are rows of one matrix.
A cache is put in front of the keys and values.  Places in order, windows, flags and infinities in a mask become a mask
in front of the Softmax; see ``finite_masks``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, array_of, inserted, is_float32, stands_for
from convertkit.profile import QuantProfile

_PARTS = ("MatMul.dynamic", "Mul", "Softmax")
_OPERANDS = _MASK = 3
_CACHE = slice(4, 6)
_PRESENT = slice(1, 3)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of one Attention; ``packed`` says that heads lie beside each other in the last axis.

    ``places`` are those of the cache, of which there are ``before``, and of the keys.
    """

    batch: int | ir.SymbolicDim
    heads: int
    shared: int
    rows: int
    places: int
    width: int
    out: int
    packed: bool
    before: int

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
    """Of float32 operands and cache; None where more is given or read, or a size inside is dynamic."""
    cache = [value for value in node.inputs[_CACHE] if value is not None]
    operands = [*node.inputs[:_OPERANDS], *cache]
    if any(value is None or value.shape is None or not is_float32(value) for value in operands):
        return None
    if any(value is not None for value in node.inputs[_CACHE.stop :]) or _is_read_inside(node, bool(cache)):
        return None
    shapes = [list(value.shape or ()) for value in operands if value is not None]
    inner = [[size for size in shape[1:] if isinstance(size, int)] for shape in shapes]
    if [len(each) for each in inner] != [len(shape) - 1 for shape in shapes]:
        return None
    (q, k, v), batch, before = inner[:_OPERANDS], shapes[0][0], inner[_OPERANDS][1] if cache else 0
    if cache and (len(cache) != len(node.inputs[_CACHE]) or not before):
        return None
    if len(q) == 3:
        found = _Sizes(batch, q[0], k[0], q[1], before + k[1], q[2], v[2], packed=False, before=before)
    else:
        heads, shared = (node.attributes.get_int(f"{each}_num_heads", 0) for each in ("q", "kv"))
        if not heads or not shared:
            return None
        widths = q[1] // heads, v[1] // shared
        found = _Sizes(batch, heads, shared, q[0], before + k[0], *widths, packed=True, before=before)
    return found if _is_added(_mask_of(node), found) else None


def _mask_of(node: ir.Node) -> ir.Value | None:
    return node.inputs[_MASK] if len(node.inputs) > _MASK else None


def _is_added(mask: ir.Value | None, sizes: _Sizes) -> bool:
    """Whether a mask, if there is one, is of a number to add to every product, or of a flag for it.

    Where heads of queries share those of keys, it has to be the same for all heads.
    """
    if mask is None:
        return True
    if mask.shape is None or mask.shape[-1] != sizes.places:
        return False
    heads, rows, _ = (1, 1, *mask.shape)[-3:]
    if sizes.together > 1 and (heads != 1 or rows not in (1, sizes.rows)):
        return False
    return is_float32(mask) or mask.dtype == ir.DataType.BOOL


def _is_read_inside(node: ir.Node, has_cache: bool) -> bool:
    """Whether more is asked for than the result, and the keys and values that follow a cache: the products, say."""
    known = _PRESENT.stop if has_cache else 1
    return any(value.uses() or value.is_graph_output() for value in node.outputs[known:])


def _rewrite(graph: ir.Graph, node: ir.Node, sizes: _Sizes) -> None:
    scale = node.attributes.get_float("scale", 0.0) or 1 / np.sqrt(sizes.width)
    q, k, v = (value for value in node.inputs[:_OPERANDS] if value is not None)
    steps = _Steps(graph, node)
    queries = steps.times(q, scale)
    if sizes.packed:
        queries = steps.apart(queries, sizes.batch, (sizes.rows, sizes.heads, sizes.width))
    keys, values = _with_cache(steps, node, k, v, sizes) if sizes.before else _without(steps, k, v, sizes)
    if sizes.together > 1:
        queries = steps.reshaped(queries, sizes.batch, (sizes.shared, sizes.together * sizes.rows, sizes.width))
    result = steps.weighted(queries, keys, values, sizes)
    if sizes.together > 1:
        result = steps.reshaped(result, sizes.batch, (sizes.heads, sizes.rows, sizes.out))
    if sizes.packed:
        result = steps.turned(result, (0, 2, 1, 3))
        result = steps.reshaped(result, sizes.batch, (sizes.rows, sizes.heads * sizes.out))
    stands_for(result, node.outputs[0])
    graph.remove(node, safe=True)


def _without(steps: _Steps, k: ir.Value, v: ir.Value, sizes: _Sizes) -> tuple[ir.Value, ir.Value]:
    """Keys, turned, and values of each head."""
    if not sizes.packed:
        return steps.turned(k, (0, 1, 3, 2)), v
    keys = steps.apart(k, sizes.batch, (sizes.places, sizes.shared, sizes.width), (0, 2, 3, 1))
    return keys, steps.apart(v, sizes.batch, (sizes.places, sizes.shared, sizes.out))


def _with_cache(steps: _Steps, node: ir.Node, k: ir.Value, v: ir.Value, sizes: _Sizes) -> tuple[ir.Value, ir.Value]:
    """The same behind the cache, which follows as outputs."""
    found = []
    for cache, new, width in zip(node.inputs[_CACHE], (k, v), (sizes.width, sizes.out), strict=True):
        assert cache is not None, "_sizes asks for keys and values"
        shape = (sizes.places - sizes.before, sizes.shared, width)
        last = steps.apart(new, sizes.batch, shape) if sizes.packed else new
        found.append(steps.op("Concat", [cache, last], (sizes.batch, sizes.shared, sizes.places, width), axis=2))
    for present, value in zip(node.outputs[_PRESENT], found, strict=False):
        stands_for(value, present)
    keys, values = found
    return steps.turned(keys, (0, 1, 3, 2)), values


def _seen(node: ir.Node, sizes: _Sizes) -> Array:
    """Which places each row may read, bool [rows, places], by the order of the places and by windows.

    A row stands behind the cache.  Source: ONNX, Attention-25.
    """
    apart = np.arange(sizes.places) - (sizes.before + np.arange(sizes.rows)[:, None])
    last = 0 if node.attributes.get_int("is_causal", 0) else sizes.places
    right = node.attributes.get_int("right_window_size", -1)
    left = node.attributes.get_int("left_window_size", -1)
    seen = apart <= (last if right < 0 else min(last, right))
    return np.asarray(seen if left < 0 else seen & (apart >= -left))


def _may_be_empty(seen: Array, mask: ir.Value | None) -> bool:
    """Whether a row may read no place of those that it has ``seen``; flags that are given may say anything."""
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        flags = array_of(mask)
        if flags is None:
            return True
        seen = np.logical_and(seen, flags)
    return not seen.any(axis=-1).all()


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

    def weighted(self, queries: ir.Value, keys: ir.Value, values: ir.Value, sizes: _Sizes) -> ir.Value:
        """The values by how much of each a row of queries takes; ``keys`` are turned."""
        shape = (sizes.batch, sizes.shared, sizes.together * sizes.rows, sizes.places)
        scores = self.op("MatMul", [queries, keys], shape)
        if cap := self._node.attributes.get_float("softcap", 0.0):
            scores = self.times(self.op("Tanh", [self.times(scores, 1 / cap)], shape), cap)
        seen, mask = _seen(self._node, sizes), _mask_of(self._node)
        may_be_empty = _may_be_empty(seen, mask)
        if not seen.all():
            scores = self.kept(scores, self.stored("seen", np.tile(seen, (sizes.together, 1))))
        if mask is not None:
            if sizes.together > 1 and sizes.rows > 1:
                mask = self.repeated(mask, sizes)
            scores = self.op("Add", [scores, mask], shape) if is_float32(mask) else self.kept(scores, mask)
        shares = self.op("Softmax", [scores], shape, axis=-1)
        if may_be_empty:
            shares = self.guarded(shares)
        return self.op("MatMul", [shares, values], (*shape[:3], sizes.out))

    def guarded(self, shares: ir.Value) -> ir.Value:
        """Nothing of any value for a row that reads none, whose Softmax is NaN."""
        empty = self.op("IsNaN", [shares], tuple(shares.shape or ()))
        empty.type = ir.TensorType(ir.DataType.BOOL)
        nothing = self.stored("none", np.array(0, np.float32))
        return self.op("Where", [empty, nothing, shares], tuple(shares.shape or ()))

    def repeated(self, mask: ir.Value, sizes: _Sizes) -> ir.Value:
        """A mask of rows, once for each head of queries that reads the same keys; one for all rows stays."""
        shape = list(mask.shape or ())
        if len(shape) < 2 or shape[-2] == 1:
            return mask
        shape[-2] = sizes.together * sizes.rows
        made = inserted(self._node, "Concat", [mask] * sizes.together, mask, {"axis": len(shape) - 2}, ir.Shape(shape))
        return made.outputs[0]

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
        self,
        value: ir.Value,
        batch: int | ir.SymbolicDim,
        sizes: tuple[int, ...],
        order: tuple[int, ...] = (0, 2, 1, 3),
    ) -> ir.Value:
        """Heads that are packed, in front of the places."""
        return self.turned(self.reshaped(value, batch, sizes), order)

    def stored(self, name: str, array: Array) -> ir.Value:
        return add_constant(self._graph, f"{self._like.name}_{name}", array)
