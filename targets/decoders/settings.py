"""What a decoder's folder says beside its weights: tokens that begin and end a text, the context, how to choose."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.errors import SourceError, Unsupported

GENERATION = "generation_config.json"
_SOURCES = (GENERATION, "config.json")
_CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of the first token of a text and of those that end one."""

    begin: int | None
    end: tuple[int, ...]


def tokens_of(folder: Path, vocabulary: int, engine: str) -> Tokens:
    """As the source's settings say it; ``Unsupported`` without an end, which ``engine`` needs."""
    settings = _settings(folder)
    given = settings.get("eos_token_id")
    end = tuple(given) if isinstance(given, list) else () if given is None else (given,)
    if not end:
        raise Unsupported(
            f"no eos_token_id in config.json or generation_config.json: {engine} would not know where to end",
            ways_out=("add eos_token_id to generation_config.json", "--target onnxruntime"),
        )
    begin = settings.get("bos_token_id")
    for each in end if begin is None else (begin, *end):
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < vocabulary:
            raise SourceError(f"{folder}: the token {each!r} is not one of the {vocabulary}")
    return Tokens(begin, end)


def context_of(folder: Path) -> int:
    """How many places the model was made for."""
    settings = _settings(folder)
    found = next((settings[key] for key in _CONTEXT if settings.get(key) is not None), None)
    if isinstance(found, bool) or not isinstance(found, int) or found < 2:
        raise SourceError(f"{folder / 'config.json'} says no context: {_CONTEXT[0]} is {found!r}")
    return found


def _settings(folder: Path) -> dict[str, Any]:
    """Both files as one, the one for generation first."""
    told: dict[str, Any] = {}
    for name in reversed(_SOURCES):
        told |= {key: value for key, value in read(folder / name).items() if value is not None}
    return told


def read(path: Path) -> dict[str, Any]:
    """A table in JSON, empty where the file is not there; ``SourceError`` for anything else."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not JSON") from error
    if not isinstance(found, dict):
        raise SourceError(f"{path} is not a table of settings")
    return found
