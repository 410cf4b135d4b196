"""The words of ``--preprocess audio:RATE``: how PCM of 16 bits becomes what a model of sounds takes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from convertkit.errors import UsageError
from convertkit.processing.numbers_in_words import number

Taper = Literal["hann", "hamming", "rectangular"]
TAPERS: tuple[Taper, ...] = get_args(Taper)
WORDS = (
    "expected words of audio:16000, raw or peak, int32, samples:16000, input:NAME, and of a front end window:30ms, "
    "hop:20ms, fft:512, "
    + ", ".join(TAPERS)
    + ", power, mel:40, low:20, high:4000, log:1e-6, mfcc:10, mean:M, std:S, transposed"
)
_LENGTH = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|)")
_RATES = range(1, 1_000_001)
_FLAGS = frozenset({"raw", "peak", "int32", "power", "transposed", *TAPERS})
_OF_FRAMES = ("hop", "fft", "mel", "low", "high", "log", "mfcc", "power", "transposed", *TAPERS)


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Frames of ``window`` samples, each ``hop`` behind the last, as spectra of ``fft`` points, and what follows.

    The formulas are those of ``tf.signal``: ``stft``, ``linear_to_mel_weight_matrix`` and
    ``mfccs_from_log_mel_spectrograms``.  ``mel`` bands lie from ``low`` to ``high`` Hz; 0 leaves the spectrum.
    ``log`` is added before the natural logarithm, None takes none.  ``mfcc`` counts coefficients, 0 leaves the bands.
    """

    window: int
    hop: int
    fft: int
    taper: Taper
    power: bool = False
    mel: int = 0
    low: float = 0.0
    high: float = 0.0
    log: float | None = None
    mfcc: int = 0

    @property
    def numbers(self) -> int:
        """How many there are for each frame."""
        return self.mfcc or self.mel or self.fft // 2 + 1

    def samples(self, frames: int) -> int:
        """The least that make so many frames."""
        return self.window + (frames - 1) * self.hop

    def frames(self, samples: int) -> int:
        """Whole frames only."""
        return 0 if samples < self.window else 1 + (samples - self.window) // self.hop


@dataclass(frozen=True, slots=True)
class Audio:
    """PCM of 16 bits at ``rate`` Hz, mono, scaled to -1 to 1, then ``(x - mean) / std`` of what is made.

    Where ``raw`` it is not scaled; where ``peak``, by its own greatest sample, and silence is not a number then.

    ``samples`` is the length that an app gives; None is what the model's input takes.  ``transposed``: the model has
    numbers before frames.  ``wide``: the input is of int32, for runtimes without arrays of int16.
    """

    rate: int
    spectrum: Spectrum | None = None
    raw: bool = False
    samples: int | None = None
    mean: float = 0.0
    std: float = 1.0
    transposed: bool = False
    input: str | None = None
    wide: bool = False
    peak: bool = False


def parse_audio(title: str, words: list[tuple[str, str]]) -> Audio:
    """``words`` in any order, each once; ``UsageError`` for others, for what is missing, and for contradictions."""
    found = _read(title, words)
    if found.keys() >= {"raw", "peak"}:
        raise UsageError(f"{title}: raw and peak exclude each other")
    samples = int(found["samples"]) if "samples" in found else None
    return Audio(
        int(found["audio"]),
        _spectrum(title, found, int(found["audio"])),
        "raw" in found,
        samples,
        float(found.get("mean", 0)),
        float(found.get("std", 1)),
        "transposed" in found,
        found.get("input"),
        "int32" in found,
        "peak" in found,
    )


def _read(title: str, words: list[tuple[str, str]]) -> dict[str, str]:
    found = dict[str, str]()
    for name, value in words:
        if name in found:
            raise UsageError(f"{title}: {name} is given twice")
        fits = {
            "audio": value.isdecimal() and int(value) in _RATES,
            **dict.fromkeys(("samples", "fft", "mel", "mfcc"), value.isdecimal() and int(value) > 0),
            **dict.fromkeys(("window", "hop"), _LENGTH.fullmatch(value) is not None and number(value[:1]) >= 0),
            **dict.fromkeys(("low", "high", "log"), number(value) >= 0),
            "std": number(value) > 0,
            "mean": math.isfinite(number(value)),
            "input": bool(value),
            **dict.fromkeys(_FLAGS, not value),
        }
        if not fits.get(name, False):
            raise UsageError(f"{title}: {name}{':' if value else ''}{value} is not a step; {WORDS}")
        found[name] = value
    return found


def _spectrum(title: str, found: dict[str, str], rate: int) -> Spectrum | None:
    if "window" not in found:
        if given := [name for name in _OF_FRAMES if name in found]:
            raise UsageError(f"{title}: {given[0]} is of a front end, which begins with window: the samples of a frame")
        return None
    tapers = [taper for taper in TAPERS if taper in found]
    for name, is_there in (
        ("hop", "hop" in found),
        ("fft", "fft" in found),
        ("one of " + ", ".join(TAPERS), len(tapers) == 1),
    ):
        if not is_there:
            raise UsageError(f"{title}: a front end needs {name}: the pipeline of training decides, nothing is guessed")
    window, hop = (_samples(found[name], rate) for name in ("window", "hop"))
    fft = int(found["fft"])
    mel, mfcc = int(found.get("mel", 0)), int(found.get("mfcc", 0))
    low, high = float(found.get("low", 0)), float(found.get("high", 0))
    if window < 1 or hop < 1 or fft < window:
        raise UsageError(f"{title}: a frame of {window} samples, {hop} apart, in an FFT of {fft}: expected 1 or more, "
                         "and an FFT that holds the frame")  # fmt: skip
    if mel and not ("low" in found and low < high <= rate / 2):
        raise UsageError(f"{title}: mel needs low:HZ and high:HZ, at most half of the rate")
    if not mel and (given := [name for name in ("low", "high", "mfcc") if name in found]):
        raise UsageError(f"{title}: {given[0]} is of mel bands, and mel:COUNT is missing")
    if mfcc and ("log" not in found or mfcc > mel):
        raise UsageError(f"{title}: mfcc needs log:OFFSET, and at most as many coefficients as mel bands")
    log = float(found["log"]) if "log" in found else None
    return Spectrum(window, hop, fft, tapers[0], "power" in found, mel, low, high, log, mfcc)


def _samples(text: str, rate: int) -> int:
    match = _LENGTH.fullmatch(text)
    assert match is not None  # :func:`_read` has refused others
    return round(float(match["number"]) * (rate / 1000 if match["unit"] else 1))
