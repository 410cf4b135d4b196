"""The decoder in NumPy and float64: what every later artifact is held against.

Written from the families' rules as plain arithmetic on whole arrays, apart from the graph's builder.  Angles of rotary
positions are rounded to float32 first, as the frameworks do in which decoders are trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import erf
from types import TracebackType
from typing import Self

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.huggingface.decoder import Decoder, Layer, Rotation
from convertkit.converters.huggingface.parameters import Linear, Parameters
from convertkit.errors import ToolError
from convertkit.stage import Feed, Outputs

Cache = tuple[tuple[Array, Array], ...]
"""Keys and values of each layer, (batch, groups, places, head size)."""


class ReferenceRunner:
    """Executes the weights where they lie; outputs are rounded to float32 at the end."""

    runtime = f"NumPy {np.__version__} in float64"

    def __init__(self, decoder: Decoder, parameters: Parameters) -> None:
        self._decoder = decoder
        self._weights = parameters

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def run(self, feed: Feed) -> Outputs:
        """Logits and the grown cache; ``ToolError`` for places that a table of positions does not have."""
        count = len(self._decoder.layers)
        keys = [np.asarray(feed[f"past_key_values.{place}.key"], np.float64) for place in range(count)]
        values = [np.asarray(feed[f"past_key_values.{place}.value"], np.float64) for place in range(count)]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            logits, cache = compute(self._decoder, self._weights, feed["input_ids"], tuple(zip(keys, values)))
            found: Outputs = {"logits": logits.astype(np.float32)}
            for place, (key, value) in enumerate(cache):
                found[f"present.{place}.key"] = key.astype(np.float32)
                found[f"present.{place}.value"] = value.astype(np.float32)
        return found


def compute(d: Decoder, p: Parameters, ids: Array, past: Cache) -> tuple[Array, Cache]:
    """Logits (batch, places, vocabulary) and the cache behind ``ids`` (batch, places), in float64."""
    old = past[0][0].shape[2]
    x = _looked_up(p.table("embedding"), ids, "token") * d.embedding_scale
    places = old + np.arange(ids.shape[1])
    if d.positions:
        x = x + _looked_up(p.table("positions"), places, "position")
    grown = []
    for place, layer in enumerate(d.layers):
        given = _normed(d, p, "before", place, x)
        mixed, key, value = _attended(d, p, place, layer, given, past[place])
        grown.append((key, value))
        if d.sandwich:
            mixed = _normed(d, p, "after_mixed", place, mixed)
        between = x if d.parallel else x + mixed
        inner = _fed_forward(d, p, place, _normed(d, p, "between", place, between))
        if d.sandwich:
            inner = _normed(d, p, "after_inner", place, inner)
        x = x + mixed + inner
    logits = _product(_normed(d, p, "norm", 0, x), p.linear("head"))
    return _capped(logits, d.logit_cap), tuple(grown)


def _looked_up(table: Array, places: Array, what: str) -> Array:
    if places.size and (places.min() < 0 or places.max() >= len(table)):
        raise ToolError(f"the model has no {what} {places.max()}; it has {len(table)} of them")
    return np.asarray(table[places], np.float64)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Places of queries and of keys."""

    queries: Array
    keys: Array

    def allowed(self, window: int | None) -> Array:
        """(queries, keys): none behind its query, none further back than the window."""
        back = self.queries[:, None] - self.keys[None, :]
        return (back >= 0) if window is None else (back >= 0) & (back < window)


def _attended(
    d: Decoder, p: Parameters, place: int, layer: Layer, x: Array, past: tuple[Array, Array]
) -> tuple[Array, Array, Array]:
    """What attention gives (batch, places, width), and the keys and values with the new ones behind the old ones."""
    counts = {"query": d.heads, "key": d.groups, "value": d.groups}
    query, key, value = (_by_heads(_product(x, p.linear(role, place)), count) for role, count in counts.items())
    if d.head_norms:
        query, key = (_normed(d, p, role, place, each) for role, each in (("query_norm", query), ("key_norm", key)))
    old, new = past[0].shape[2], x.shape[1]
    places = old + np.arange(new)
    if layer.rotation is not None:
        query, key = (_turned(each, layer.rotation, places) for each in (query, key))
    keys, values = np.concatenate([past[0], key], 2), np.concatenate([past[1], value], 2)
    members = d.heads // d.groups
    scores = query @ np.repeat(keys, members, 1).swapaxes(2, 3) * d.scale
    scores = _capped(scores, d.score_cap)
    scores = np.where(_Seen(places, np.arange(old + new)).allowed(layer.window), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (shares / shares.sum(-1, keepdims=True)) @ np.repeat(values, members, 1)
    joined = mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    return _product(joined, p.linear("mixed", place)), keys, values


def _fed_forward(d: Decoder, p: Parameters, place: int, x: Array) -> Array:
    up = _product(x, p.linear("up", place))
    bend = _BENDS[d.activation]
    inner = bend(_product(x, p.linear("gate", place))) * up if d.gated else bend(up)
    return _product(inner, p.linear("down", place))


def _product(x: Array, linear: Linear) -> Array:
    made = x @ linear.weight.astype(np.float64).T
    return np.asarray(made if linear.bias is None else made + linear.bias)


def _by_heads(x: Array, count: int) -> Array:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def _normed(d: Decoder, p: Parameters, role: str, place: int, x: Array) -> Array:
    weight = p.vector(role, place).astype(np.float64)
    if d.norm.kind == "layer":
        centred = x - x.mean(-1, keepdims=True)
        level = np.sqrt((centred**2).mean(-1, keepdims=True) + d.norm.epsilon)
        return np.asarray(centred / level * weight + p.vector_bias(role, place))
    level = np.sqrt((x**2).mean(-1, keepdims=True) + d.norm.epsilon)
    return np.asarray(x / level * (weight + 1 if d.norm.kind == "rms1" else weight))


def _turned(x: Array, rotation: Rotation, places: Array) -> Array:
    frequencies = np.array(rotation.frequencies, np.float32)
    angles = (places.astype(np.float32)[:, None] * frequencies).astype(np.float64)
    half = len(frequencies)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], -1)


def _capped(x: Array, cap: float | None) -> Array:
    return x if cap is None else np.asarray(np.tanh(x / cap) * cap)


_BENDS: Mapping[str, Callable[[Array], Array]] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
}
