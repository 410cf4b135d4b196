"""GenAI as what generates: the delivered folder, loaded by its own library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.targets.decoders.generation import Step
from convertkit.targets.genai.runtime import genai, genai_name


class GenaiGenerator:
    """The folder's model; ``ToolError`` where GenAI does not load it."""

    before: tuple[int, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.name = genai_name()
        self._module = genai()
        try:
            self._model = self._module.Model(str(folder))
        except RuntimeError as error:
            raise ToolError(f"{self.name} does not load the folder: {_first_line(error)}") from error

    def generate(self, prompt: Array, length: int) -> Iterator[Step]:
        """Tokens with the logits that each was chosen by."""
        asked = self._module.GeneratorParams(self._model)
        asked.set_search_options(max_length=length, do_sample=False, repetition_penalty=1.0)
        try:
            generator = self._module.Generator(self._model, asked)
            generator.append_tokens(prompt.astype(np.int32))
            while not generator.is_done():
                logits = np.array(generator.get_logits(), np.float64).reshape(-1)
                generator.generate_next_token()
                yield Step(int(generator.get_next_tokens()[0]), logits)
        except RuntimeError as error:
            raise ToolError(f"{self.name} does not run the folder: {_first_line(error)}") from error


def tokenizer_refusal(folder: Path) -> str:
    """Why GenAI does not load the tokenizer in the folder; empty where it does."""
    module = genai()
    try:
        module.Tokenizer(module.Model(str(folder)))
    except RuntimeError as error:
        return _first_line(error)
    return ""


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
