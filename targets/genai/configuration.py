"""``genai_config.json``: what GenAI reads before the model.

Source of the keys: ONNX Runtime GenAI's documentation, "Config reference".  The type is ``decoder``, which has no
behaviour of one family: what the model computes is in its graph alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.errors import SourceError, Unsupported
from convertkit.targets.genai.attention import Shape

CONFIG = "genai_config.json"
_SOURCES = ("generation_config.json", "config.json")
_NO_TOKEN = -1
"""As what fills rows, of which there is one: behind a prompt that ends in such a token GenAI takes earlier logits."""
_CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx")
_SEARCH: Mapping[str, tuple[type, ...]] = {
    "do_sample": (bool,),
    "temperature": (int, float),
    "top_k": (int,),
    "top_p": (int, float),
    "repetition_penalty": (int, float),
}
"""Settings of ``generation_config.json`` that GenAI's search has, too."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of the first token of a text and of those that end one."""

    begin: int
    end: tuple[int, ...]


def tokens_of(folder: Path, vocabulary: int) -> Tokens:
    """As the source's settings say it; ``Unsupported`` without an end, which GenAI needs."""
    settings = _settings(folder)
    given = settings.get("eos_token_id")
    end = tuple(given) if isinstance(given, list) else () if given is None else (given,)
    if not end:
        raise Unsupported(
            "no eos_token_id in config.json or generation_config.json: GenAI would not know where to end",
            ways_out=("add eos_token_id to generation_config.json", "--target onnxruntime"),
        )
    begin = settings.get("bos_token_id")
    ids = (end[0] if begin is None else begin, *end)
    for each in ids:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < vocabulary:
            raise SourceError(f"{folder}: the token {each!r} is not one of the {vocabulary}")
    return Tokens(ids[0], ids[1:])


def context_of(folder: Path) -> int:
    """How many places the model was made for."""
    settings = _settings(folder)
    found = next((settings[key] for key in _CONTEXT if settings.get(key) is not None), None)
    if isinstance(found, bool) or not isinstance(found, int) or found < 2:
        raise SourceError(f"{folder / 'config.json'} says no context: {_CONTEXT[0]} is {found!r}")
    return found


def configuration(shape: Shape, vocabulary: int, context: int, tokens: Tokens, folder: Path) -> str:
    """The whole file."""
    decoder = {
        "session_options": {"provider_options": []},
        "filename": "model.onnx",
        "head_size": shape.head_size,
        "hidden_size": shape.heads * shape.head_size,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.groups,
        "num_hidden_layers": shape.layers,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    model = {
        "type": "decoder",
        "vocab_size": vocabulary,
        "context_length": context,
        "bos_token_id": tokens.begin,
        "eos_token_id": list(tokens.end),
        "pad_token_id": _NO_TOKEN,
        "decoder": decoder,
    }
    search = {"do_sample": False, **_searched(folder), "max_length": context, "past_present_share_buffer": True}
    return json.dumps({"model": model, "search": search}, indent=2) + "\n"


def _searched(folder: Path) -> dict[str, object]:
    """How the source's author wants tokens chosen, where a file says that."""
    settings = _read(folder / _SOURCES[0])
    return {key: settings[key] for key, kinds in _SEARCH.items() if type(settings.get(key)) in kinds}


def _settings(folder: Path) -> dict[str, Any]:
    """Both files as one, the one for generation first."""
    told: dict[str, Any] = {}
    for name in reversed(_SOURCES):
        told |= {key: value for key, value in _read(folder / name).items() if value is not None}
    return told


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not JSON") from error
    if not isinstance(found, dict):
        raise SourceError(f"{path} is not a table of settings")
    return found
