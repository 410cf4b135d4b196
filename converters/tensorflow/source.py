"""Opened SavedModels and frozen graphs: read here, then handed to TensorFlow in a worker."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.converters.tensorflow import safety
from convertkit.converters.tensorflow.graph import SavedModel, Signature, read_graph_def, read_saved_model
from convertkit.converters.tensorflow.halves import tolerance_of
from convertkit.converters.tensorflow.trials import asked
from convertkit.errors import MissingFramework, Unsupported, UsageError
from convertkit.onnx.inputs import with_input_options
from convertkit.onnx.load import load_model
from convertkit.onnx.specs import interface
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Runner, Stage, Tolerance
from convertkit.workers.process import Worker
from convertkit.workers.runner import OpenedRunner

_SERVICE = "convertkit.converters.tensorflow.service:TensorFlowService"
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
DEFAULT = "serving_default"
BATCH = "batch"
"""What a dynamic leading dimension is called."""


def open_saved_model(
    folder: Path, options: ExportOptions, workdir: Path, notes: tuple[str, ...] = ()
) -> TensorFlowSource:
    """Read the graph, refuse what may not run, then load the signature; ``notes`` stand before the source's own.

    What a route is tried with is made in ``workdir`` and removed.
    """
    saved = read_saved_model(folder)
    signature = chosen(folder, saved, options.signature)
    tensors = [end.tensor for end in signature.outputs]
    passed = safety.refuse_dangerous(folder, saved.graph, tensors, "pyfunc" in options.trust)
    safety.refuse_inexpressible(signature, saved.graph.behind(iter(tensors)))
    changes = safety.told_changes(saved.graph.behind(iter(tensors)))
    params = {"path": str(folder), "signature": signature.key, "tags": saved.tags, "changes": changes}
    tried, told = str(workdir / "tried" / "model.onnx"), (*notes, *_trusted(passed))
    return TensorFlowSource(folder, "savedmodel", "open_saved_model", {**params, "tried": tried}, options, told)


def open_graph_def(path: Path, options: ExportOptions) -> TensorFlowSource:
    """A frozen graph: ``--input`` may name its inputs, ``--signature`` its outputs."""
    graph = read_graph_def(path)
    passed = safety.refuse_dangerous(path, graph, list(graph.nodes), "pyfunc" in options.trust)
    outputs = [name.strip() for name in (options.signature or "").split(",") if name.strip()]
    inputs = [option.name for option in options.inputs]
    for name in (*inputs, *outputs):
        if name.partition(":")[0] not in graph.nodes:
            raise UsageError(f"{path}: the graph has no node {name!r}")
    changes = safety.told_changes(graph.nodes.values())
    params = {"path": str(path), "inputs": inputs, "outputs": outputs, "changes": changes}
    return TensorFlowSource(path, "graphdef", "open_graph_def", params, options, _trusted(passed))


def chosen(folder: Path, saved: SavedModel, wanted: str | None) -> Signature:
    """The signature to convert; ``UsageError`` with all of them where the choice is unclear."""
    found = {each.key: each for each in saved.signatures}
    listed = "\n".join(f"  {_told(each)}" for each in saved.signatures)
    if not found:
        raise Unsupported(
            f"{folder} has no signatures",
            ways_out=("saving it with signatures=model.call.get_concrete_function(...)",),
        )
    if wanted is not None and wanted not in found:
        raise UsageError(f"--signature {wanted}: {folder} has no such signature; it has:\n{listed}")
    default = found.get(DEFAULT)
    if wanted is None and default is not None and all(_alike(each, default) for each in saved.signatures):
        return default
    if wanted is None and len(found) > 1:
        raise UsageError(f"{folder} has several signatures; choose one with --signature:\n{listed}")
    return found[wanted] if wanted is not None else saved.signatures[0]


def _alike(one: Signature, other: Signature) -> bool:
    """Whether two signatures take and give the same: Keras exports one function under two names."""
    ends = [[(e.key, e.dtype, e.shape) for e in (*each.inputs, *each.outputs)] for each in (one, other)]
    return ends[0] == ends[1]


def _told(signature: Signature) -> str:
    ends = [", ".join(f"{e.key}: {e.dtype}" for e in each) for each in (signature.inputs, signature.outputs)]
    return f"{signature.key}  ({ends[0]}) → ({ends[1]})"


def _trusted(passed: Sequence[str]) -> tuple[str, ...]:
    return (f"operators that reach beyond the model were trusted: {', '.join(passed)}",) if passed else ()


class TensorFlowSource:
    """A model held by TensorFlow in a worker."""

    def __init__(
        self,
        path: Path,
        kind: str,
        method: str,
        params: Mapping[str, Any],
        options: ExportOptions,
        notes: tuple[str, ...],
    ) -> None:
        for name in ("tensorflow", "tf2onnx"):
            if importlib.util.find_spec(name) is None:
                raise MissingFramework(name, "tensorflow")
        self._worker = Worker(_SERVICE, timeout_s=options.timeout_s, env=_ENVIRONMENT)
        told = {each.name: _sizes(each.shape) for each in options.inputs if each.shape is not None}
        opened = self._worker.call(method, {**params, "shapes": told}).value
        inputs = tuple(_spec(*each) for each in opened["inputs"])
        outputs = tuple(_spec(*each) for each in opened["outputs"])
        specs = with_input_options(inputs, options.inputs)
        older = ("read by TensorFlow 1's loader",) if opened["loader"] == "TensorFlow 1" else ()
        self._notes = [*notes, *older]
        self._static = dict(options.static)
        if _is_batch_open(specs, self._static) and (because := self._needs_sizes(specs, params)):
            specs = tuple(_of_one(spec) for spec in specs)
            self._notes.append(
                f"the batch is fixed at 1, --static {BATCH}=SIZE fixes another: {because}, "
                "and TensorFlow's StableHLO bridge reads fixed sizes"
            )
        self.artifact = Artifact(path, kind, specs, outputs, sha256_of(path))

    def _needs_sizes(self, specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> str:
        """Why tf2onnx's route with its dynamic batch is not taken; empty where it is."""
        if "tried" not in params:
            return ""
        given = [_sized(spec, self._static) for spec in specs]
        return str(asked(self._worker, "needs_sizes", given, {"to": params["tried"]}))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know; the route that was taken comes in when it has been."""
        return tuple(self._notes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def runner(self) -> Runner:
        return OpenedRunner(self._worker, self.artifact)

    def stage(self) -> Stage:
        return TensorFlowStage(self._worker, self.artifact.format, self._notes, self._static)


class TensorFlowStage:
    """TensorFlow → canonical ONNX by the first of two routes whose result computes the same, or by the nearest."""

    name = "tensorflow-to-onnx"
    version = "1"
    produces = "onnx"

    def __init__(
        self, worker: Worker, accepts: str, notes: list[str], static: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self._worker = worker
        self._static = static
        self._notes = notes
        self._route = ""
        self.tolerance: Tolerance = FLOAT32
        self.accepts = frozenset({accepts})

    @property
    def options(self) -> Mapping[str, object]:
        return {"route": self._route, **({"fixed_dims": dict(self._static)} if self._static else {})}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        path = workdir / "model.onnx"
        made_by = f"{self.name} {self.version}"
        given = [_sized(spec, self._static) for spec in source.inputs]
        reply = asked(self._worker, "convert", given, {"to": str(path), "made_by": made_by})
        self._route = reply["route"]
        self._notes += [f"route {self._route}; not taken: {reason}" for reason in reply["refused"]]
        if reply["near"]:
            self._notes.append(f"route {self._route}: {reply['near']}, on which the model's float64 twin decides")
        model = load_model(path)
        self.tolerance = tolerance_of(model)
        inputs, outputs = interface(model)
        return Artifact(path, "onnx", inputs, outputs, sha256_of(path), made_by)


def _is_batch_open(specs: Sequence[TensorSpec], static: Mapping[str, int]) -> bool:
    """Whether the batch is the only size that is not known."""
    return {dim for spec in specs for dim in _sized(spec, static).shape if isinstance(dim, str)} == {BATCH}


def _of_one(spec: TensorSpec) -> TensorSpec:
    return _sized(spec, {BATCH: 1})


def _sized(spec: TensorSpec, sizes: Mapping[str, int]) -> TensorSpec:
    return replace(spec, shape=tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape))


def _sizes(shape: Sequence[int | str]) -> list[int | None]:
    """A shape of ``--input`` as TensorFlow has it: a named dimension is dynamic."""
    return [size if isinstance(size, int) else None for size in shape]


def _spec(name: str, shape: Sequence[int | None], dtype: str) -> TensorSpec:
    """A tensor of the signature; a dynamic first dimension is the batch."""
    dims = tuple(size if size is not None else f"{name}_{axis}" if axis else BATCH for axis, size in enumerate(shape))
    return TensorSpec(name, dims, dtype)
