"""Recurrent layers of any length, activation and stacking become operators; near misses stay loops."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from tests.converters.stablehlo.recognition import X, agrees, converted, free, operators
from tests.converters.stablehlo.test_recognise_loops import jax_keras

RNG = np.random.default_rng(11)
LENGTHS = [RNG.standard_normal((2, length, 8)).astype(np.float32) for length in (1, 2, 7, 40)]
EDGES = [
    np.zeros((1, 4, 8), np.float32),
    np.full((2, 3, 8), 60.0, np.float32),
    np.full((2, 3, 8), -1e-6, np.float32),
    np.where(RNG.random((3, 6, 8)) < 0.5, 0, RNG.standard_normal((3, 6, 8)) * 20).astype(np.float32),
]

LAYERS = {
    "LSTM": ("LSTM", lambda L: [L.LSTM(6, return_sequences=True)]),
    "LSTM, last": ("LSTM", lambda L: [L.LSTM(6)]),
    "LSTM without bias": ("LSTM", lambda L: [L.LSTM(6, use_bias=False)]),
    "LSTM, backward": ("LSTM", lambda L: [L.LSTM(6, go_backwards=True, return_sequences=True)]),
    "LSTM, hard": ("LSTM", lambda L: [L.LSTM(6, recurrent_activation="hard_sigmoid")]),
    "LSTM, relu": ("LSTM", lambda L: [L.LSTM(6, activation="relu")]),
    "LSTM, linear": ("LSTM", lambda L: [L.LSTM(6, activation="linear", recurrent_activation="hard_sigmoid")]),
    "LSTM, softsign": ("LSTM", lambda L: [L.LSTM(6, activation="softsign")]),
    "GRU": ("GRU", lambda L: [L.GRU(6, return_sequences=True)]),
    "GRU, last": ("GRU", lambda L: [L.GRU(6)]),
    "GRU, backward": ("GRU", lambda L: [L.GRU(6, go_backwards=True)]),
    "GRU, reset before": ("GRU", lambda L: [L.GRU(6, reset_after=False)]),
    "GRU, hard": ("GRU", lambda L: [L.GRU(6, recurrent_activation="hard_sigmoid")]),
    "GRU, reset before, hard": ("GRU", lambda L: [L.GRU(6, reset_after=False, recurrent_activation="hard_sigmoid")]),
    "RNN": ("RNN", lambda L: [L.SimpleRNN(6, return_sequences=True)]),
    "RNN, sigmoid": ("RNN", lambda L: [L.SimpleRNN(6, activation="sigmoid", go_backwards=True)]),
    "RNN, hard sigmoid": ("RNN", lambda L: [L.SimpleRNN(6, activation="hard_sigmoid")]),
    "both ways": ("LSTM LSTM", lambda L: [L.Bidirectional(L.LSTM(6, return_sequences=True))]),
    "both ways, last": ("GRU GRU", lambda L: [L.Bidirectional(L.GRU(6), merge_mode="sum")]),
    "layers": ("GRU LSTM", lambda L: [L.GRU(6, return_sequences=True), L.LSTM(4)]),
    "cells": ("LSTM LSTM", lambda L: [L.RNN([L.LSTMCell(6), L.LSTMCell(4)], return_sequences=True)]),
    "cells, last": ("GRU GRU", lambda L: [L.RNN([L.GRUCell(6), L.GRUCell(6)])]),
    "cells of three kinds": ("GRU LSTM RNN", lambda L: [L.RNN([L.GRUCell(6), L.LSTMCell(4), L.SimpleRNNCell(3)])]),
    "cells, backward": ("LSTM RNN", lambda L: [L.RNN([L.LSTMCell(6), L.SimpleRNNCell(3)], go_backwards=True)]),
}


FIXED = ("LSTM, hard", "LSTM, linear", "GRU, hard", "RNN, sigmoid", "cells", "cells of three kinds", "cells, backward")
CASES = [(name, "N, T, 8") for name in LAYERS] + [(name, "2, 3, 8") for name in FIXED]
CASES += [("cells", "2, T, 8"), ("cells", "N, 3, 8"), ("GRU, hard", "N, 3, 8")]


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_layers_of_keras(name, sizes):
    kinds, make = LAYERS[name]
    function = layers(make(jax_keras().layers))
    model = free(function, sizes, np.float32)
    assert recurrent(model) == collections.Counter(kinds.split())
    usual = [RNG.standard_normal((2, 3, 8)).astype(np.float32)]
    inputs = [*LENGTHS, *EDGES] if sizes == "N, T, 8" else [x for x in (*usual, *EDGES) if x.shape[:2] == (2, 3)]
    linear = "linear" in name
    agrees(function, model, *inputs[: len(LENGTHS) if linear else None], within=2e-4 if linear else 3e-6)


def layers(made):
    """Layers one after the other as a function of JAX; every number of them counts."""
    calls, shape = [], (2, 3, 8)
    for layer in made:
        layer.build(shape)
        rng = np.random.default_rng(5)
        values = [rng.standard_normal(each.shape).astype(np.float32) * 0.4 for each in layer.trainable_variables]
        calls.append((layer, values, [each.value for each in layer.non_trainable_variables]))
        shape = layer.compute_output_shape(shape)

    def function(x):
        for layer, values, fixed in calls:
            x = layer.stateless_call(values, fixed, x)[0]
        return x

    return function


def recurrent(model):
    kinds = ("LSTM", "GRU", "RNN", "Loop", "Scan", "MatMul", "Gemm")
    return collections.Counter(kind for kind in operators(model) if kind in kinds)


@pytest.mark.parametrize(
    ("cell", "operator", "more", "options"),
    [
        (linen.LSTMCell, "LSTM", {}, {}),
        (linen.OptimizedLSTMCell, "LSTM", {}, {"reverse": True, "keep_order": True}),
        (linen.LSTMCell, "LSTM", {"gate_fn": jnp.tanh}, {"time_major": True}),
        (linen.LSTMCell, "LSTM", {"gate_fn": jax.nn.hard_sigmoid, "activation_fn": jax.nn.soft_sign}, {}),
        (linen.GRUCell, "GRU", {}, {"reverse": True, "time_major": True}),
        (linen.GRUCell, "GRU", {"activation_fn": jax.nn.relu}, {}),
        (linen.SimpleCell, "RNN", {}, {"reverse": True}),
    ],
)
def test_cells_of_flax_of_any_length(cell, operator, more, options):
    module = linen.RNN(cell(6, **more), **options)
    variables = jax.tree.map(lambda w: w + 0.1, module.init(jax.random.key(0), X))
    model = free(lambda x: module.apply(variables, x), "T, N, 8" if "time_major" in options else "N, T, 8", np.float32)
    assert recurrent(model) == {operator: 1}
    grows = more.get("activation_fn") is jax.nn.relu
    agrees(lambda x: module.apply(variables, x), model, *LENGTHS, *EDGES, within=3e-4 if grows else 3e-6)


W, U = (RNG.standard_normal((8, 8)).astype(np.float32) * 0.3 for _ in range(2))
B = RNG.standard_normal(8).astype(np.float32)


def scan(step, x, start=None, reverse=False):
    start = jnp.zeros((x.shape[0], 8)) if start is None else start
    return jax.lax.scan(step, start, jnp.swapaxes(x, 0, 1), reverse=reverse)


def plain(h, x):
    h = jnp.tanh(x @ W + B + h @ U)
    return h, h


NEAR_MISSES = {
    "tanh of almost nothing": lambda x: scan(lambda h, row: (jnp.tanh(row @ W + B / 64 + h @ U),) * 2, x)[1],
    "state before the turn": lambda x: scan(lambda h, row: (plain(h, row)[0], h), x)[1],
    "a gate of another turn": lambda x: scan(lambda h, row: (jnp.tanh(row @ W + B + h[0] @ U), row), x)[0],
    "another activation": lambda x: scan(lambda h, row: (jnp.sin(row @ W + B + h @ U),) * 2, x)[1],
    "products that data weights": lambda x: scan(lambda h, row: (jnp.tanh(row @ W + B + h @ (x[0, 0] * U)),) * 2, x)[1],
    "nearly a hard sigmoid": lambda x: scan(lambda h, r: (jnp.clip(r @ W + h @ U + 3.001, 0, 6) / 6,) * 2, x)[1],
    "nearly an update": lambda x: scan(lambda h, r: (nearly_updated(h, r),) * 2, x)[1],
}


def nearly_updated(h, row):
    z = jax.nn.sigmoid(row @ W + B + h @ U)
    return (1.0000001 - z) * jnp.tanh(row @ U + h @ W) + z * h


@pytest.mark.parametrize("sizes", ["N, T, 8", "2, 5, 8"])
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay_loops(name, sizes):
    function = NEAR_MISSES[name]
    model = free(function, sizes, np.float32) if "N" in sizes else converted(function)
    found = recurrent(model)
    assert found["Loop"] == 1
    assert not {"RNN", "GRU", "LSTM"} & set(found)
    agrees(function, model, *(LENGTHS if "N" in sizes else [X]), within=1e-5)


def test_a_sequence_that_is_cut_stays_a_loop():
    def function(x):
        return scan(plain, x[:, :-1])[1]

    model = free(function, "N, T + 1, 8", np.float32)
    assert recurrent(model)["Loop"] == 1
    agrees(function, model, *LENGTHS[1:], within=1e-5)


def test_a_loop_keeps_what_is_not_a_cell():
    """An LSTM whose output another recurrence reads leaves only that one in the loop."""

    def both(states, row):
        h, (c, s) = states[0], states[1:]
        gates = row @ jnp.tile(W, (1, 4)) + h @ jnp.tile(U, (1, 4))
        i, f, g, o = jnp.split(gates, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        s = jnp.sin(s + h)
        return (h, c, s), (h, s)

    def function(x):
        zero = jnp.zeros((2, 8))
        (_, c, _), (h, s) = scan(both, x, (zero, zero, zero))
        return jnp.concatenate([h, s, c[None]])

    model = converted(function)
    assert recurrent(model) == {"LSTM": 1, "Loop": 1}
    (loop,) = [node for node in model.graph if node.op_type == "Loop"]
    assert len(loop.inputs) == 3
    agrees(function, model, X, within=3e-6)


@pytest.mark.parametrize(("axis", "operator"), [(1, "RNN"), (0, "Loop")])
def test_a_loop_over_another_size_than_its_rows_stays_one(axis, operator):
    """As many turns as an axis is long read the rows of that axis, or of another one: clamped, or only the first."""

    def function(x):
        rows = jnp.moveaxis(x, axis, 0)

        def step(turn, h):
            row = jax.lax.dynamic_index_in_dim(rows, turn, keepdims=False)
            return jnp.tanh(row @ W + B + h @ U)

        return jax.lax.fori_loop(0, x.shape[1], step, jnp.zeros((rows.shape[1], 8)))

    model = free(function, "N, T, 8", np.float32)
    assert recurrent(model)[operator] == 1
    agrees(function, model, *LENGTHS, within=3e-6)
