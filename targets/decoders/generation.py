"""Token for token: what an engine generates from what is delivered, against the graph that it was made of.

Such engines hold their cache themselves, in buffers as long as the text may become, so their decoding cannot be given a
cache to start from.  They are therefore made to generate, and each token that they choose has to be the one that the
graph chooses behind the same tokens, with a cache that is handed from call to call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from convertkit.artifact import Array, Artifact, Dim
from convertkit.errors import ParityError
from convertkit.onnx.runner import OnnxRunner

TOKENS = 200
_PROMPT = 8
_OF_ONE_TEXT = 100
_MOST_TEXTS = 400
"""Texts that may have to be begun where each ends at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is generated: texts no longer than ``context``, from prompts drawn by ``seed``; ``ends`` end texts."""

    context: int
    ends: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Step:
    """A token, and the logits (vocabulary) that it was chosen by, where the engine gives them.

    ``token`` is None where the engine ended the text and does not say by which of the tokens that end one.
    """

    token: int | None
    logits: Array | None = None


class Generator(Protocol):
    """An engine with the model; ``before`` are tokens that it puts in front of every prompt by itself."""

    name: str
    before: tuple[int, ...]

    def generate(self, prompt: Array, length: int) -> Iterator[Step]:
        """Tokens behind a prompt of int64 (places), until the text ends or has ``length`` tokens, all included."""
        ...


@dataclass(frozen=True, slots=True)
class Generated:
    """``tokens`` were chosen in ``texts`` texts, ``same`` of them as the graph chooses, the others within rounding.

    ``relative`` is the largest difference of logits, relative to the largest logit of that place; None where the engine
    gives none.
    """

    tokens: int
    texts: int
    same: int
    relative: float | None

    @property
    def chosen(self) -> str:
        """In words."""
        others = "" if self.same == self.tokens else ", the others within rounding"
        texts = "a text" if self.texts == 1 else f"{self.texts} texts"
        return f"{self.tokens} tokens of {texts}, {self.same} of them exactly as the graph chooses{others}"

    def told(self) -> dict[str, object]:
        """For the report."""
        told: dict[str, object] = {"tokens": self.tokens, "texts": self.texts, "same": self.same}
        if self.relative is not None:
            told["largest_relative_difference"] = float(f"{self.relative:.2g}")
        return told


def compared(engine: Generator, graph: Artifact, asked: Asked, within: float, least_snr_db: float) -> Generated:
    """Generate 200 tokens or more; ``ParityError`` for a token or a logit that differs by more.

    The first prompt ends in a token that ends texts, which a prompt may.

    A token counts as the graph's where the graph's own best is less than ``within`` of the largest logit better;
    logits of rounded activations have to keep ``least_snr_db``.
    """
    rng = np.random.default_rng(asked.seed)
    length = min(asked.context, _OF_ONE_TEXT + _PROMPT)
    found = _Comparison(engine.name, asked.ends, within)
    with OnnxRunner(graph) as runner:
        while found.count < TOKENS and found.texts < _MOST_TEXTS:
            found.texts += 1
            prompt = _prompt(rng, graph, min(_PROMPT, length // 2))
            if found.texts == 1:
                prompt[-1] = asked.ends[0]
            reference = _Reference(runner, graph)
            expected = reference.after(np.concatenate([np.array(engine.before, np.int64), prompt]))
            for step in engine.generate(prompt, length):
                found.take(step, expected)
                if found.count >= TOKENS or step.token is None:
                    break
                expected = reference.after(np.array([step.token], np.int64))
    return found.result(least_snr_db)


class _Comparison:
    """Counts tokens, and holds what is the largest difference so far."""

    def __init__(self, name: str, ends: tuple[int, ...], within: float) -> None:
        self._name, self._ends, self._within = name, list(ends), within
        self.count, self.texts = 0, 0
        self._same, self._worst, self._signal, self._noise = 0, 0.0, 0.0, 0.0
        self._has_logits = False

    def take(self, step: Step, expected: Array) -> None:
        """One more token; ``expected`` are the graph's logits (vocabulary) at its place, float64."""
        largest = float(np.abs(expected).max()) or 1.0
        _check_finite(self._name, expected if step.logits is None else step.logits, expected, self.count)
        if step.logits is not None:
            self._has_logits = True
            self._worst = max(self._worst, float(np.abs(step.logits - expected).max()) / largest)
            self._signal += float((expected**2).sum())
            self._noise += float(((step.logits - expected) ** 2).sum())
        best = int(expected.argmax())
        token = self._ends[int(expected[self._ends].argmax())] if step.token is None else step.token
        _check(self._name, expected, token, best, self._within * largest, self.count)
        self._same += token == best
        self.count += 1

    def result(self, least_snr_db: float) -> Generated:
        """``ParityError`` for logits that differ by more."""
        snr_db = float(10 * np.log10(self._signal / self._noise)) if self._noise else np.inf
        if self._worst > self._within and snr_db < least_snr_db:
            told = f"{self._worst:.2g} relative, {snr_db:.1f} dB"
            raise ParityError(f"{self._name} computes other logits than the graph: {told}")
        return Generated(self.count, self.texts, self._same, self._worst if self._has_logits else None)


def _check_finite(name: str, logits: Array, expected: Array, place: int) -> None:
    """NaN is neither larger nor smaller than what is allowed, so it is looked for by itself."""
    if not (np.isfinite(logits) & np.isfinite(expected)).all():
        whose = "the graph" if np.isfinite(logits).all() else name
        raise ParityError(f"token {place + 1}: logits of {whose} are NaN or infinite")


def _check(name: str, expected: Array, token: int, best: int, within: float, place: int) -> None:
    if expected[best] - expected[token] > within:
        raise ParityError(
            f"token {place + 1} that {name} generates is {token}, the graph says {best} "
            f"(logits {expected[token]:.5g} and {expected[best]:.5g})"
        )


def _prompt(rng: np.random.Generator, graph: Artifact, length: int) -> Array:
    vocabulary = graph.outputs[0].shape[2]
    assert isinstance(vocabulary, int), "the graph has its vocabulary"
    return rng.integers(0, vocabulary, max(length, 1))


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
