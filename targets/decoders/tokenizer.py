"""The tokenizer's files, carried along as they are."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from convertkit.artifact import sha256_of

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
"""Names under which Hugging Face's tokenizers lie beside a model."""


def tokenizer_files(folder: Path) -> Mapping[str, str]:
    """Those that there are, each with its sha256."""
    return {name: sha256_of(folder / name) for name in _FILES if (folder / name).is_file()}


def carry(folder: Path, into: Path) -> tuple[str, ...]:
    """Copy them; returns their names."""
    names = tuple(tokenizer_files(folder))
    for name in names:
        shutil.copyfile(folder / name, into / name)
    return names
