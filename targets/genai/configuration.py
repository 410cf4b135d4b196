"""``genai_config.json``: what GenAI reads before the model.

Source of the keys: ONNX Runtime GenAI's documentation, "Config reference".  The type is ``decoder``, which has no
behaviour of one family: what the model computes is in its graph alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from convertkit.targets.decoders.settings import GENERATION, Tokens, read
from convertkit.targets.genai.attention import Shape

CONFIG = "genai_config.json"
_NO_TOKEN = -1
"""As what fills rows, of which there is one: behind a prompt that ends in such a token GenAI takes earlier logits."""
_SEARCH: Mapping[str, tuple[type, ...]] = {
    "do_sample": (bool,),
    "temperature": (int, float),
    "top_k": (int,),
    "top_p": (int, float),
    "repetition_penalty": (int, float),
}
"""Settings of ``generation_config.json`` that GenAI's search has, too."""


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
        "bos_token_id": tokens.end[0] if tokens.begin is None else tokens.begin,
        "eos_token_id": list(tokens.end),
        "pad_token_id": _NO_TOKEN,
        "decoder": decoder,
    }
    search = {"do_sample": False, **_searched(folder), "max_length": context, "past_present_share_buffer": True}
    return json.dumps({"model": model, "search": search}, indent=2) + "\n"


def _searched(folder: Path) -> dict[str, object]:
    """How the source's author wants tokens chosen, where a file says that."""
    settings = read(folder / GENERATION)
    return {key: settings[key] for key, kinds in _SEARCH.items() if type(settings.get(key)) in kinds}
