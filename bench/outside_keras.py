"""keras.applications in small sizes and groups of Keras layers, as .keras files, for ``bench/outside.py``."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from outside import batches, floats

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
SIDE = 64
APPLICATIONS = (
    "MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large", "EfficientNetB0", "EfficientNetV2B0",
    "ResNet50", "ResNet50V2", "DenseNet121", "NASNetMobile", "Xception", "InceptionV3", "InceptionResNetV2",
    "ConvNeXtTiny", "VGG16",
)  # fmt: skip
Maker = Callable[[], Any]


def applications() -> Mapping[str, Maker]:
    """Each with random weights and without its head's thousand classes."""
    import keras

    def built(name: str) -> Maker:
        side = {"Xception": 72, "InceptionV3": 75, "InceptionResNetV2": 75}.get(name, SIDE)
        made = getattr(keras.applications, name)
        return lambda: made(weights=None, input_shape=(side, side, 3), classes=9)

    return {name.lower(): built(name) for name in APPLICATIONS}


def on(shape: tuple[int, ...], *stack: Any) -> Maker:
    """What makes a model of one input of ``shape``, without the batch, and these layers."""
    import keras

    def make_model() -> Any:
        x = given = keras.Input(shape, name="x")
        for layer in stack:
            x = layer(x)
        return keras.Model(given, x)

    return make_model


def layers() -> Mapping[str, Maker]:
    """One model for each layer that few models have."""
    from keras import layers as k

    row, picture, clip = (9, 6), (10, 12, 3), (4, 8, 9, 2)
    return {
        "bidirectional-concat": on(row, k.Bidirectional(k.LSTM(4, return_sequences=True))),
        "bidirectional-mixed": on(
            row, k.Bidirectional(k.GRU(4), backward_layer=k.GRU(4, go_backwards=True), merge_mode="mul")),
        "lstm-masked": on(row, k.Masking(0.0), k.LSTM(5, return_sequences=True)),
        "gru-reset-before": on(row, k.GRU(5, reset_after=False)),
        "timedistributed-conv": on(clip, k.TimeDistributed(k.Conv2D(3, 3)), k.GlobalAveragePooling3D()),
        "convlstm1d": on((5, 8, 3), k.ConvLSTM1D(3, 3, return_sequences=True)),
        "convlstm2d": on(clip, k.ConvLSTM2D(3, 3, padding="same")),
        "attention-scaled": on(row, lambda x: k.Attention(use_scale=True, score_mode="concat")([x, x])),
        "attention-causal": on(row, lambda x: k.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)),
        "grouped-query": on(row, lambda x: k.GroupQueryAttention(3, 4, 2)(x, x)),
        "layernorm-axes": on(picture, k.LayerNormalization(axis=[1, 2], epsilon=1e-6)),
        "rmsnorm": on(row, k.RMSNormalization()),
        "groupnorm": on((6, 7, 4), k.GroupNormalization(2)),
        "spectralnorm": on(picture, k.SpectralNormalization(k.Conv2D(3, 3))),
        "unitnorm": on(row, k.UnitNormalization(axis=1)),
        "einsumdense": on(row, k.EinsumDense("abc,cde->abde", output_shape=(None, 2, 4), bias_axes="de")),
        "rescaling": on(picture, k.Rescaling(1 / 127.5, -1.0), k.Conv2D(2, 3)),
        "normalization": on(picture, k.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 0.5, 1e-3])),
        "resizing-bicubic": on(picture, k.Resizing(7, 17, interpolation="bicubic")),
        "resizing-area": on(picture, k.Resizing(5, 6, interpolation="area")),
        "resizing-lanczos": on(picture, k.Resizing(7, 17, interpolation="lanczos3")),
        "resizing-antialias": on(picture, k.Resizing(5, 5, antialias=True)),
        "resizing-crop": on(picture, k.Resizing(6, 6, crop_to_aspect_ratio=True)),
        "centercrop": on(picture, k.CenterCrop(7, 8)),
        "discretization": on(row, k.Discretization(bin_boundaries=[-1.0, 0.0, 0.5])),
        "depthwise-multiplier": on(picture, k.DepthwiseConv2D(3, depth_multiplier=2, dilation_rate=2)),
        "conv-groups": on((8, 9, 4), k.Conv2D(6, 3, groups=2, padding="same")),
        "conv-transpose-output": on(picture, k.Conv2DTranspose(4, 3, strides=2, output_padding=1)),
        "conv3d-transpose": on(clip, k.Conv3DTranspose(3, 2, strides=2)),
        "separable1d": on(row, k.SeparableConv1D(5, 3, depth_multiplier=2)),
        "locally-padded": on(picture, k.ZeroPadding2D(((1, 2), (0, 3))), k.MaxPooling2D(3, 2, padding="same")),
        "upsampling-cubic": on(picture, k.UpSampling2D(2, interpolation="bicubic")),
        "softmax-axes": on(picture, k.Softmax(axis=(1, 2))),
        "prelu-shared": on(picture, k.PReLU(shared_axes=[1, 2], alpha_initializer="random_normal")),
        "gelu-swish-mish": on(row, k.Activation("gelu"), k.Activation("swish"), k.Activation("mish")),
        "sparsemax": on(row, k.Activation("sparsemax")),
        "random-layers": on(picture, k.RandomFlip(), k.RandomRotation(0.2), k.GaussianNoise(0.3), k.Conv2D(2, 3)),
        "stacked-cells": on(row, k.RNN([k.LSTMCell(4), k.GRUCell(3)], return_sequences=True)),
        "dot-normalized": on(row, lambda x: k.Dot(axes=(2, 2), normalize=True)([x, x])),
        "permute-reshape": on(picture, k.Permute((3, 1, 2)), k.Reshape((-1, 6))),
        "mel": on((1024,), k.MelSpectrogram(fft_length=64, sequence_stride=32, sampling_rate=8000, num_mel_bins=8)),
        "stft": on((200, 1), k.STFTSpectrogram(mode="log", frame_length=32, frame_step=16, fft_length=32)),
    }  # fmt: skip


def one(folder: Path, name: str, maker: Maker) -> None:
    """NAME.keras and NAME.pkl."""
    import keras

    keras.utils.set_random_seed(sum(map(ord, name)))
    model, rng = maker(), np.random.default_rng(1)
    for weight in model.weights:
        if "moving_mean" in weight.path:
            weight.assign(rng.normal(size=weight.shape) * 0.3)
        elif "moving_variance" in weight.path:
            weight.assign(rng.uniform(0.05, 2, size=weight.shape))
    shape = (2, *model.inputs[0].shape[1:])
    rows = {
        kind: {"inputs": arrays, "outs": [np.asarray(model(arrays[0], training=False))], "double": None}
        for kind, arrays in (floats([shape]) | batches([shape], (1, 3))).items()
    }
    model.save(folder / f"{name}.keras")
    (folder / f"{name}.pkl").write_bytes(pickle.dumps({"rows": rows, "flags": []}))
    print(f"{name}: {[each.shape for each in rows['noise']['outs']]}", flush=True)


def make(folder: Path, names: list[str]) -> None:
    """Each model that is not there, until seven minutes are over; what Keras does not build is said."""
    began = time.perf_counter()
    for name, maker in {**layers(), **applications()}.items():
        if (names and name not in names) or (folder / f"{name}.pkl").exists():
            continue
        if time.perf_counter() - began > 400:
            sys.exit(75)
        try:
            one(folder, name, maker)
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:200]!r}", flush=True)
