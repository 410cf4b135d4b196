"""Folders of decoders as Hugging Face publishes them: ``config.json`` and safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.progress import Progress
from convertkit.recipe import ExportOptions

if TYPE_CHECKING:
    from convertkit.stage import Source

_CONFIG = "config.json"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_MAX_BYTES = 4 << 20


class HuggingFaceConverter:
    """Reads decoders of the families in ``families.py``; with ``--model`` a folder is PyTorch's, as it is elsewhere."""

    name = "huggingface"
    summary = "Hugging Face decoders (config.json, safetensors)"
    extra = "core"
    reads = frozenset({"--model", "--trust pickle"})

    def sniff(self, source: str) -> str | None:
        folder = Path(source)
        try:
            config = folder / _CONFIG
            there = folder.is_dir() and any((folder / name).is_file() for name in _WEIGHTS)
            if not there or not config.is_file() or config.stat().st_size > _MAX_BYTES:
                return None
            settings = json.loads(config.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        from convertkit.converters.huggingface.families import FAMILIES  # imports NumPy

        known = isinstance(settings, dict) and settings.get("model_type") in FAMILIES
        return "huggingface" if known else None

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        if options.model is not None:
            from convertkit.plugins import converter

            return converter("pytorch").open(source, options, workdir, progress)
        from convertkit.converters.huggingface.source import DecoderSource

        return DecoderSource(Path(source), options)


converter = HuggingFaceConverter()
