"""Makes SavedModels of recurrent layers, converts them by tf2onnx, and writes what TensorFlow gives for each.

Run as a program, because it imports TensorFlow: ``recurrent_models.py FOLDER`` leaves a model and its numbers per case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

from convertkit.converters.tensorflow.loading import Loaded, load_graph_def, load_saved_model
from convertkit.converters.tensorflow.routes import ROUTES, Job

RNG = np.random.default_rng(11)
LENGTHS = [RNG.standard_normal((2, length, 8)).astype(np.float32) for length in (1, 2, 5, 40)]
EDGES = [
    np.zeros((1, 4, 8), np.float32),
    np.full((2, 5, 8), 60.0, np.float32),
    np.full((2, 5, 8), -1e-6, np.float32),
    np.where(RNG.random((3, 5, 8)) < 0.5, 0, RNG.standard_normal((3, 5, 8)) * 20).astype(np.float32),
]
BOTH, FREE, FIXED = ((None, None), (2, 5)), ((None, None),), ((2, 5),)

LAYERS: dict[str, tuple[Callable[[], list[Any]], tuple[tuple[int | None, int | None], ...]]] = {
    "lstm": (lambda: [L.LSTM(6, return_sequences=True)], FREE),
    "lstm_hard": (lambda: [L.LSTM(6, recurrent_activation="hard_sigmoid")], BOTH),
    "gru": (lambda: [L.GRU(6, return_sequences=True)], (*BOTH, (None, 5))),
    "gru_no_bias": (lambda: [L.GRU(6, use_bias=False)], FREE),
    "gru_before": (lambda: [L.GRU(6, reset_after=False)], BOTH),
    "gru_backward": (lambda: [L.GRU(6, go_backwards=True, return_sequences=True)], BOTH),
    "gru_both": (lambda: [L.Bidirectional(L.GRU(6, return_sequences=True))], FREE),
    "rnn": (lambda: [L.SimpleRNN(6, return_sequences=True)], BOTH),
    "cells": (lambda: [L.RNN([L.LSTMCell(6), L.GRUCell(4)], return_sequences=True)], BOTH),
    "layers": (lambda: [L.GRU(6, return_sequences=True), L.SimpleRNN(4)], FREE),
    "masked": (lambda: [L.Masking(), L.GRU(6, return_sequences=True)], FREE),
}
W, U = (RNG.standard_normal((8, 8)).astype(np.float32) * 0.3 for _ in range(2))
B = RNG.standard_normal(8).astype(np.float32)


def looped(
    x: tf.Tensor,
    step: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = lambda h, row: tf.tanh(row @ W + B + h @ U),
    less: int = 0,
    first: int = 0,
    start: Callable[[tf.Tensor], tf.Tensor] = lambda x: tf.zeros([tf.shape(x)[0], 8]),
    go_on: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> tf.Tensor:
    """The states of a loop over a sequence, written as Keras writes its own."""
    rows = tf.transpose(x, [1, 0, 2])
    trips = tf.shape(rows)[0] - less if less else tf.shape(rows)[0]
    given = tf.TensorArray(tf.float32, trips + less if less else trips, element_shape=[None, 8]).unstack(rows)
    states = tf.TensorArray(tf.float32, trips, element_shape=[None, 8])

    def body(turn: tf.Tensor, h: tf.Tensor, states: tf.TensorArray) -> Any:
        h = step(h, given.read(turn + first if first else turn))
        return turn + 1, h, states.write(turn, h)

    shapes = (tf.TensorShape([]), tf.TensorShape([None, 8]), tf.TensorShape(None))
    _, _, states = tf.while_loop(
        lambda turn, h, _: turn < trips if go_on is None else tf.logical_and(turn < trips, go_on(h)),
        body, (0, start(x), states), shapes, maximum_iterations=trips,
    )  # fmt: skip
    return states.stack()


LOOPS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "written_out": lambda x: looped(x),  # noqa: PLW0108 - a signature has no defaults
    "sine": lambda x: looped(x, lambda h, row: tf.sin(row @ W + B + h @ U)),
    "weighted": lambda x: looped(x, lambda h, row: tf.tanh(row @ W + B + h @ (x[0, 0] * U))),
    "small": lambda x: looped(x, lambda h, row: tf.tanh(row @ W + B / 64 + h @ U)),
    "one_less": lambda x: looped(x, less=1),
    "one_later": lambda x: looped(x, less=1, first=1),
    "one_state": lambda x: looped(x, start=lambda _: tf.zeros([1, 8])),
    "many_states": lambda x: looped(x[:1], start=lambda _: tf.zeros([3, 8])),
    "stops": lambda x: looped(x, go_on=lambda h: tf.reduce_max(h) < 1e6),
}


def main(folder: Path, wanted: list[str]) -> None:
    for name, (make, sizes) in LAYERS.items():
        for batch, length in sizes:
            file = f"{name},{batch or 'N'},{length or 'T'}"
            if file not in wanted:
                continue
            keras.utils.set_random_seed(7)
            inputs = keras.Input((length, 8), batch_size=batch, name="x")
            result = inputs
            for layer in make():
                result = layer(result)
            model = keras.Model(inputs, result)
            model.set_weights([RNG.standard_normal(w.shape).astype(np.float32) * 0.4 for w in model.get_weights()])
            model.export(folder / "model", verbose=False)
            loaded = load_saved_model(folder / "model", "serving_default", ["serve"], {})
            written(loaded, folder / file, (batch, length))
    if "frozen,N,T" in wanted:
        frozen(folder)
    for name, function in LOOPS.items():
        if f"{name},N,T" not in wanted:
            continue
        module = tf.Module()
        spec = tf.TensorSpec([None, None, 8], tf.float32, name="x")
        module.call = tf.function(function, input_signature=[spec])
        tf.saved_model.save(module, str(folder / "model"), signatures=module.call)
        loaded = load_saved_model(folder / "model", "serving_default", ["serve"], {})
        written(loaded, folder / f"{name},N,T", (None, None), least=2)  # an empty sequence has nothing to stack


def frozen(folder: Path) -> None:
    """A frozen graph of a layer."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input((None, 8), name="x")
    keras.Model(inputs, L.GRU(6, return_sequences=True)(inputs)).export(folder / "model", verbose=False)
    saved = load_saved_model(folder / "model", "serving_default", ["serve"], {})
    definition, _, outputs = saved.freeze()
    (folder / "graph.pb").write_bytes(definition.SerializeToString())
    loaded = load_graph_def(folder / "graph.pb", [], [outputs[0].partition(":")[0]], {})
    written(loaded, folder / "frozen,N,T", (None, None))


def written(loaded: Loaded, to: Path, sizes: tuple[int | None, int | None], least: int = 1) -> None:
    """The model in ``to.onnx``, TensorFlow's inputs and outputs in ``to.npz``."""
    end, out = loaded.inputs[0], loaded.outputs[0]
    feeds = [x for x in (*LENGTHS, *EDGES) if all(a in (None, b) for a, b in zip(sizes, x.shape, strict=False))]
    feeds = [x for x in feeds if x.shape[1] >= least]
    job = Job(loaded, {end.name: [sizes[0] or "N", sizes[1] or "T", 8]}, [], [], Path(f"{to}.onnx"), "test")
    ROUTES[0].convert(job)
    results = {f"y{place}": loaded.call({end.key: x})[out.key] for place, x in enumerate(feeds)}
    np.savez(f"{to}.npz", **{f"x{place}": x for place, x in enumerate(feeds)}, **results)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
