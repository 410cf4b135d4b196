"""The worker that holds LiteRT-LM: generates from a package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import litert_lm

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.workers.process import Reply

_NO_FILES = ":nocache"
"""Where the runtime would keep packed weights between runs: beside the model."""


class LiteRtLmService:
    """Methods that take JSON-able parameters."""

    def __init__(self) -> None:
        self._engine: Any = None

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Load ``package``, with as many ``threads``; ``ToolError`` where the runtime does not take it."""
        backend = litert_lm.Backend.CPU(thread_count=params["threads"])
        try:
            self._engine = litert_lm.Engine(params["package"], backend, cache_dir=_NO_FILES)
        except (RuntimeError, ValueError) as error:
            raise ToolError(f"LiteRT-LM does not load the package: {error}") from error
        return Reply(self._engine.bos_token_id)

    def generate(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """The text behind ``prompt``, the best token each time, until it ends or all tokens are ``most``."""
        greedy = litert_lm.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0, seed=0)
        asked = {"apply_prompt_template": False, "sampler_config": greedy, "max_output_tokens": params["most"]}
        try:
            with self._engine.create_session(**asked) as session:
                session.run_prefill([params["prompt"]])
                return Reply(session.run_decode().texts[0])
        except RuntimeError as error:
            raise ToolError(f"LiteRT-LM does not run the package: {error}") from error

    def tokenize(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Ids of the tokens of ``text``."""
        try:
            return Reply(list(self._engine.tokenize(params["text"])))
        except RuntimeError as error:
            raise ToolError(f"LiteRT-LM does not tokenize: {error}") from error

    def chat(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """What the package's own template makes of a user's ``text``; empty where the runtime does not render it."""
        try:
            with self._engine.create_conversation() as conversation:
                return Reply(conversation.render_message_to_string({"role": "user", "content": params["text"]}))
        except (RuntimeError, ValueError):
            return Reply("")
