"""Token for token: what GenAI generates from the delivered folder, against the graph that the folder was made of.

GenAI holds its cache itself, in buffers as long as the text may become, so its decoding cannot be given a cache to
start from.  It is therefore made to generate, and each token that it chooses has to be the one that the graph chooses
behind the same tokens, with a cache that is handed from call to call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.artifact import Array, Artifact, Dim
from convertkit.errors import ParityError, ToolError
from convertkit.onnx.runner import OnnxRunner
from convertkit.targets.genai.runtime import genai, genai_name

TOKENS = 200
_PROMPT = 8
_OF_ONE_TEXT = 100
_MOST_TEXTS = 400
"""Texts that may have to be begun where each ends at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is generated: texts no longer than ``context``, from prompts drawn by ``seed``; ``end`` ends texts."""

    context: int
    end: int
    seed: int


@dataclass(frozen=True, slots=True)
class Generated:
    """``tokens`` were chosen in ``texts`` texts, ``same`` of them as the graph chooses, the others within rounding.

    ``relative`` is the largest difference of logits, relative to the largest logit of that place; ``snr_db`` the signal
    over noise of all logits together.
    """

    tokens: int
    texts: int
    same: int
    relative: float
    snr_db: float

    @property
    def chosen(self) -> str:
        """In words."""
        others = "" if self.same == self.tokens else ", the others within rounding"
        texts = "a text" if self.texts == 1 else f"{self.texts} texts"
        return f"{self.tokens} tokens of {texts}, {self.same} of them exactly as the graph chooses{others}"

    def told(self) -> dict[str, object]:
        """For the report."""
        return {
            "tokens": self.tokens,
            "texts": self.texts,
            "same": self.same,
            "largest_relative_difference": float(f"{self.relative:.2g}"),
        }


def compared(folder: Path, graph: Artifact, asked: Asked, within: float, least_snr_db: float) -> Generated:
    """Generate 200 tokens or more; ``ParityError`` for a token or a logit that differs by more.

    The first prompt ends in a token that ends texts, which a prompt may.

    A token counts as the graph's where the graph's own best is less than ``within`` of the largest logit better;
    logits of rounded activations have to keep ``least_snr_db``.
    """
    module = genai()
    try:
        model = module.Model(str(folder))
    except RuntimeError as error:
        raise ToolError(f"{genai_name()} does not load the folder: {_first_line(error)}") from error
    rng = np.random.default_rng(asked.seed)
    length = min(asked.context, _OF_ONE_TEXT + _PROMPT)
    count, texts, same, worst, signal, noise = 0, 0, 0, 0.0, 0.0, 0.0
    with OnnxRunner(graph) as runner:
        while count < TOKENS and texts < _MOST_TEXTS:
            texts += 1
            prompt = _prompt(rng, graph, min(_PROMPT, length // 2))
            if texts == 1:
                prompt[-1] = asked.end
            reference = _Reference(runner, graph)
            expected = reference.after(prompt)
            for logits, token in _generated(module, model, prompt, length):
                largest = float(np.abs(expected).max()) or 1.0
                _check_finite(logits, expected, count)
                worst = max(worst, float(np.abs(logits - expected).max()) / largest)
                signal, noise = signal + float((expected**2).sum()), noise + float(((logits - expected) ** 2).sum())
                best = int(expected.argmax())
                _check(expected, token, best, within * largest, count)
                same += token == best
                count += 1
                if count >= TOKENS:
                    break
                expected = reference.after(np.array([token], np.int64))
    snr_db = float(10 * np.log10(signal / noise)) if noise else np.inf
    if worst > within and snr_db < least_snr_db:
        raise ParityError(f"{genai_name()} computes other logits than the graph: {worst:.2g} relative, {snr_db:.1f} dB")
    return Generated(count, texts, same, worst, snr_db)


def _check_finite(logits: Array, expected: Array, place: int) -> None:
    """NaN is neither larger nor smaller than what is allowed, so it is looked for by itself."""
    if not (np.isfinite(logits) & np.isfinite(expected)).all():
        whose = "the graph" if np.isfinite(logits).all() else genai_name()
        raise ParityError(f"token {place + 1}: logits of {whose} are NaN or infinite")


def _check(expected: Array, token: int, best: int, within: float, place: int) -> None:
    if expected[best] - expected[token] > within:
        raise ParityError(
            f"token {place + 1} that {genai_name()} generates is {token}, the graph says {best} "
            f"(logits {expected[token]:.5g} and {expected[best]:.5g})"
        )


def _prompt(rng: np.random.Generator, graph: Artifact, length: int) -> Array:
    vocabulary = graph.outputs[0].shape[2]
    assert isinstance(vocabulary, int), "the graph has its vocabulary"
    return rng.integers(0, vocabulary, max(length, 1))


def _generated(module: Any, model: Any, prompt: Array, length: int) -> Iterator[tuple[Array, int]]:
    """The logits (vocabulary) that each token was chosen by, and the token, until the text ends."""
    asked = module.GeneratorParams(model)
    asked.set_search_options(max_length=length, do_sample=False, repetition_penalty=1.0)
    try:
        generator = module.Generator(model, asked)
        generator.append_tokens(prompt.astype(np.int32))
        while not generator.is_done():
            logits = np.array(generator.get_logits(), np.float64).reshape(-1)
            generator.generate_next_token()
            yield logits, int(generator.get_next_tokens()[0])
    except RuntimeError as error:
        raise ToolError(f"{genai_name()} does not run the folder: {_first_line(error)}") from error


class _Reference:
    """The graph with its cache, which every call makes longer."""

    def __init__(self, runner: OnnxRunner, graph: Artifact) -> None:
        self._runner = runner
        caches = (spec for spec in graph.inputs if spec.name != "input_ids")
        self._cache = {spec.name: np.zeros(_empty(spec.shape), np.float32) for spec in caches}

    def after(self, tokens: Array) -> Array:
        """Logits (vocabulary) of the last of these tokens, float64."""
        outputs = self._runner.run({"input_ids": tokens[None].astype(np.int64), **self._cache})
        self._cache = {name: outputs[name.replace("past_key_values", "present")] for name in self._cache}
        return np.asarray(outputs["logits"][0, -1], np.float64)


def _empty(shape: tuple[Dim, ...]) -> tuple[int, ...]:
    """One sequence without places."""
    groups, size = shape[1], shape[3]
    assert isinstance(groups, int), "a cache has its groups"
    assert isinstance(size, int), "and the size of its heads"
    return (1, groups, 0, size)


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
