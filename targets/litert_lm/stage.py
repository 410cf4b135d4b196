"""Canonical ONNX of a decoder → the package that LiteRT-LM loads."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import ToolError, Unsupported, WorkerError
from convertkit.onnx.load import load_own
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.decoders.cache import vocabulary_of
from convertkit.targets.decoders.generation import Asked, Generated, compared
from convertkit.targets.decoders.settings import Tokens, context_of, tokens_of
from convertkit.targets.decoders.tokenizer import tokenizer_files
from convertkit.targets.litert_lm.in_place import Shape, in_place, rows_of
from convertkit.targets.litert_lm.metadata import begins_texts, chat_template, letters_tokenizer, metadata
from convertkit.targets.litert_lm.package import (
    METADATA,
    SENTENCEPIECE,
    Section,
    json_tokenizer,
    model_section,
    write_package,
)
from convertkit.targets.litert_lm.readme import readme
from convertkit.targets.litert_lm.runtime import FIRST_LETTER, MOST_LETTERS, SERVICE, LettersGenerator, litert_lm_name
from convertkit.targets.litert_lm.signatures import Joined, joined
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.stage import DYNAMIC_RANGE
from convertkit.workers.process import Worker

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model")
"""The first that is there: transformers, too, takes the first where it can."""
_WITHIN = {"float": 1e-4, "dynamic": 0.2}
"""Of the largest logit: float32 in another order after hundreds of products, activations rounded to 8 bits."""
_PROBE = "One, two, three."


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Of the source and the options: what the package says, and how long prompts and cache are."""

    tokens: Tokens
    context: int
    rows: tuple[int, ...]
    tokenizer: str


class WriteLiteRtLm:
    """Writes the package, and generates 200 tokens from it before it counts as made."""

    name = "litert-lm"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "litert-lm"

    def __init__(self, options: ExportOptions, context: int, prefill: tuple[int, ...]) -> None:
        self._options, self._context, self._prefill = options, context, prefill
        self._folder = Path(options.source)
        self.tolerance: Tolerance = FLOAT32
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        """What the package is made by, the source's own files among it."""
        return {
            "precision": self._options.precision, "context": self._context, "prefill": list(self._prefill),
            "runtime": litert_lm_name(), "files": dict(tokenizer_files(self._folder)), "seed": self._options.seed,
        }  # fmt: skip

    def foretell(self, source: Artifact) -> None:
        """What :meth:`run` refuses ``source`` for, but for what the compiler and LiteRT-LM say."""
        model = load_own(source.path)
        self._chosen(vocabulary_of(model.graph))
        in_place(model, 1, 2, logits=True)

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names what is not a decoder's; ``ParityError`` the token that LiteRT-LM chooses otherwise."""
        vocabulary = vocabulary_of(load_own(source.path).graph)
        chosen = self._chosen(vocabulary)
        made = joined(source.path, chosen.rows, chosen.context, Options("nchw", precision=self._options.precision))
        arithmetic = made.program.arithmetic
        self.tolerance = FLOAT32 if arithmetic == "float" else DYNAMIC_RANGE
        told = Section(METADATA, metadata(chosen.tokens, chosen.context, self._folder))
        package = workdir / "model.litertlm"
        with tempfile.TemporaryDirectory(prefix="convertkit-litert-lm-") as place:
            model = _model(made, Path(place))
            write_package(package, (told, self._tokenizer(chosen.tokenizer), model))
            probe = Path(place) / "letters.litertlm"
            write_package(probe, (told, json_tokenizer(letters_tokenizer(vocabulary, FIRST_LETTER)), model))
            before = () if chosen.tokens.begin is None else (chosen.tokens.begin,)
            with Worker(SERVICE, timeout_s=self._options.timeout_s) as worker:
                engine = LettersGenerator(worker, probe, before)
                asked = Asked(chosen.context, chosen.tokens.end, self._options.seed)
                within = _WITHIN["float" if arithmetic == "float" else "dynamic"]
                generated = compared(engine, source, asked, within, np.inf)
            notes = self._loaded(package, chosen.tokenizer)
        self._tell(workdir, made.shape, chosen, generated, notes)
        version = f"{self.name} {self.version}"
        return Artifact(package, self.produces, source.inputs, source.outputs, sha256_of(package), version)

    def _chosen(self, vocabulary: int) -> _Chosen:
        tokenizer = next((name for name in _TOKENIZERS if (self._folder / name).is_file()), None)
        if tokenizer is None:
            raise Unsupported(
                f"no {' or '.join(_TOKENIZERS)} beside config.json: LiteRT-LM takes text, not tokens",
                ways_out=("put the tokenizer beside it", "--target genai"),
            )
        if vocabulary > MOST_LETTERS:
            raise Unsupported(f"{vocabulary} tokens: what LiteRT-LM generates is compared for up to {MOST_LETTERS}")
        tokens = tokens_of(self._folder, vocabulary, "LiteRT-LM")
        tokens = replace(tokens, begin=begins_texts(self._folder, tokens.begin))
        context = min(context_of(self._folder), self._context)
        return _Chosen(tokens, context, rows_of(self._prefill, context), tokenizer)

    def _tokenizer(self, name: str) -> Section:
        data = (self._folder / name).read_bytes()
        return json_tokenizer(data) if name.endswith(".json") else Section(SENTENCEPIECE, data)

    def _loaded(self, package: Path, tokenizer: str) -> list[str]:
        """Whether the template is taken, in words; ``Unsupported`` where the source's tokenizer does not load."""
        with Worker(SERVICE, timeout_s=self._options.timeout_s) as worker:
            try:
                worker.call("load", {"package": str(package), "threads": 1})
                worker.call("tokenize", {"text": _PROBE})
            except (WorkerError, ToolError) as error:  # it ends the process for files that are not tokenizers
                reason = (
                    f"{litert_lm_name()} does not load it, though it loads the same model with another one: {error}"
                )
                raise Unsupported(reason, subject=tokenizer, ways_out=("--target genai",)) from error
            if not chat_template(self._folder):
                return []
            try:
                rendered = worker.call("chat", {"text": _PROBE}).value
            except WorkerError:
                rendered = ""
        return [] if _PROBE in rendered else ["LiteRT-LM does not render the source's chat template; give it another"]

    def _tell(self, workdir: Path, shape: Shape, chosen: _Chosen, generated: Generated, notes: Sequence[str]) -> None:
        text = readme(shape, chosen.context, chosen.rows, chosen.tokenizer, generated.chosen, notes)
        (workdir / "README.md").write_text(text, encoding="utf-8")
        said = [f"{litert_lm_name()} generated {generated.chosen}", *notes]
        self.diagnosis = {"generation": generated.told(), "notes": said}


def _model(made: Joined, place: Path) -> Section:
    file = place / "model.tflite"
    made.write(file)
    return model_section(file.read_bytes())


_: type[Stage] = WriteLiteRtLm
