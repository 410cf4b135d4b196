"""Sound as a model's input: which input it is, the arrays of a front end, and what it computes in plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.errors import UsageError
from convertkit.processing.audio_words import Audio, Spectrum

_FULL = 32768.0
"""What stands for 1 in PCM of 16 bits, as in ``tf.audio.decode_wav`` and ``torchaudio.load``."""


@dataclass(frozen=True, slots=True)
class Sound:
    """The input called ``name``, of ``shape`` behind its batch, that ``samples`` of PCM become.

    ``flat`` says that an app gives (samples,) to a model without a batch.
    """

    how: Audio
    name: str
    samples: int
    shape: tuple[int, ...]
    flat: bool = False

    @property
    def dtype(self) -> str:
        """Of the PCM that an app gives."""
        return "int32" if self.how.wide else "int16"

    @property
    def note(self) -> str:
        """What an app has to give, in a sentence."""
        return (
            f"input {self.name} takes {self.samples} samples of PCM of 16 bits, mono at {self.how.rate} Hz; "
            "all else that --preprocess names is in the model"
        )


def sound_of(how: Audio, inputs: Sequence[TensorSpec]) -> Sound:
    """What ``how`` means of a model with these inputs; ``UsageError`` where it does not fit them."""
    spec = _chosen(how, [spec for spec in inputs if not spec.is_state and spec.dtype == "float32" and spec.shape])
    shape = spec.shape[1:] if len(spec.shape) > 1 else spec.shape
    if any(isinstance(size, str) for size in shape):
        if how.spectrum is not None or how.samples is None or sum(isinstance(size, str) for size in shape) > 1:
            raise _refusal(f"input {spec.name} {list(spec.shape)} has a dynamic size: start from fixed sizes, or say "
                           "samples:COUNT for a waveform")  # fmt: skip
        shape = tuple(how.samples if isinstance(size, str) else size for size in shape)
    sizes = tuple(int(size) for size in shape)
    along = [size for size in sizes if size != 1]
    samples = _samples(how, spec, along)
    return Sound(how, spec.name, samples, sizes, flat=len(spec.shape) == 1)


def _chosen(how: Audio, found: Sequence[TensorSpec]) -> TensorSpec:
    named = [spec for spec in found if how.input in (None, spec.name)]
    if len(named) == 1:
        return named[0]
    told = ", ".join(spec.name for spec in found) or "none of float32"
    asked = f"input:{how.input}: no such input" if how.input is not None else "which input is meant"
    raise _refusal(f"{asked}; the model has: {told}{'' if how.input is not None else '; say input:NAME'}")


def _samples(how: Audio, spec: TensorSpec, along: Sequence[int]) -> int:
    """How many an app gives, for an input with these sizes other than 1."""
    told = f"input {spec.name} {list(spec.shape)}"
    if how.spectrum is None:
        if len(along) > 1:
            raise _refusal(f"{told} has several axes, and a waveform has one in time: say the front end, window:… on")
        count = along[0] if along else 1
        if how.samples not in (None, count):
            raise _refusal(f"{told} takes {count} samples, not {how.samples}")
        return count
    spectrum = how.spectrum
    numbers, frames = (along[0], along[-1]) if how.transposed else (along[-1], along[0]) if along else (0, 0)
    if len(along) != 2 or numbers != spectrum.numbers:
        order = "numbers before frames" if how.transposed else "frames before numbers"
        raise _refusal(f"{told}, expected {order} with {spectrum.numbers} numbers in each frame")
    samples = spectrum.samples(frames) if how.samples is None else how.samples
    if spectrum.frames(samples) != frames:
        raise _refusal(f"{samples} samples are {spectrum.frames(samples)} frames, and {told} takes {frames}")
    return samples


def waves(spectrum: Spectrum) -> tuple[Array, Array]:
    """Cosines and sines under the taper, (numbers of the FFT, window) of float32, whose products are the spectrum."""
    at, points = np.arange(spectrum.window), np.arange(spectrum.fft // 2 + 1)
    angles = 2 * np.pi * ((points[:, None] * at[None]) % spectrum.fft) / spectrum.fft
    taper = tapered(spectrum)
    return (np.cos(angles) * taper).astype(np.float32), (-np.sin(angles) * taper).astype(np.float32)


def tapered(spectrum: Spectrum) -> Array:
    """The window's own factors, periodic where its length is even: ``tf.signal.hann_window`` and ``hamming_window``."""
    period = max(1, spectrum.window - spectrum.window % 2)
    turns = np.cos(2 * np.pi * np.arange(spectrum.window) / period)
    if spectrum.taper == "rectangular":
        return np.ones(spectrum.window)
    return 0.5 - 0.5 * turns if spectrum.taper == "hann" else 0.54 - 0.46 * turns


def bands(spectrum: Spectrum, rate: int) -> Array:
    """(numbers of the FFT, mel bands): triangles along the mel scale, the lowest number left out.

    Source: ``tf.signal.linear_to_mel_weight_matrix``.
    """
    points = np.linspace(0.0, rate / 2, spectrum.fft // 2 + 1)[1:]
    places = mel(points)[:, None]
    edges = np.linspace(mel(np.array(spectrum.low)), mel(np.array(spectrum.high)), spectrum.mel + 2)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (places - low) / (middle - low), (high - places) / (high - middle)
    found = np.maximum(0.0, np.minimum(rising, falling))
    return np.pad(found, ((1, 0), (0, 0))).astype(np.float32)


def mel(hertz: Array) -> Array:
    """The scale of HTK."""
    return np.asarray(1127.0 * np.log1p(hertz / 700.0))


def cosines(spectrum: Spectrum) -> Array:
    """(mel bands, coefficients): DCT-II over the root of twice the bands, as ``tf.signal`` has MFCCs."""
    bands_, count = np.arange(spectrum.mel), np.arange(spectrum.mfcc)
    angles = np.pi / spectrum.mel * (bands_[:, None] + 0.5) * count[None]
    return np.asarray(2 * np.cos(angles) / np.sqrt(2.0 * spectrum.mel), np.float32)


def heard(pcm: Array, sound: Sound) -> Array:
    """``pcm`` (N, samples) of int16 as the model takes it: float32 of its shape.

    Computed in float64 with the model's own constants, and rounded once at the end.
    """
    how = sound.how
    value = pcm.astype(np.float64).reshape(-1, sound.samples)
    if how.peak:
        with np.errstate(invalid="ignore", divide="ignore"):
            value = value / value.max(axis=-1, keepdims=True)
    elif not how.raw:
        value = value / _FULL
    if how.spectrum is not None:
        value = _numbers(value, how.spectrum, how.rate)
        value = value.transpose(0, 2, 1) if how.transposed else value
    value = (value - how.mean) / how.std
    return value.astype(np.float32).reshape(sound.shape if sound.flat else (len(value), *sound.shape))


def _numbers(value: Array, spectrum: Spectrum, rate: int) -> Array:
    """(N, frames, numbers) of (N, samples)."""
    frames = np.arange(spectrum.frames(value.shape[1])) * spectrum.hop
    cut = value[:, frames[:, None] + np.arange(spectrum.window)]
    real, imaginary = (cut @ each.T.astype(np.float64) for each in waves(spectrum))
    found = real**2 + imaginary**2
    found = found if spectrum.power else np.sqrt(found)
    if spectrum.mel:
        found = found @ bands(spectrum, rate).astype(np.float64)
    if spectrum.log is not None:
        found = np.log(found + np.float32(spectrum.log))
    return np.asarray(found @ cosines(spectrum).astype(np.float64) if spectrum.mfcc else found)


def _refusal(sentence: str) -> UsageError:
    return UsageError(f"--preprocess audio: {sentence}")
