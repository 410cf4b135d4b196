"""``--wav``: words that say how WAV files become inputs."""

from __future__ import annotations

import re

from convertkit.errors import UsageError
from convertkit.recipe import WavOptions

_LENGTH = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|ms|)")
_EXPECTED = "expected words of rate:16000, mono, window:16000 (samples, or 1s, 30ms), hop:8000"
_RATES = range(1, 1_000_001)


def parse_wav(text: str | WavOptions) -> WavOptions:
    """Words in any order: ``rate:16000,mono,window:1s,hop:500ms``; ``UsageError`` for any other."""
    if isinstance(text, WavOptions):
        return text
    chosen: dict[str, object] = {}
    seconds = set()
    for word in str(text).lower().replace(" ", "").split(","):
        name, _, value = word.partition(":")
        if name in chosen:
            raise UsageError(f"--wav {text}: {name} is given twice")
        if word == "mono":
            chosen["mono"] = True
        elif name == "rate" and value.isdecimal() and int(value) in _RATES:
            chosen["rate"] = int(value)
        elif name in ("window", "hop") and (match := _LENGTH.fullmatch(value)) and float(match["number"]) > 0:
            if match["unit"]:
                seconds.add(name)
            chosen[name] = float(match["number"]) / (1000 if match["unit"] == "ms" else 1)
        else:
            raise UsageError(f"--wav {text}: {word!r}; {_EXPECTED}")
    return WavOptions(**chosen, in_seconds=frozenset(seconds))  # type: ignore[arg-type]
