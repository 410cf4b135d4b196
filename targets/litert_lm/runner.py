"""Run the model of a package by its signatures in LiteRT, as LiteRT-LM does, and give what the source gives."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.errors import MissingFramework, ToolError
from convertkit.quiet import native_stderr_silent
from convertkit.stage import Feed, Outputs
from convertkit.targets.litert_lm.in_place import LOGITS, PLACES, TOKENS, cache_name
from convertkit.targets.litert_lm.package import MODEL, section_of
from convertkit.targets.litert_lm.signatures import DECODE, PREFILL

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter

Caches = dict[str, Array]
_UNSEEN = 1000.0


class LiteRtLmRunner:
    """Prompts go through the signatures for prompts, whose caches are given back.

    Logits are those of the signature that decodes: all but the last token of a row are decoded a second time, one
    after the other, since the signatures for prompts give none.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._interpreter: Interpreter | None = None
        self._rows: tuple[int, ...] = ()

    @property
    def runtime(self) -> str:
        """What executes the artifact, with its version."""
        from convertkit.targets.tflite.runner import TfliteRunner

        return f"{TfliteRunner(self._artifact).runtime}, by signatures"

    def __enter__(self) -> Self:
        try:
            from ai_edge_litert import interpreter
        except ModuleNotFoundError as error:
            raise MissingFramework("ai-edge-litert", "litert-lm") from error
        model = section_of(self._artifact.path, MODEL)
        try:
            with native_stderr_silent():
                self._interpreter = interpreter.Interpreter(model_content=model, num_threads=1)
                signatures = self._interpreter.get_signature_list()
        except (RuntimeError, ValueError) as error:
            raise ToolError(f"LiteRT does not load the model of {self._artifact.path.name}: {error}") from error
        self._rows = tuple(sorted(int(key.removeprefix(PREFILL)) for key in signatures if key.startswith(PREFILL)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interpreter = None

    def run(self, feed: Feed) -> Outputs:
        """All outputs, the sequences of a batch one after the other."""
        rows = [self._row({name: value[at : at + 1] for name, value in feed.items()}) for at in range(_batch(feed))]
        return {spec.name: np.concatenate([row[spec.name] for row in rows]) for spec in self._artifact.outputs}

    def _row(self, feed: Mapping[str, Array]) -> Outputs:
        tokens = feed["input_ids"][0]
        layers = (len(feed) - 1) // 2
        names = {
            f"{layer}.{word}": cache_name(kind, layer)
            for layer in range(layers)
            for kind, word in enumerate(("key", "value"))
        }
        old = feed["past_key_values.0.key"].shape[2]
        if old + len(tokens) > (room := self._shape(cache_name(0, 0))[2]):
            raise ToolError(f"{old + len(tokens)} tokens do not fit into the cache of {room}: --litert-lm-context")
        begun = {name: self._buffer(name, feed[f"past_key_values.{key}"]) for key, name in names.items()}
        logits, _ = self._decoded(tokens[:-1], old, begun)
        last, caches = self._decoded(tokens[-1:], old + len(tokens) - 1, self._read(tokens[:-1], old, begun))
        grown = {f"present.{key}": caches[name][:, :, : old + len(tokens)] for key, name in names.items()}
        return {LOGITS: np.concatenate([*logits, *last], 1), **grown}

    def _read(self, tokens: Array, place: int, caches: Caches) -> Caches:
        """The caches behind a prompt, taken in pieces as the runtime does: the longest first, the last one padded."""
        while len(tokens):
            fits = [rows for rows in self._rows if rows >= len(tokens)]
            rows = fits[0] if fits else self._rows[-1]
            count = min(rows, len(tokens))
            given = {TOKENS: np.zeros((1, rows), np.int32), PLACES: np.zeros(rows, np.int32)}
            given[TOKENS][0, :count], given[PLACES][:count] = tokens[:count], place + np.arange(count)
            caches = self._called(f"{PREFILL}{rows}", {**given, **caches})
            tokens, place = tokens[count:], place + count
        return caches

    def _decoded(self, tokens: Array, place: int, caches: Caches) -> tuple[list[Array], Caches]:
        """The logits behind each token, (1, 1, vocabulary), and the caches."""
        logits = []
        for at, token in enumerate(tokens):
            given = {TOKENS: np.array([[token]], np.int32), PLACES: np.array([place + at], np.int32)}
            found = self._called(DECODE, {**given, **caches})
            logits.append(found.pop(LOGITS))
            caches = found
        return logits, caches

    def _buffer(self, name: str, old: Array) -> Array:
        """A cache as long as the file has it; what no token has written yet is 1000, which nothing may see."""
        buffer = np.full(self._shape(name), _UNSEEN, np.float32)
        buffer[:, :, : old.shape[2]] = old
        return buffer

    def _shape(self, name: str) -> tuple[int, ...]:
        details = self._opened().get_signature_runner(DECODE).get_input_details()
        return tuple(int(size) for size in details[name]["shape"])

    def _called(self, key: str, given: Mapping[str, Array]) -> Caches:
        try:
            found: dict[str, Any] = self._opened().get_signature_runner(key)(**given)
        except (RuntimeError, ValueError) as error:
            raise ToolError(f"LiteRT fails on {key} of {self._artifact.path.name}: {error}") from error
        return {name: np.array(value) for name, value in found.items()}

    def _opened(self) -> Interpreter:
        assert self._interpreter is not None, "the runner is used as a context manager"
        return self._interpreter


def _batch(feed: Feed) -> int:
    return len(feed["input_ids"])
