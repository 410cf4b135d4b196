"""An opened ``.tflite`` file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import onnx_ir as ir

from convertkit.artifact import STATE_FILE, STATE_PREFIX, Artifact, TensorSpec, sha256_of
from convertkit.converters.tflite import metadata
from convertkit.converters.tflite.builder import QUANTIZED, named_dims
from convertkit.converters.tflite.importer import to_onnx
from convertkit.converters.tflite.model import Signature, TensorInfo, TFLiteModel, read_model
from convertkit.converters.tflite.reference import LiteRTRunner
from convertkit.converters.tflite.states import Shown, shown
from convertkit.errors import SourceError, Unsupported, UsageError
from convertkit.onnx.canonical import canonicalize, freeze_dims
from convertkit.onnx.inputs import fixed_sizes, with_input_options
from convertkit.onnx.save import save_model
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Runner, Stage, Tolerance
from convertkit.state import carried, save_arrays, state_beside

INTEGER = Tolerance(
    "integer kernels round products in fixed point, QDQ in floating point: single steps that depth and softmax widen",
    lsb=1,
    snr_db=20,
    lossy=True,
)
DYNAMIC_RANGE = Tolerance(
    "the kernels quantize activations at run time, the ONNX graph keeps them float", snr_db=20, lossy=True
)


class TFLiteSource:
    """A ``.tflite`` file: read here without any framework, executed by LiteRT in a worker."""

    def __init__(self, path: Path, options: ExportOptions, workdir: Path) -> None:
        self._model = read_model(path)
        self._original = self._signature = chosen(self._model, options.signature)
        self._shown = shown(path.read_bytes(), self._model, self._signature)
        if self._shown is not None:
            self._model, self._signature = self._shown.model, self._shown.signature
        self._options, self._workdir = options, workdir
        graph = self._model.subgraphs[self._signature.subgraph]
        inputs = tuple(spec_of(graph.tensors[index], name) for name, index in self._signature.inputs)
        outputs = tuple(spec_of(graph.tensors[index], name) for name, index in self._signature.outputs)
        specs = with_input_options(inputs, options.inputs)
        self._sizes = fixed_sizes(inputs, specs)
        state = state_beside(path, specs) if self._shown is None else started_in(self._shown, workdir)
        self.artifact = Artifact(path, "tflite", specs, outputs, sha256_of(path), initial_state=state)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the ONNX graph says differently from the file."""
        found = []
        if self._shown is not None:
            names = ", ".join(name.removeprefix(STATE_PREFIX) for name in self._shown.start)
            found.append(f"variables are state, inputs and outputs of every call: {names}")
        ops = [op for graph in self._model.subgraphs for op in graph.operators]
        if any(op.builtin == "UNIDIRECTIONAL_SEQUENCE_LSTM" for op in ops):
            found.append("LSTM layers start with zero state on every call")
        if is_dynamic_range(self._model):
            found.append("weights are integers and activations float: LiteRT quantizes activations at run time")
        words = self._model.metadata.get(metadata.BUFFER)
        return (*found, *(() if words is None else metadata.described(words)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def runner(self) -> Runner:
        timeout_s = self._options.timeout_s
        if self._shown is None:
            return LiteRTRunner(self.artifact, self._signature, timeout_s)
        edited = self._workdir / "with-state.tflite"
        edited.write_bytes(self._shown.data)
        return LiteRTRunner(self.artifact, self._signature, timeout_s, edited, self._original)

    def stage(self) -> Stage:
        return TFLiteStage(self._model, self._signature, self._sizes)


class TFLiteStage:
    """``.tflite`` → canonical ONNX with explicit QDQ."""

    name = "tflite-to-onnx"
    version = "1"
    accepts = frozenset({"tflite"})
    produces = "onnx"

    def __init__(self, model: TFLiteModel, signature: Signature, sizes: Mapping[str, int]) -> None:
        self._model = model
        self._signature = signature
        self._sizes = dict(sizes)

    @property
    def tolerance(self) -> Tolerance:
        if has_integers(self._model):
            return INTEGER
        return DYNAMIC_RANGE if is_dynamic_range(self._model) else FLOAT32

    @property
    def options(self) -> Mapping[str, object]:
        found: dict[str, object] = {"signature": self._signature.key} if self._signature.key else {}
        return {**found, "fixed_dims": self._sizes} if self._sizes else found

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model = to_onnx(self._model, self._signature)
        if self._sizes:
            freeze_dims(model, self._sizes)
        canonical = canonicalize(model)
        for value, spec in zip(canonical.graph.outputs, source.outputs, strict=True):
            if value.shape is None:  # inference does not see through every loop; the file says it
                value.shape = ir.Shape(spec.shape)
        state = carried(source, self._sizes, workdir)
        return save_model(canonical, workdir / "model.onnx", f"{self.name} {self.version}", state)


def started_in(found: Shown, workdir: Path) -> Path:
    """What the state begins with, in a file of ``workdir``."""
    save_arrays(workdir / STATE_FILE, found.start)
    return workdir / STATE_FILE


def chosen(model: TFLiteModel, wanted: str | None) -> Signature:
    """The signature to convert; ``UsageError`` where the choice is unclear or does not exist."""
    keys = [signature.key for signature in model.signatures]
    if wanted is None:
        if len(keys) > 1:
            raise UsageError(f"the file has several signatures; choose one with --signature: {', '.join(keys)}")
        return model.signatures[0]
    if wanted not in keys:
        raise UsageError(f"--signature {wanted}: the file has {', '.join(filter(None, keys)) or 'no signatures'}")
    return model.signatures[keys.index(wanted)]


def has_integers(model: TFLiteModel) -> bool:
    """Whether values that the file computes are stored as integers with a scale."""
    tensors = (tensor for graph in model.subgraphs for tensor in graph.tensors)
    return any(x.data is None and x.quantization is not None and x.dtype in QUANTIZED for x in tensors)


def is_dynamic_range(model: TFLiteModel) -> bool:
    """Whether float operators use integer weights directly."""
    for graph in model.subgraphs:
        for op in graph.operators:
            read = [graph.tensors[index] for index in op.inputs if index >= 0]
            weights = any(x.data is not None and x.dtype in QUANTIZED and x.quantization is not None for x in read)
            if weights and read[0].dtype == "float32" and op.builtin not in ("DEQUANTIZE", "GATHER"):
                return True
    return False


def spec_of(info: TensorInfo, name: str) -> TensorSpec:
    """An input or output as the file declares it; dynamic dimensions get names."""
    if info.shape is None:
        way = "the TFLite file again, made of the model with a shape for each input"
        raise Unsupported(f"the file does not say how many axes {name!r} has", ways_out=(way,))
    if info.dtype in ("string", "resource", "variant"):
        raise Unsupported(f"{name!r} holds {info.dtype} values; only numbers can cross an artifact's interface")
    if any(size == 0 for size in info.shape):
        raise SourceError(f"{name!r} has no elements: {info.shape}")
    if info.quantization is None or info.dtype not in QUANTIZED:
        return TensorSpec(name, named_dims(name, info.shape), info.dtype)
    limits = np.iinfo(info.dtype) if info.dtype in ("int8", "uint8", "int16", "uint16") else None
    values = None if limits is None else (float(limits.min), float(limits.max) + 1)  # every integer is some real number
    return TensorSpec(name, named_dims(name, info.shape), info.dtype, value_range=values, lsb=1.0)
