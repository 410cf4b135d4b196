"""The step from canonical ONNX to ``model.tflite``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.onnx.load import load_own
from convertkit.onnx.resampling import float32_tolerance
from convertkit.recipe import ExportOptions, InputSpec
from convertkit.stage import FLOAT32, Tolerance
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.metadata import metadata_of
from convertkit.targets.tflite.passes import Options

_VERSION = "1"
_INTEGER = Tolerance(
    "the same integers through kernels that round on their own; softmax and depth amplify single roundings",
    lsb=3.0,
    lsb_share=0.99,
    snr_db=20.0,
    same_integers=True,
)
_WORDS_DB = 50.0
"""What kernels of int16 keep of each other's results, whose steps are 256 times as fine as those of bytes."""
_FROM_HALVES = Tolerance("the source rounds to float16 as it goes, the kernels compute in float32", relative=1e-3)
DYNAMIC_RANGE = Tolerance("the runtime quantizes activations on the fly", snr_db=3.0, warn_snr_db=20.0, lossy=True)


class CompileTflite:
    """Compiles ONNX (float or QDQ) into a TFLite FlatBuffer, without TensorFlow."""

    name = "tflite"
    version = _VERSION
    accepts = frozenset({"onnx"})
    produces = "tflite"

    def __init__(self, options: ExportOptions) -> None:
        self._options = options
        self._tolerance = _INTEGER if options.quantized else FLOAT32
        self._measured = options.measured_of("tflite")
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def tolerance(self) -> Tolerance:
        """By what the last model computes: float32 is the same arithmetic, integers agree within rounding."""
        return self._tolerance

    @property
    def options(self) -> Mapping[str, object]:
        """The flags that this stage reads."""
        return {
            "precision": self._options.precision,
            "input_layout": self._options.input_layout,
            "io_dtype": self._options.io_dtype,
            "full_integer": self._options.full_integer,
            **({"device": "+".join(self._options.device)} if self._options.device else {}),
            **({"measured": self._measured.told} if self._measured else {}),
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Compile ``source`` and write ``model.tflite``."""
        metadata = metadata_of(self._options, source.inputs, source.outputs)
        model = load_own(source.path)
        float32 = float32_tolerance(model)
        chosen = self._options
        passes = Options(
            chosen.input_layout,
            chosen.full_integer,
            chosen.precision,
            chosen.io_dtype,
            chosen.device,
            self._measured,
        )
        compiled = compile_model(model, passes, dict(_only_values(source.inputs, chosen.inputs)))
        by_kind = {"float": float32, "integer": _INTEGER, "dynamic": DYNAMIC_RANGE}
        if compiled.from_halves:
            by_kind["float"] = _FROM_HALVES
        if compiled.from_integers:
            by_kind["float"] = _INTEGER
        tolerance = by_kind[compiled.program.arithmetic]
        if tolerance.same_integers and compiled.program.rounds_its_own_way:
            least = _WORDS_DB if chosen.precision == "int16x8" else tolerance.snr_db
            tolerance = replace(tolerance, same_integers=False, snr_db=least)
        self._tolerance = tolerance
        self.diagnosis = {"transposes": list(compiled.transposes)}
        path = workdir / "model.tflite"
        compiled.write(path, metadata)
        return Artifact(
            path,
            "tflite",
            compiled.inputs,
            compiled.outputs,
            sha256_of(path),
            f"{self.name} {self.version}",
            source.initial_state,
        )


def _only_values(inputs: tuple[TensorSpec, ...], given: tuple[InputSpec, ...]) -> Iterator[tuple[str, int]]:
    """Integer inputs whose range, as the user gave it, holds one number."""
    ranges = {option.name: option.value_range for option in given}
    for spec in inputs:
        low, high = spec.value_range or ranges.get(spec.name) or (0.0, 0.0)
        if "int" in spec.dtype and high - low == 1:
            yield spec.name, int(low)
