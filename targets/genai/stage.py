"""Canonical ONNX of a decoder → the folder that GenAI loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Artifact
from convertkit.onnx.canonical import freeze_dims_left
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.decoders.cache import vocabulary_of
from convertkit.targets.decoders.generation import Asked, Generated, compared
from convertkit.targets.decoders.settings import context_of, tokens_of
from convertkit.targets.decoders.tokenizer import carry, tokenizer_files
from convertkit.targets.genai.attention import Shape, fuse
from convertkit.targets.genai.configuration import CONFIG, configuration
from convertkit.targets.genai.generation import GenaiGenerator, tokenizer_refusal
from convertkit.targets.genai.products import pack_products
from convertkit.targets.genai.readme import readme
from convertkit.targets.genai.runtime import genai_name
from convertkit.targets.onnxruntime.foldable import make_foldable
from convertkit.targets.onnxruntime.stage import keep_added_zeros

_ACCURACY: Mapping[str, int] = {"float32": 1, "int8": 4}
_WITHIN = 1e-4
"""Of the largest logit: what float32 in another order may change after hundreds of products."""
_LEAST_SNR_DB = 15.0
_ROUNDED_WITHIN = 0.2
_INT8 = Tolerance("MatMulNBits rounds activations to 8 bits on the fly", snr_db=_LEAST_SNR_DB, warn_snr_db=25.0)


class WriteGenai:
    """Writes the folder, and generates 200 tokens from it before it counts as made."""

    name = "genai"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "genai"

    def __init__(self, folder: Path, activations: str, seed: int) -> None:
        self._folder, self._activations, self._seed = folder, activations, seed
        self.tolerance: Tolerance = FLOAT32
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        files = dict(tokenizer_files(self._folder))
        return {"activations": self._activations, "runtime": genai_name(), "files": files, "seed": self._seed}

    def foretell(self, source: Artifact) -> None:
        """What :meth:`run` refuses ``source`` for, but for what GenAI itself says."""
        model = load_own(source.path)
        freeze_dims_left(model, {"batch": 1})
        vocabulary = vocabulary_of(model.graph)
        fuse(model)
        tokens_of(self._folder, vocabulary, genai_name())
        context_of(self._folder)

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names what is not a decoder's; ``ParityError`` the token that GenAI chooses otherwise."""
        model = load_own(source.path)
        vocabulary = vocabulary_of(model.graph)
        tokens, context = tokens_of(self._folder, vocabulary, genai_name()), context_of(self._folder)
        freeze_dims_left(model, {"batch": 1})
        shape = fuse(model)
        packed = pack_products(model, _ACCURACY[self._activations])
        make_foldable(model)
        keep_added_zeros(model)
        rounds = bool(packed) and self._activations == "int8"
        self.tolerance = _INT8 if rounds else FLOAT32
        made = save_model(model, workdir / "model.onnx", f"{self.name} {self.version}")
        settings = configuration(shape, vocabulary, context, tokens, self._folder)
        (workdir / CONFIG).write_text(settings, encoding="utf-8")
        carried = carry(self._folder, workdir)
        within = _ROUNDED_WITHIN if rounds else _WITHIN
        asked = Asked(context, tokens.end, self._seed)
        generated = compared(GenaiGenerator(workdir), source, asked, within, _LEAST_SNR_DB if rounds else np.inf)
        self._tell(workdir, shape, context, carried, generated)
        return replace(made, format=self.produces, inputs=source.inputs, outputs=source.outputs)

    def _tell(self, workdir: Path, shape: Shape, context: int, carried: tuple[str, ...], generated: Generated) -> None:
        refusal = tokenizer_refusal(workdir) if "tokenizer.json" in carried else "the source has no tokenizer.json"
        text = readme(shape, context, carried, generated, refusal)
        (workdir / "README.md").write_text(text, encoding="utf-8")
        notes = [f"{genai_name()} generated {generated.chosen}"]
        if refusal:
            notes.append(f"GenAI loads no tokenizer from the folder: {refusal}")
        self.diagnosis = {"generation": generated.told(), "notes": notes}


_: type[Stage] = WriteGenai
