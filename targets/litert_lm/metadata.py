"""What LiteRT-LM has to know beside the model: tokens, how many there may be, how they are chosen, how a chat looks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litert_lm_builder.runtime.proto import llm_metadata_pb2 as llm
from litert_lm_builder.runtime.proto import sampler_params_pb2 as sampling

from convertkit.errors import SourceError
from convertkit.targets.decoders.settings import GENERATION, Tokens, read

_TEMPLATE = "chat_template.jinja"
_TOKENIZER, _TOKENIZER_SETTINGS = "tokenizer.json", "tokenizer_config.json"


def metadata(tokens: Tokens, context: int, folder: Path) -> bytes:
    """The section.  ``tokens.begin`` is what the runtime puts in front of every text, None for nothing."""
    told = llm.LlmMetadata()
    if tokens.begin is not None:
        told.start_token.token_ids.ids.append(tokens.begin)
    for end in tokens.end:
        told.stop_tokens.add().token_ids.ids.append(end)
    told.max_num_tokens = context
    told.kv_cache_init_value = 0
    told.llm_model_type.generic_model.SetInParent()
    _choose(told.sampler_params, read(folder / GENERATION))
    if template := chat_template(folder):
        told.jinja_prompt_template = template
    data: bytes = told.SerializeToString(deterministic=True)
    return data


def _choose(params: Any, settings: Mapping[str, Any]) -> None:
    """The best token, or by chance as the source's author wants it."""
    params.type, params.k, params.p, params.temperature = sampling.SamplerParameters.TOP_P, 1, 1.0, 1.0
    if settings.get("do_sample") is not True:
        return
    params.k = _whole(settings.get("top_k"), 50)
    params.p, params.temperature = _real(settings.get("top_p")), _real(settings.get("temperature"))


def _whole(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise


def _real(value: object) -> float:
    """1 where it is not a number above 0."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else 1.0


def chat_template(folder: Path) -> str:
    """Jinja, empty where the source has none."""
    file = folder / _TEMPLATE
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(f"{file} is not text in UTF-8") from error
    template = read(folder / _TOKENIZER_SETTINGS).get("chat_template")
    return template if isinstance(template, str) else ""


def begins_texts(folder: Path, begin: int | None) -> int | None:
    """``begin`` where the source's tokenizer puts it in front of a text, None where it does not.

    ``add_bos_token`` says so, else the post-processor of ``tokenizer.json``; a SentencePiece model alone does.
    """
    if begin is None:
        return None
    said = read(folder / _TOKENIZER_SETTINGS).get("add_bos_token")
    if isinstance(said, bool):
        return begin if said else None
    file = folder / _TOKENIZER
    if not file.is_file():
        return begin
    return begin if begin in _put_in_front(read(file).get("post_processor")) else None


def _put_in_front(processor: object) -> frozenset[int]:
    """Ids that a post-processor puts before the text itself."""
    if not isinstance(processor, dict):
        return frozenset()
    if processor.get("type") == "Sequence":
        found = (_put_in_front(each) for each in processor.get("processors") or ())
        return frozenset[int]().union(*found)
    if processor.get("type") != "TemplateProcessing":
        return frozenset()
    names = []
    for piece in processor.get("single") or ():
        if "SpecialToken" not in piece:
            break
        names.append(piece["SpecialToken"].get("id"))
    table = processor.get("special_tokens") or {}
    return frozenset(number for name in names for number in table.get(name, {}).get("ids", ()))


def letters_tokenizer(vocabulary: int, first: int) -> bytes:
    """A ``tokenizer.json`` in which each token is one character, from ``first`` on: texts are lists of tokens."""
    words = {chr(first + token): token for token in range(vocabulary)}
    split = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    told: dict[str, object] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": split, "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": chr(first)},
    }  # fmt: skip
    return json.dumps(told).encode()
