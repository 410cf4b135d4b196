"""Inputs shaped as real ones are: noise says nothing to many trained models.

An image has a 1/f spectrum and flat areas, a recording has silence, a chirp and bursts.  What an input may be is told
by its shape alone.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array

_CHANNELS = (1, 3, 4)
_LEAST_PIXELS, _LEAST_SAMPLES = 16, 512
_MOST_LANES = 4


def image_axes(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The axes of height and width where ``shape`` may be a batch of images (NCHW or NHWC); None elsewhere."""
    if len(shape) != 4:
        return None
    for channels, axes in ((1, (2, 3)), (3, (1, 2))):
        if shape[channels] in _CHANNELS and min(shape[axes[0]], shape[axes[1]]) >= _LEAST_PIXELS:
            return axes
    return None


def is_recording(shape: tuple[int, ...]) -> bool:
    """Whether ``shape`` may be audio: few lanes of many samples, along the last axis."""
    return 1 <= len(shape) <= 3 and shape[-1] >= _LEAST_SAMPLES and int(np.prod(shape[:-1])) <= _MOST_LANES


def natural(rng: np.random.Generator, shape: tuple[int, ...]) -> Array | None:
    """An image in 0..1 or a recording in -1..1, float64; None where ``shape`` is of neither."""
    axes = image_axes(shape)
    if axes is not None:
        return _image(rng, shape, axes)
    return _recording(rng, shape) if is_recording(shape) else None


def _image(rng: np.random.Generator, shape: tuple[int, ...], axes: tuple[int, int]) -> Array:
    """Amplitudes fall as 1/f, as those of photographs do (Field 1987); a corner is flat and a border black."""
    height, width = (shape[axis] for axis in axes)
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    falling = 1 / np.maximum(np.hypot(rows, columns), 1 / max(height, width))
    lanes = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    phases = np.exp(2j * np.pi * rng.random((*lanes, height, columns.shape[1])))
    made = np.fft.irfft2(falling * phases, (height, width))
    made = np.clip(0.5 + 0.2 * made / made.std(), 0, 1)
    made[..., : height // 4, : width // 4] = 0.7
    made[..., -(height // 8) :, :] = 0
    return np.moveaxis(made, (-2, -1), axes)


def _recording(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A quarter silence, a rising tone, and bursts of noise under an envelope as of syllables."""
    length = shape[-1]
    time = np.linspace(0, 1, length)
    tone = 0.3 * np.sin(2 * np.pi * length * (0.01 + 0.1 * time) * time)
    bursts = 0.2 * np.maximum(np.sin(2 * np.pi * 6 * time), 0) * rng.standard_normal(shape)
    made: Array = np.where(time < 0.25, 0, np.where(time < 0.6, tone, bursts))
    return made
