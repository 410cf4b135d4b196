"""An opened folder of a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.converters.huggingface.decoder import Decoder
from convertkit.converters.huggingface.families import decoder_of
from convertkit.converters.huggingface.graph import BATCH, PAST, SEQUENCE, graph_of
from convertkit.converters.huggingface.parameters import Parameters
from convertkit.converters.huggingface.reference import ReferenceRunner
from convertkit.converters.huggingface.settings import Settings
from convertkit.onnx.canonical import canonicalize, freeze_dims
from convertkit.onnx.inputs import fixed_sizes, with_input_options
from convertkit.onnx.save import save_model
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Runner, Stage, Tolerance


class DecoderSource:
    """``config.json`` and safetensors: read here, executed by NumPy in float64."""

    concurrent = True

    def __init__(self, folder: Path, options: ExportOptions) -> None:
        settings = Settings.of(folder)
        self._decoder = decoder_of(settings)
        self._weights = Parameters(folder, self._decoder)
        inputs, outputs = interface(self._decoder)
        specs = with_input_options(inputs, options.inputs)
        self._sizes = fixed_sizes(inputs, specs)
        self.artifact = Artifact(folder, "huggingface", specs, outputs, sha256_of(folder))
        stored = settings.values.get("dtype") or settings.values.get("torch_dtype") or "float32"
        computed = () if stored == "float32" else (f"weights stored as {stored} are computed with in float32",)
        self.notes = (*computed, "sequences of a batch have the same number of tokens, and no padding")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def runner(self) -> Runner:
        return ReferenceRunner(self._decoder, self._weights)

    def stage(self) -> Stage:
        return DecoderStage(self._decoder, self._weights, self._sizes)


class DecoderStage:
    """The folder → canonical ONNX with a cache."""

    name = "huggingface-to-onnx"
    version = "1"
    accepts = frozenset({"huggingface"})
    produces = "onnx"
    tolerance: Tolerance = FLOAT32

    def __init__(self, decoder: Decoder, parameters: Parameters, sizes: Mapping[str, int]) -> None:
        self._decoder = decoder
        self._weights = parameters
        self._sizes = dict(sizes)

    @property
    def options(self) -> Mapping[str, object]:
        return {"family": self._decoder.family, **({"fixed_dims": self._sizes} if self._sizes else {})}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model = graph_of(self._decoder, self._weights)
        if self._sizes:
            freeze_dims(model, self._sizes)
        return save_model(canonicalize(model), workdir / "model.onnx", f"{self.name} {self.version}")


def interface(d: Decoder) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs, as the graph has them."""
    kinds = [(place, kind) for place in range(len(d.layers)) for kind in ("key", "value")]
    inputs = [TensorSpec("input_ids", (BATCH, SEQUENCE), "int64", value_range=(0, d.vocabulary))]
    outputs = [TensorSpec("logits", (BATCH, SEQUENCE, d.vocabulary), "float32")]
    for place, kind in kinds:
        old, new = (BATCH, d.groups, PAST, d.head_size), (BATCH, d.groups, f"{PAST} + {SEQUENCE}", d.head_size)
        inputs.append(TensorSpec(f"past_key_values.{place}.{kind}", old, "float32"))
        outputs.append(TensorSpec(f"present.{place}.{kind}", new, "float32"))
    return tuple(inputs), tuple(outputs)
