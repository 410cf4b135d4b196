"""The grid's models, made with today's TensorFlow and Keras; a script: ``tensorflow_models.py FOLDER MODEL``.

Every model is small and untrained, with seeded weights.  One that cannot be written in a format
is left out there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

WIDE = keras.initializers.RandomNormal(stddev=4.0, seed=3)
"""Weights so wide that outputs differ by more than the step of an integer."""

CUSTOM_CODE = '''"""A custom layer, as a user's own module would hold it."""

import keras


@keras.saving.register_keras_serializable(package="grid")
class ScaledTanh(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return self.scale * keras.ops.tanh(x)
'''


def functional_cnn() -> keras.Model:
    x = keras.Input((16, 12, 3), name="image")
    h = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    h = layers.BatchNormalization()(h)
    h = layers.ReLU(max_value=6)(h)
    h = layers.DepthwiseConv2D(3, padding="same")(h)
    h = layers.Conv2D(12, 1, activation="relu")(h)
    h = layers.MaxPooling2D(2)(h)
    h = layers.add([h, layers.Conv2D(12, 3, padding="same", activation="sigmoid")(h)])
    h = layers.GlobalAveragePooling2D()(h)
    return keras.Model(x, layers.Dense(5, kernel_initializer=WIDE)(h))


def attention_gelu() -> keras.Model:
    x = keras.Input((6, 8), name="tokens")
    h = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    h = layers.Dense(16, activation="gelu")(h)
    return keras.Model(x, layers.Dense(3)(h))


def recurrent(unroll: bool = False) -> keras.Model:
    """TFLite's own quantizer crashes on loops, so its int8 file is made from the unrolled twin."""
    x = keras.Input((7, 5), name="series")
    h = layers.Bidirectional(layers.LSTM(6, return_sequences=True, unroll=unroll))(x)
    return keras.Model(x, layers.Dense(3)(layers.GRU(4, unroll=unroll)(h)))


def several_inputs() -> keras.Model:
    a, b = keras.Input((4,), name="left"), keras.Input((6,), name="right")
    h = layers.concatenate([layers.Dense(5, activation="relu")(a), layers.Dense(5, activation="tanh")(b)])
    return keras.Model([a, b], [layers.Dense(3, name="score")(h), layers.Dense(2, name="side")(h)])


def bytes_input() -> keras.Model:
    x = keras.Input((8, 8, 3), dtype="uint8", name="pixels")
    h = layers.Rescaling(1 / 127.5, offset=-1.0)(x)
    h = layers.Conv2D(4, 3, activation="relu")(h)
    return keras.Model(x, layers.Dense(3, kernel_initializer=WIDE)(layers.Flatten()(h)))


def custom_layer() -> keras.Model:
    from grid_custom import ScaledTanh

    x = keras.Input((5,), name="x")
    return keras.Model(x, layers.Dense(3)(ScaledTanh(name="scaled_tanh")(layers.Dense(4)(x))))


class WhileIf(tf.Module):
    """Halves until small, then branches on the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        x = tf.while_loop(lambda v: tf.reduce_max(tf.abs(v)) > 1.0, lambda v: (v * 0.5,), [x])[0]
        y = tf.cond(tf.reduce_mean(x) > 0.0, lambda: x @ self.weight, lambda: -(x @ self.weight) + 1.0)
        return {"y": y}


class Words(tf.Module):
    """Looks strings up in a table."""

    def __init__(self) -> None:
        super().__init__()
        init = tf.lookup.KeyValueTensorInitializer(["a", "b", "c"], [1.0, 2.0, 3.0])
        self.table = tf.lookup.StaticHashTable(init, 0.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def __call__(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.table.lookup(words) * 2.0}


MODULES: dict[str, Callable[[], tf.Module]] = {"while_if": WhileIf, "string_table": Words}
MODELS: dict[str, Callable[[], keras.Model]] = {
    "functional_cnn": functional_cnn,
    "attention_gelu": attention_gelu,
    "recurrent": recurrent,
    "several_inputs": several_inputs,
    "bytes_input": bytes_input,
    "custom_layer": custom_layer,
}


def _samples(specs: list[tf.TensorSpec], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for spec in specs:
        shape = [size or 1 for size in spec.shape]
        values = rng.integers(0, 256, shape) if spec.dtype == tf.uint8 else rng.standard_normal(shape)
        made.append(values.astype(spec.dtype.as_numpy_dtype))
    return made


def write_tflite(function: tf.types.experimental.ConcreteFunction, stem: Path, kinds: tuple[str, ...]) -> None:
    """Float and full-integer files of one function of fixed batch 1."""
    function = convert_variables_to_constants_v2(function)
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in function.inputs if x.dtype != tf.resource]
    for name in kinds:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
        if name == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: (_samples(specs, seed) for seed in range(32))
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            if all(spec.dtype == tf.float32 for spec in specs):
                converter.inference_input_type = converter.inference_output_type = tf.int8
        try:
            Path(f"{stem}-{name}.tflite").write_bytes(converter.convert())
        except (tf.errors.OpError, ValueError, RuntimeError, Exception) as error:  # noqa: BLE001 - TFLite's own errors
            print(f"{stem.name}-{name}.tflite not made: {str(error).splitlines()[0][:200]}", file=sys.stderr)


def fixed(function: Callable[..., object], inputs: list[keras.KerasTensor | tf.TensorSpec]) -> object:
    specs = [tf.TensorSpec([size or 1 for size in x.shape], x.dtype, name=x.name) for x in inputs]
    return tf.function(function).get_concrete_function(*specs)


def main(folder: Path, name: str) -> None:
    (folder / "grid_custom.py").write_text(CUSTOM_CODE)
    sys.path.insert(0, str(folder))
    keras.utils.set_random_seed(7)
    if name in MODULES:
        module = MODULES[name]()
        tf.saved_model.save(module, folder / f"{name}-savedmodel", signatures=module.__call__)
        if name == "while_if":
            spec = tf.TensorSpec([1, 4], tf.float32, name="x")
            write_tflite(fixed(module.__call__, [spec]), folder / name, ("float", "int8"))
        return
    model = MODELS[name]()
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.moving_variance.assign(layer.moving_variance * 1.7)
    model.export(folder / f"{name}-savedmodel", verbose=False)
    model.save(folder / f"{name}.keras")
    model.save(folder / f"{name}.h5")
    write_tflite(fixed(_call(model), model.inputs), folder / name, ("float",))
    quantizable = model
    if name == "recurrent":
        quantizable = recurrent(unroll=True)
        quantizable.set_weights(model.get_weights())
    write_tflite(fixed(_call(quantizable), quantizable.inputs), folder / name, ("int8",))


def _call(model: keras.Model) -> Callable[..., object]:
    return lambda *xs: model(list(xs) if len(xs) > 1 else xs[0], training=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
