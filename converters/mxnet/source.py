"""An opened model of MXNet: ``NAME-symbol.json`` and ``NAME-0000.params``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.converters.mxnet.arrays import read_arrays
from convertkit.converters.mxnet.graph import Model, run, to_onnx
from convertkit.converters.mxnet.places import files_of
from convertkit.converters.mxnet.symbol import read_symbol
from convertkit.errors import SourceError, UsageError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Feed, Outputs, Runner, Stage, Tolerance


class MxnetSource:
    """Read here without MXNet, executed by NumPy in float64."""

    concurrent = True
    notes: tuple[str, ...] = ()

    def __init__(self, path: Path, options: ExportOptions) -> None:
        symbol, parameters = files_of(path)
        self._model = Model(read_symbol(symbol), _weights(parameters))
        self._model.check()
        inputs = _inputs(self._model, options)
        sizes = {spec.name: [size if isinstance(size, int) else 3 for size in spec.shape] for spec in inputs}
        found = run(self._model, {name: np.zeros(shape) for name, shape in sizes.items()})
        ranks = [found[key].ndim for key in self._model.symbol.heads]
        outputs = tuple(
            TensorSpec(name, tuple(f"{name}_{axis}" for axis in range(rank)), "float32")
            for name, rank in zip(self._model.outputs(), ranks, strict=True)
        )
        digest = hashlib.sha256((sha256_of(symbol) + sha256_of(parameters)).encode()).hexdigest()
        self.artifact = Artifact(symbol, "mxnet", inputs, outputs, digest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def runner(self) -> Runner:
        return MxnetRunner(self._model)

    def stage(self) -> Stage:
        return MxnetStage(self._model)


class MxnetRunner:
    """Executes the graph in float64; outputs are rounded to float32 at the end."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def run(self, feed: Feed) -> Outputs:
        """All results for one feed."""
        values = run(self._model, feed)
        pairs = zip(self._model.symbol.heads, self._model.outputs(), strict=True)
        return {name: values[key].astype(np.float32) for key, name in pairs}


class MxnetStage:
    """The graph → canonical ONNX."""

    name = "mxnet-to-onnx"
    version = "1"
    accepts = frozenset({"mxnet"})
    produces = "onnx"
    tolerance: Tolerance = FLOAT32
    options: Mapping[str, object] = {}

    def __init__(self, model: Model) -> None:
        self._model = model

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model = canonicalize(to_onnx(self._model, source.inputs))
        return save_model(model, workdir / "model.onnx", f"{self.name} {self.version}")


def _weights(path: Path) -> dict[str, np.ndarray]:
    """By their names in the graph."""
    found = {}
    for name, array in read_arrays(path).items():
        kind, _, rest = name.partition(":")
        found[rest if kind in ("arg", "aux") else name] = array
    return found


def _inputs(model: Model, options: ExportOptions) -> tuple[TensorSpec, ...]:
    """The file has no sizes: ``--input`` says them."""
    wanted = {option.name: option for option in options.inputs}
    names = model.inputs()
    if not names:
        raise SourceError("the graph has no input")
    if unknown := [name for name in wanted if name not in names]:
        raise UsageError(f"--input {unknown[0]}: the model has no such input; it has: {', '.join(names)}")
    specs = []
    for name in names:
        option = wanted.get(name)
        if option is None or option.shape is None:
            raise UsageError(f"the files of MXNet say no sizes: give --input {name}:batch,3,224,224, for instance")
        if option.dtype not in (None, "float32"):
            raise UsageError(f"--input {name}: dtype {option.dtype}; MXNet's inputs are float32")
        specs.append(TensorSpec(name, tuple(option.shape), "float32", value_range=option.value_range))
    return tuple(specs)
