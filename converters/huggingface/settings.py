"""``config.json`` of Hugging Face's decoders, read strictly: a key that is lacking or of another kind is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.errors import SourceError, Unsupported

CONFIG = "config.json"
_MAX_BYTES = 4 << 20
_MOST = 1 << 24
"""Larger sizes than any decoder has: a hostile file must not make us count to them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of one ``config.json``, or of a table inside of it, by key."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path) -> Settings:
        """Raises ``SourceError`` for a file that is not such a table."""
        path = folder / CONFIG
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise SourceError(f"{path}: larger than a configuration is")
            values = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise SourceError(f"{path} is not a configuration in JSON") from error
        if not isinstance(values, dict):
            raise SourceError(f"{path} holds a {type(values).__name__}, not a table of settings")
        return cls(values)

    def has(self, key: str) -> bool:
        """Whether there is a value other than null."""
        return self.values.get(key) is not None

    def whole(self, *keys: str, default: int | None = None) -> int:
        """The first of these keys that has a value: a size, 1 or more."""
        key, value = self._first(keys, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
            raise SourceError(f"{CONFIG}: {key} is {value!r}, not a size from 1 to {_MOST}")
        return value

    def real(self, *keys: str, default: float | None = None) -> float:
        """A number above 0."""
        key, value = self._first(keys, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise SourceError(f"{CONFIG}: {key} is {value!r}, not a number above 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise SourceError(f"{CONFIG}: {key} is {value!r}, not true or false")
        return default if value is None else value

    def word(self, *keys: str, default: str | None = None) -> str:
        key, value = self._first(keys, default)
        if not isinstance(value, str):
            raise SourceError(f"{CONFIG}: {key} is {value!r}, not a word")
        return value

    def table(self, key: str) -> Settings | None:
        """A table inside of this one, None where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise SourceError(f"{CONFIG}: {key} is {value!r}, not a table")
        return None if value is None else Settings(value)

    def words(self, key: str, count: int) -> tuple[str, ...] | None:
        """A list of ``count`` words, None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count or not all(isinstance(each, str) for each in value):
            raise SourceError(f"{CONFIG}: {key} is not a list of {count} words")
        return tuple(value)

    def refuse(self, unlike: Mapping[str, object]) -> None:
        """``Unsupported`` where a key has another value than the one that is understood, if it has any."""
        for key, only in unlike.items():
            value = self.values.get(key)
            if value is not None and value != only:
                raise Unsupported(f"{CONFIG} says {key}={_brief(value)}, and only {only!r} is understood", subject=key)

    def _first(self, keys: tuple[str, ...], default: object) -> tuple[str, object]:
        key = next((key for key in keys if self.has(key)), None)
        if key is not None:
            return key, self.values[key]
        if default is None:
            raise SourceError(f"{CONFIG} lacks {keys[0]}")
        return keys[0], default


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
