"""SavedModels and .h5 files for ``bench/outside.py``: Keras layers in both, plain functions, models of several ends."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from outside import batches, floats

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import tensorflow as tf
from outside_keras import layers, on
from outside_selections import Candidates

REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError, tf.errors.OpError)
LAYERS = (
    "bidirectional-concat", "bidirectional-mixed", "lstm-masked", "gru-reset-before", "timedistributed-conv",
    "convlstm1d", "convlstm2d", "attention-causal", "grouped-query", "groupnorm", "rmsnorm", "einsumdense",
    "normalization", "resizing-bicubic", "resizing-area", "resizing-antialias", "discretization", "conv3d-transpose",
    "depthwise-multiplier", "locally-padded", "upsampling-cubic", "random-layers", "stacked-cells", "stft", "sparsemax",
)  # fmt: skip


def fed(specs: Sequence[tf.TensorSpec]) -> dict[str, list[np.ndarray]]:
    """Inputs of every kind; unknown sizes are 2 in front and 9 elsewhere, and other batches where that is open."""
    shapes = [tuple((2 if i == 0 else 9) if d is None else d for i, d in enumerate(s.shape)) for s in specs]
    if all(spec.dtype.is_floating for spec in specs):
        rows = floats(shapes)
        if all(len(spec.shape) and spec.shape[0] is None for spec in specs):
            rows |= batches(shapes, (1, 3))
        return rows
    if any(spec.dtype == tf.string for spec in specs):
        return {"words": [np.full(shape, b"a b") for shape in shapes]}
    rng = np.random.default_rng(7)
    return {
        f"integers {k}": [
            rng.integers(0, 255 if spec.dtype == tf.uint8 else 5, shape).astype(spec.dtype.as_numpy_dtype)
            if not spec.dtype.is_floating
            else rng.standard_normal(shape).astype(np.float32)
            for spec, shape in zip(specs, shapes, strict=True)
        ]
        for k in range(3)
    }


def keep(
    folder: Path,
    name: str,
    call: Callable[..., Any],
    specs: Sequence[tf.TensorSpec],
    exact: Callable[..., Any] | None = None,
    **more: Any,
) -> None:
    """NAME.pkl, with the names of inputs and outputs where there are several; ``exact`` rounds less than ``call``."""
    rows, outputs = {}, None
    for kind, arrays in fed(specs).items():
        found = call(*map(tf.constant, arrays))
        if isinstance(found, Mapping):
            outputs = sorted(found)
            found = [found[each] for each in outputs]
        rows[kind] = {"inputs": arrays, "outs": [np.asarray(each) for each in tf.nest.flatten(found)], "double": None}
        if exact is not None:
            rows[kind]["double"] = [np.asarray(each) for each in tf.nest.flatten(exact(*map(tf.constant, arrays)))]
    names = {"inputs": [spec.name for spec in specs] if len(specs) > 1 else None, "outputs": outputs}
    (folder / f"{name}.pkl").write_bytes(pickle.dumps({"rows": rows, "flags": [], "names": names, **more}))
    print(f"{name}: {[each.shape for each in next(iter(rows.values()))['outs']]}", flush=True)


def judged_otherwise(folder: Path, name: str, call: Callable[..., Any]) -> None:
    """Adds to NAME.pkl what a function's judge needs beside the source's answers."""
    kept = folder / f"{name}.pkl"
    data, rng = pickle.loads(kept.read_bytes()), np.random.default_rng(11)
    for row in data["rows"].values():
        (x,) = row["inputs"]
        if name == "nms":
            boxes = 1 / (1 + np.exp(-x.astype(np.float64)))
            row["candidates"] = Candidates(boxes, boxes[:, 0], 4, 0.4)
        if name == "rfft":
            near = np.nextafter(x, np.where(rng.random(x.shape) < 0.5, np.inf, -np.inf).astype(x.dtype))
            row["moved"] = [np.asarray(each) for each in tf.nest.flatten(call(tf.constant(near)))]
    kept.write_bytes(pickle.dumps(data))


def function(folder: Path, name: str, call: Callable[..., Any], specs: tuple[tf.TensorSpec, ...]) -> None:
    """A function as the only signature of a SavedModel."""
    module = tf.Module()
    module.held = [each.cell_contents for each in (getattr(call, "__closure__", None) or ())]
    module.owner = getattr(call, "__self__", None)  # the table of a table's lookup
    module.call = tf.function(call, input_signature=specs)
    keep(folder, name, module.call, specs)
    if name in ("nms", "rfft"):
        judged_otherwise(folder, name, module.call)
    tf.saved_model.save(module, str(folder / f"{name}.savedmodel"), signatures={"serving_default": module.call})


def keras_layer(folder: Path, name: str, maker: Callable[[], Any]) -> None:
    """One layer as a SavedModel and as .h5."""
    import keras

    keras.utils.set_random_seed(sum(map(ord, name)))
    model = maker()
    specs = [tf.TensorSpec(given.shape, given.dtype, given.name) for given in model.inputs]
    exact = None
    if any(str(weight.dtype) == "float32" != layer.compute_dtype for layer in model.layers for weight in layer.weights):
        wide = in_float32(model)
        exact = lambda *x: wide(x[0], training=False)  # noqa: E731
    for form in ("saved", "h5"):
        call = lambda *x: model(list(x) if len(x) > 1 else x[0], training=False)  # noqa: E731
        keep(folder, f"{form}-{name}", call, specs, exact)
    model.export(str(folder / f"saved-{name}.savedmodel"), verbose=False)
    model.save(folder / f"h5-{name}.h5")


def in_float32(model: Any) -> Any:
    """The same layers and weights, computed in float32: a source that rounds to float16 is off by that itself."""
    import keras

    config = model.get_config()
    for layer in config["layers"]:
        layer["config"]["dtype"] = "float32"
    wide = keras.Model.from_config(config)
    wide.set_weights(model.get_weights())
    return wide


def ends() -> Mapping[str, Callable[[], Any]]:
    """Keras models of several inputs and outputs, other types, and layers of one's own."""
    import keras
    from keras import layers as k

    @keras.saving.register_keras_serializable("outside")
    class Scaled(k.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(shape[-1],), initializer="random_normal")

        def call(self, x: Any) -> Any:
            return keras.ops.tanh(x) * self.scale

    def several() -> Any:
        a, b = keras.Input((6,), name="left"), keras.Input((9, 6), name="right")
        both = k.Concatenate()([k.Dense(4)(a), k.LSTM(5)(b)])
        return keras.Model([a, b], {"class": k.Dense(3, "softmax")(both), "box": k.Dense(4, name="box")(both)})

    def words() -> Any:
        x = keras.Input((9,), dtype="int32", name="tokens")
        return keras.Model(x, k.Dense(3)(k.LSTM(6)(k.Embedding(5, 8, mask_zero=True)(x))))

    def half() -> Any:
        policy = keras.mixed_precision.global_policy()
        keras.mixed_precision.set_global_policy("mixed_float16")
        try:
            x = keras.Input((10, 12, 3), name="x")
            y = k.BatchNormalization()(k.Conv2D(4, 3, activation="relu")(x))
            return keras.Model(x, k.Dense(5, "softmax", dtype="float32")(k.GlobalAveragePooling2D()(y)))
        finally:
            keras.mixed_precision.set_global_policy(policy)

    return {
        "several-ends": several,
        "masked-words": words,
        "mixed-float16": half,
        "own-layer": on((9, 6), Scaled(), k.Dense(3)),
        "lambda": on((9, 6), k.Lambda(lambda x: x * 2 + 1), k.Dense(3)),
        "lambda-tf": on((9, 6), k.Lambda(tf.nn.softplus), k.Dense(3)),
        "ops-between": on((9, 6), lambda x: keras.ops.relu(x) ** 2 + x[:, :1], k.Dense(3)),
        "category-encoding": on((6,), k.CategoryEncoding(5, output_mode="multi_hot")),
        "integer-lookup": on((6,), k.IntegerLookup(vocabulary=[1, 3, 4])),
        "hashing": on((6,), k.Hashing(7)),
        "mobilenetv2": lambda: keras.applications.MobileNetV2(
            weights=None, input_shape=(64, 64, 3), classes=9, classifier_activation=None),
        "unet": _unet,
        "wrapped-sequential": on((10, 12, 3), keras.Sequential([k.Conv2D(3, 3), k.ReLU(6.0)]), k.Flatten(), k.Dense(2)),
    }  # fmt: skip


def _unet() -> Any:
    import keras
    from keras import layers as k

    x = keras.Input((16, 16, 3), name="x")
    down = k.Conv2D(6, 3, padding="same", activation="gelu")(x)
    low = k.Conv2D(8, 3, 2, "same", activation="swish")(down)
    up = k.Conv2DTranspose(6, 3, 2, "same")(low)
    up = k.Concatenate()([up, down, k.UpSampling2D(interpolation="bilinear")(low)])
    return keras.Model(x, k.Conv2D(2, 1, activation="sigmoid")(up))


def several_signatures(folder: Path) -> None:
    """A module with two signatures, one of which a flag chooses."""
    module = tf.Module()
    module.w = tf.Variable(np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3))
    spec = tf.TensorSpec((None, 6), tf.float32, "x")
    module.encode = tf.function(lambda x: {"code": tf.tanh(x @ module.w)}, input_signature=(spec,))
    module.score = tf.function(lambda x: {"score": tf.reduce_sum(x @ module.w, 1)}, input_signature=(spec,))
    signatures = {"encode": module.encode, "score": module.score}
    for name, flags in (("signature-chosen", ["--signature", "score"]), ("no-signature-chosen", [])):
        tf.saved_model.save(module, str(folder / f"{name}.savedmodel"), signatures=signatures)
        keep(folder, name, module.score, (spec,), flags=flags)


def counting(folder: Path) -> None:
    """A module that counts its calls: no two of them agree."""
    module = tf.Module()
    module.count, spec = tf.Variable(0.0), tf.TensorSpec((None, 6), tf.float32, "x")
    module.call = tf.function(lambda x: x + module.count.assign_add(1.0), input_signature=(spec,))
    keep(folder, "no-counting", module.call, (spec,))
    tf.saved_model.save(module, str(folder / "no-counting.savedmodel"), signatures=module.call)


def make(folder: Path, names: list[str]) -> None:
    """Each model that is not there, until seven minutes are over; what TensorFlow does not build is said."""
    from outside_tensorflow_functions import functions

    began, stacked = time.perf_counter(), layers()
    todo: dict[str, Callable[[], None]] = {
        name: lambda n=name, e=entry: function(folder, n, *e)  # type: ignore[misc]
        for name, entry in functions().items()
    }
    todo |= {
        f"saved-{name}": lambda n=name, m=maker: keras_layer(folder, n, m)  # type: ignore[misc]
        for name, maker in {**ends(), **{each: stacked[each] for each in LAYERS}}.items()
    }
    todo |= {"signature-chosen": lambda: several_signatures(folder), "no-counting": lambda: counting(folder)}
    for name, maker in todo.items():
        if (names and name not in names) or (folder / f"{name}.pkl").exists():
            continue
        if time.perf_counter() - began > 400:
            sys.exit(75)
        try:
            maker()
        except REFUSALS as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:200]!r}", flush=True)
