"""A decoder as an ONNX graph with a cache of keys and values.

Inputs are ``input_ids`` (batch, sequence) and for each layer ``past_key_values.N.key`` and ``.value`` (batch, groups,
past, head size); outputs are ``logits`` (batch, sequence, vocabulary) and ``present.N.key`` and ``.value``, in which
the new places stand behind the old ones.  Every sequence of a batch has the same number of places, and no padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.converters.huggingface.decoder import Decoder, Layer, Rotation
from convertkit.converters.huggingface.parameters import Parameters
from convertkit.onnx.tape import Tape

BATCH, SEQUENCE, PAST = "batch", "sequence", "past"
_HIDDEN = float(np.finfo(np.float32).min)


def graph_of(decoder: Decoder, parameters: Parameters) -> ir.Model:
    """The model; weights stay where they are until it is written."""
    return _Writer(decoder, parameters).model()


@dataclass(frozen=True, slots=True)
class _Places:
    """int64 vectors of the places of ``queries`` and of ``keys``."""

    queries: ir.Value
    keys: ir.Value


class _Writer:
    """Writes one decoder."""

    def __init__(self, decoder: Decoder, parameters: Parameters) -> None:
        self._d, self._p, self._t = decoder, parameters, Tape()
        self._masks: dict[int | None, ir.Value] = {}
        self._angles: dict[Rotation, tuple[ir.Value, ir.Value]] = {}

    def model(self) -> ir.Model:
        d, t = self._d, self._t
        ids = t.input("input_ids", ir.DataType.INT64, BATCH, SEQUENCE)
        past = [self._past(layer) for layer in range(len(d.layers))]
        places = self._places(ids, past[0][0])
        embedding = t.weight(self._p.table("embedding"), "embedding")
        x = self._embedded(ids, embedding, places)
        grown = []
        for place, layer in enumerate(d.layers):
            x, cache = self._layer(place, layer, x, past[place], places)
            grown.append(cache)
        t.place = "head"
        t.output(self._logits(self._normed("norm", 0, x), embedding), "logits", BATCH, SEQUENCE, d.vocabulary)
        for place, cache in enumerate(grown):
            for value, kind in zip(cache, ("key", "value"), strict=True):
                t.output(value, f"present.{place}.{kind}", BATCH, d.groups, f"{PAST} + {SEQUENCE}", d.head_size)
        return t.model()

    def _past(self, layer: int) -> tuple[ir.Value, ir.Value]:
        key, value = (
            self._t.input(
                f"past_key_values.{layer}.{kind}", ir.DataType.FLOAT, BATCH, self._d.groups, PAST, self._d.head_size
            )
            for kind in ("key", "value")
        )
        return key, value

    def _places(self, ids: ir.Value, past: ir.Value) -> _Places:
        t = self._t
        t.place = "places"
        new = t.op("Gather", t.op("Shape", ids), t.whole(1))
        old = t.op("Gather", t.op("Shape", past), t.whole(2))
        both = t.op("Add", old, new)
        return _Places(t.op("Range", old, both, t.whole(1)), t.op("Range", t.whole(0), both, t.whole(1)))

    def _embedded(self, ids: ir.Value, embedding: ir.Value, places: _Places) -> ir.Value:
        d, t = self._d, self._t
        t.place = "embedding"
        x = t.op("Gather", embedding, ids)
        if d.embedding_scale != 1.0:
            x = t.op("Mul", x, t.number(d.embedding_scale))
        if d.positions:
            x = t.op("Add", x, t.op("Gather", t.weight(self._p.table("positions"), "positions"), places.queries))
        return x

    def _layer(
        self, place: int, layer: Layer, x: ir.Value, past: tuple[ir.Value, ir.Value], places: _Places
    ) -> tuple[ir.Value, tuple[ir.Value, ir.Value]]:
        d, t = self._d, self._t
        t.place = f"layers.{place}/attention"
        mixed, cache = self._attended(place, layer, self._normed("before", place, x), past, places)
        if d.sandwich:
            mixed = self._normed("after_mixed", place, mixed)
        between = t.op("Add", x, mixed)
        t.place = f"layers.{place}/feed_forward"
        inner = self._fed_forward(place, self._normed("between", place, x if d.parallel else between))
        if d.sandwich:
            inner = self._normed("after_inner", place, inner)
        return t.op("Add", between, inner), cache

    def _attended(
        self, place: int, layer: Layer, x: ir.Value, past: tuple[ir.Value, ir.Value], places: _Places
    ) -> tuple[ir.Value, tuple[ir.Value, ir.Value]]:
        d, t = self._d, self._t
        counts = {"query": d.heads, "key": d.groups, "value": d.groups}
        query, key, value = (self._by_heads(self._product(role, place, x), count) for role, count in counts.items())
        if d.head_norms:
            query, key = self._normed("query_norm", place, query), self._normed("key_norm", place, key)
        if layer.rotation is not None:
            query, key = (self._turned(each, layer.rotation, places) for each in (query, key))
        keys, values = (t.op("Concat", old, new, axis=2) for old, new in zip(past, (key, value), strict=True))
        mixed = self._mixed(query, keys, values, self._mask(layer.window, places))
        joined = t.op("Reshape", t.op("Transpose", mixed, perm=[0, 2, 1, 3]), t.ints(0, 0, d.heads * d.head_size))
        return self._product("mixed", place, joined), (keys, values)

    def _mixed(self, query: ir.Value, keys: ir.Value, values: ir.Value, mask: ir.Value) -> ir.Value:
        """Values mixed for each head; heads that share keys lie beside each other on an axis of their own."""
        d, t = self._d, self._t
        shared = d.heads > d.groups
        turned = t.op("Transpose", keys, perm=[0, 1, 3, 2])
        if shared:
            query = t.op("Reshape", query, t.ints(0, d.groups, d.heads // d.groups, -1, d.head_size))
            turned, values = t.op("Unsqueeze", turned, t.ints(2)), t.op("Unsqueeze", values, t.ints(2))
        scores = t.op("Mul", t.op("MatMul", query, turned), t.number(d.scale))
        seen = t.op("Where", mask, self._capped(scores, d.score_cap), t.number(_HIDDEN))
        mixed = t.op("MatMul", t.op("Softmax", seen, axis=-1), values)
        return t.op("Reshape", mixed, t.ints(0, d.heads, -1, d.head_size)) if shared else mixed

    def _mask(self, window: int | None, places: _Places) -> ir.Value:
        """(queries, keys), true where a query sees a key."""
        if window not in self._masks:
            t = self._t
            keys, queries = t.op("Unsqueeze", places.keys, t.ints(0)), t.op("Unsqueeze", places.queries, t.ints(1))
            seen = t.op("LessOrEqual", keys, queries)
            if window is not None:
                seen = t.op("And", seen, t.op("Greater", keys, t.op("Sub", queries, t.whole(window))))
            self._masks[window] = seen
        return self._masks[window]

    def _turned(self, x: ir.Value, rotation: Rotation, places: _Places) -> ir.Value:
        t, half = self._t, len(rotation.frequencies)
        if rotation not in self._angles:
            column = t.op("Unsqueeze", t.op("Cast", places.queries, to=int(ir.DataType.FLOAT)), t.ints(1))
            rows = t.weight(np.array(rotation.frequencies, np.float32), f"frequencies_{len(self._angles)}")
            angles = t.op("Mul", column, rows)
            self._angles[rotation] = t.op("Cos", angles), t.op("Sin", angles)
        cos, sin = self._angles[rotation]
        sizes = [size for size in (half, half, self._d.head_size - 2 * half) if size]
        first, second, *rest = t.ops("Split", x, t.ints(*sizes), count=len(sizes), axis=-1)
        one = t.op("Sub", t.op("Mul", first, cos), t.op("Mul", second, sin))
        other = t.op("Add", t.op("Mul", second, cos), t.op("Mul", first, sin))
        return t.op("Concat", one, other, *rest, axis=-1)

    def _fed_forward(self, place: int, x: ir.Value) -> ir.Value:
        d, t = self._d, self._t
        up = self._product("up", place, x)
        up = t.op("Mul", self._bent(self._product("gate", place, x)), up) if d.gated else self._bent(up)
        return self._product("down", place, up)

    def _bent(self, x: ir.Value) -> ir.Value:
        t = self._t
        if self._d.activation == "silu":
            return t.op("Mul", x, t.op("Sigmoid", x))
        if self._d.activation == "relu":
            return t.op("Relu", x)
        return t.op("Gelu", x, approximate=_APPROXIMATE[self._d.activation])

    def _product(self, role: str, place: int, x: ir.Value) -> ir.Value:
        t, linear = self._t, self._p.linear(role, place)
        name = f"layers.{place}.{role}"
        made = t.op("MatMul", x, t.weight(linear.weight.T, f"{name}.weight"))
        return made if linear.bias is None else t.op("Add", made, t.weight(linear.bias, f"{name}.bias"))

    def _logits(self, x: ir.Value, embedding: ir.Value) -> ir.Value:
        """A tied head reads the embedding's own rows: the file holds them once."""
        d, t = self._d, self._t
        if not d.tied:
            made = t.op("MatMul", x, t.weight(self._p.linear("head").weight.T, "head.weight"))
        else:
            rows = t.op("Reshape", x, t.ints(-1, d.width))
            flat = t.op("Gemm", rows, embedding, transB=1)
            leading = t.op("Slice", t.op("Shape", x), t.ints(0), t.ints(2))
            made = t.op("Reshape", flat, t.op("Concat", leading, t.ints(d.vocabulary), axis=0))
        return self._capped(made, d.logit_cap)

    def _normed(self, role: str, place: int, x: ir.Value) -> ir.Value:
        d, t = self._d, self._t
        name = role if role == "norm" else f"layers.{place}.{role}"
        weight = self._p.vector(role, place)
        if d.norm.kind == "layer":
            scale = t.weight(weight, f"{name}.weight")
            bias = t.weight(self._p.vector_bias(role, place), f"{name}.bias")
            return t.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=d.norm.epsilon)
        scale = t.weight(weight + np.float32(1) if d.norm.kind == "rms1" else weight, f"{name}.weight")
        squares = t.op("ReduceMean", t.op("Pow", x, t.number(2)), t.ints(-1), keepdims=1)
        level = t.op("Sqrt", t.op("Add", squares, t.number(d.norm.epsilon)))
        return t.op("Mul", t.op("Div", x, level), scale)

    def _by_heads(self, x: ir.Value, count: int) -> ir.Value:
        t = self._t
        return t.op("Transpose", t.op("Reshape", x, t.ints(0, 0, count, self._d.head_size)), perm=[0, 2, 1, 3])

    def _capped(self, x: ir.Value, cap: float | None) -> ir.Value:
        t = self._t
        return x if cap is None else t.op("Mul", t.op("Tanh", t.op("Div", x, t.number(cap))), t.number(cap))


_APPROXIMATE: Mapping[str, str] = {"gelu": "none", "gelu_tanh": "tanh"}
