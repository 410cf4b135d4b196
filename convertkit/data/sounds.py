"""WAV files of a folder as samples of an input: windows of a recording, PCM and float alike, scaled to -1 … 1."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.errors import FeedError, MissingFramework
from convertkit.recipe import WavOptions

_MOST_CHANNELS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """What an input takes: ``shape`` of one sample without the batch, where its channels and its time are."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    channel_axis: int | None

    @classmethod
    def of(cls, spec: TensorSpec) -> Place:
        """``FeedError`` for an input that is not a waveform: N×T, N×C×T or N×T×C with at most 2 channels, or T."""
        shape = spec.source_shape[1:] if len(spec.source_shape) > 1 else spec.source_shape
        if len(shape) == 1:
            return cls(spec.name, spec.dtype, shape, None)
        few = [axis for axis, size in enumerate(shape) if isinstance(size, int) and size <= _MOST_CHANNELS]
        if len(shape) != 2 or not few:
            told = "×".join(map(str, spec.source_shape))
            raise FeedError(
                f"WAV files for input {spec.name!r} of the shape {told}; expected a waveform, N×T, N×C×T or N×T×C: "
                "features such as spectrograms come from pkg.mod:func or .npy"
            )
        return cls(spec.name, spec.dtype, shape, few[0])

    @property
    def channels(self) -> int:
        return 1 if self.channel_axis is None else int(self.shape[self.channel_axis])

    @property
    def length(self) -> int | None:
        """Samples in time, None where that is dynamic."""
        size = next(size for axis, size in enumerate(self.shape) if axis != self.channel_axis)
        return size if isinstance(size, int) else None

    def laid(self, window: Array) -> Array:
        """``window`` (time, channels) in the input's order and dtype."""
        if np.issubdtype(np.dtype(self.dtype), np.integer):
            info = np.iinfo(self.dtype)
            window = np.clip(np.rint(window * (info.max + 1.0)), info.min, info.max)
        window = window.astype(self.dtype)
        if self.channel_axis is None:
            return window[:, 0]
        return np.ascontiguousarray(window.T) if self.channel_axis == 0 else window


@dataclass(frozen=True, slots=True)
class Sounds:
    """The windows of all files, in order; ``windows`` says how many each file has."""

    files: tuple[Path, ...]
    windows: tuple[int, ...]
    place: Place
    options: WavOptions
    shape: tuple[int, ...]
    notes: tuple[str, ...]

    @classmethod
    def of_files(cls, files: tuple[Path, ...], spec: TensorSpec, options: WavOptions) -> Sounds:
        """Look into every file once: rates agree, or are made to, and every window is counted."""
        place = Place.of(spec)
        rates: dict[int, Path] = {}
        lengths = []
        for file in files:
            rate, recording = _read(file)
            rates.setdefault(rate, file)
            lengths.append(len(_fitted(file, rate, recording, place, options)))
        if options.rate is None and len(rates) > 1:
            (one, first), (two, second) = list(rates.items())[:2]
            raise FeedError(
                f"{first} has {one} Hz and {second} has {two} Hz; say what the model takes, for example "
                f"--wav rate:{min(one, two)}"
            )
        window = options.window_at(_rate(options, rates)) or place.length
        if place.length is not None and window != place.length:
            raise FeedError(
                f"--wav window of {window} samples: input {place.name!r} takes {place.length}; leave the window out"
            )
        hop = options.hop_at(_rate(options, rates)) or window
        counts = tuple(_count(length, window, hop) for length in lengths)
        first_shape = next(_cut(_fitted(files[0], *_read(files[0]), place, options), window, hop))
        shape = (sum(counts), *place.laid(first_shape).shape)
        return cls(files, counts, place, options, shape, _notes(options, rates, lengths, window))

    def rows(self) -> Iterator[Array]:
        """Every window of every file."""
        for file in self.files:
            rate, recording = _read(file)
            at = self.options.rate or rate
            window = self.options.window_at(at) or self.place.length
            fitted = _fitted(file, rate, recording, self.place, self.options)
            yield from map(self.place.laid, _cut(fitted, window, self.options.hop_at(at) or window))


def _rate(options: WavOptions, rates: dict[int, Path]) -> int:
    return options.rate or next(iter(rates))


def _notes(options: WavOptions, rates: dict[int, Path], lengths: list[int], window: int | None) -> tuple[str, ...]:
    told = ", ".join(f"{rate} Hz" for rate in rates)
    resampled = f", resampled to {options.rate} Hz" if options.rate and set(rates) != {options.rate} else ""
    notes = [f"WAV files of {told}{resampled}, scaled to -1 … 1"]
    short = sum(length < window for length in lengths) if window else 0
    if short:
        notes.append(f"{short} of {len(lengths)} WAV files are shorter than {window} samples; filled up with silence")
    return tuple(notes)


def _count(length: int, window: int | None, hop: int | None) -> int:
    return 1 if window is None or hop is None or length <= window else 1 + (length - window) // hop


def _cut(recording: Array, window: int | None, hop: int | None) -> Iterator[Array]:
    """Windows of (time, channels); a recording that is shorter ends in silence, a rest that fills none is left out."""
    if window is None or hop is None:
        yield recording
        return
    if len(recording) < window:
        yield np.pad(recording, ((0, window - len(recording)), (0, 0)))
        return
    for start in range(0, len(recording) - window + 1, hop):
        yield recording[start : start + window]


def _read(file: Path) -> tuple[int, Array]:
    """Rate in Hz, and (time, channels) as float64 in -1 … 1; ``FeedError`` for what is broken or compressed."""
    try:
        from scipy.io import wavfile
    except ImportError as error:
        raise MissingFramework("scipy", "audio") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", wavfile.WavFileWarning)
            warnings.filterwarnings("ignore", "Chunk .non-data. not understood", wavfile.WavFileWarning)
            rate, values = wavfile.read(file)
    except wavfile.WavFileWarning as error:
        raise FeedError(f"{file} is truncated: {error}") from error
    except Exception as error:  # scipy raises errors of many kinds on broken files
        raise FeedError(f"{file} is not a WAV file of PCM or float that can be read: {_line(error)}") from error
    if rate <= 0 or values.size == 0:
        raise FeedError(f"{file} holds no sound: {len(values)} samples at {rate} Hz")
    return int(rate), _scaled(values.reshape(len(values), -1))


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


def _scaled(values: Array) -> Array:
    """PCM by its full scale; unsigned bytes are centred on 128, 24 bits come in the upper part of 32."""
    if values.dtype == np.uint8:
        return (values.astype(np.float64) - 128) / 128
    if np.issubdtype(values.dtype, np.integer):
        return values / -float(np.iinfo(values.dtype).min)
    return values.astype(np.float64)


def _fitted(file: Path, rate: int, recording: Array, place: Place, options: WavOptions) -> Array:
    """(time, channels) at the rate and with the channels that are wanted."""
    channels = recording.shape[1]
    if options.mono and channels > 1:
        recording = recording.mean(axis=1, keepdims=True)
    if recording.shape[1] != place.channels:
        way_out = "; add mono to --wav" if place.channels == 1 else ""
        raise FeedError(f"{file} has {channels} channels, input {place.name!r} takes {place.channels}{way_out}")
    if options.rate is None or options.rate == rate:
        return recording
    from scipy.signal import resample_poly

    common = gcd(options.rate, rate)
    return np.asarray(resample_poly(recording, options.rate // common, rate // common, axis=0))
