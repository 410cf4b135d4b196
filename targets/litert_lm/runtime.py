"""LiteRT-LM itself, in a process of its own, generating from a package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.targets.decoders.generation import Step
from convertkit.workers.process import Worker

SERVICE = "convertkit.targets.litert_lm.service:LiteRtLmService"
FIRST_LETTER = 0x20000
"""Where letters stand for tokens: behind it Unicode has 983,040 places without surrogates."""
MOST_LETTERS = 0x110000 - FIRST_LETTER


def litert_lm_name() -> str:
    """With its version, as the report has it."""
    try:
        return f"LiteRT-LM {version('litert-lm-api')}"
    except PackageNotFoundError:
        return "LiteRT-LM"


class LettersGenerator:
    """A package whose tokenizer has a letter for each token; what the runtime puts in front is ``before``."""

    def __init__(self, worker: Worker, package: Path, before: tuple[int, ...]) -> None:
        self.name, self.before, self._worker = litert_lm_name(), before, worker
        worker.call("load", {"package": str(package), "threads": 1})

    def generate(self, prompt: Array, length: int) -> Iterator[Step]:
        """The tokens; an end is told where the text is shorter than was asked for."""
        most = length - len(prompt) - len(self.before)
        text = "".join(chr(FIRST_LETTER + int(token)) for token in prompt)
        written = self._worker.call("generate", {"prompt": text, "most": most}).value
        tokens = np.array([ord(letter) - FIRST_LETTER for letter in written], np.int64)
        if (tokens < 0).any():
            raise ToolError(f"{self.name} gives letters that are not tokens")
        yield from (Step(int(token)) for token in tokens)
        if len(tokens) < most:
            yield Step(None)
