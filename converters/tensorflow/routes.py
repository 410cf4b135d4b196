"""The two routes from TensorFlow to ONNX; neither is believed before its result has been run.

Imports TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import tensorflow as tf
import tf2onnx

from convertkit.artifact import Array
from convertkit.converters.tensorflow import (  # noqa: F401 - tf2onnx keeps the registry
    colours,
    counting,
    handlers,
    integers,
    matrices,
    orthogonal,
    resizing,
    reversals,
    rounding_ranges,
    segments,
)
from convertkit.converters.tensorflow.complaints import sentence
from convertkit.converters.tensorflow.defaults import without_defaults
from convertkit.converters.tensorflow.halves import tolerance_of
from convertkit.converters.tensorflow.loading import Loaded
from convertkit.converters.tensorflow.loops import with_recurrent_operators
from convertkit.converters.tensorflow.narrow import widen_narrow_integers
from convertkit.converters.tensorflow.numbering import renumber
from convertkit.converters.tensorflow.slices import drop_whole_axes
from convertkit.converters.tensorflow.spectra import with_pairs
from convertkit.converters.tensorflow.steady_spectra import take_means_away
from convertkit.converters.tensorflow.windows import pad_no_less_than_nothing, state_pads_of_stride_one
from convertkit.errors import ConvertKitError, ToolError, Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model

OPSET = 18
_RELATIVE = 1e-4
"""What a route may differ by on random feeds; the pipeline's own proof is stricter, unless the model has halves."""

_NEAR = 1e-2
"""What float32 may move a model by that amplifies roundings; the verification tells whether they explain it."""

_TOOL_ERRORS = (
    tf.errors.OpError, ValueError, TypeError, AttributeError, KeyError, IndexError, RuntimeError,
    AssertionError, NotImplementedError,
)  # fmt: skip


class Differs(ToolError):
    """A route whose numbers are not the model's, by the part of the output's largest value that is given."""

    def __init__(self, message: str, relative: float) -> None:
        super().__init__(message)
        self.relative = relative


@dataclass(frozen=True, slots=True)
class Translated:
    """tf2onnx's model, and the names of its inputs and outputs in the order of the signature's."""

    proto: onnx.ModelProto
    inputs: Sequence[str]
    outputs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Job:
    """What a route is given: the model, sizes or names of input dimensions, feeds and what they give."""

    loaded: Loaded
    shapes: Mapping[str, Sequence[int | str]]
    feeds: Sequence[Mapping[str, Array]]
    expected: Sequence[Mapping[str, Array]]
    to: Path
    made_by: str
    translated: Translated | None = None
    """What tf2onnx made of the model, where it has been asked before."""


@dataclass(frozen=True, slots=True)
class Route:
    """A named route; ``convert`` writes ONNX to the job's path or raises."""

    name: str
    make: Callable[[Job], ir.Model]

    def convert(self, job: Job, compared: bool = True) -> None:
        """Write the job's ONNX; ``Differs`` where its numbers are compared and are not the model's."""
        model = with_recurrent_operators(canonicalize(self.make(job)))
        widen_narrow_integers(model)
        take_means_away(model)
        artifact = save_model(model, job.to, job.made_by)
        if not compared:
            return
        relative = max(_RELATIVE, tolerance_of(load_model(job.to)).relative or 0.0)
        with OnnxRunner(artifact) as runner:
            for feed, expected in zip(job.feeds, job.expected, strict=True):
                _compare(runner.run(feed), expected, relative)


def _compare(got: Mapping[str, Array], expected: Mapping[str, Array], relative: float) -> None:
    for name, reference in expected.items():
        if got[name].shape != reference.shape:
            raise ToolError(f"output {name!r} has the shape {got[name].shape}, the model's is {reference.shape}")
        found, wanted = got[name].astype(np.float64), reference.astype(np.float64)
        finite = np.isfinite(wanted)
        if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
            raise ToolError(f"output {name!r} is not finite in other places than the model's")
        difference = np.abs(found[finite] - wanted[finite]).max(initial=0.0)
        scale = max(float(np.abs(wanted[finite]).max(initial=0.0)), 1e-6)
        is_real = np.issubdtype(reference.dtype, np.floating)
        if not difference <= (relative * scale if is_real else 0):
            raise Differs(f"output {name!r} differs by {difference:.3g}", difference / scale if is_real else np.inf)


def _by_tf2onnx(job: Job) -> ir.Model:
    found = job.translated or translated(job.loaded)
    model: ir.Model = ir.from_proto(found.proto)
    drop_whole_axes(model)
    pad_no_less_than_nothing(model)
    state_pads_of_stride_one(model)
    _rename(model, job, found.inputs, found.outputs)
    return model


def translated(loaded: Loaded) -> Translated:
    """What tf2onnx makes of a signature, whose dynamic dimensions stay dynamic; ``ConvertKitError`` where it fails."""
    with _quiet():
        try:
            definition, inputs, outputs = loaded.freeze()
            without_defaults(definition, inputs)
            if any(None in end.shape for end in loaded.inputs):
                definition = with_pairs(definition)
            proto, _ = tf2onnx.convert.from_graph_def(definition, input_names=inputs, output_names=outputs, opset=OPSET)
        except _TOOL_ERRORS as error:
            raise ToolError(f"tf2onnx fails: {sentence(error)}") from error
    _refuse_unknown(proto)
    renumber(proto)
    return Translated(proto, inputs, outputs)


def _refuse_unknown(proto: onnx.ModelProto) -> None:
    """tf2onnx leaves what it does not know in the graph and reports success."""
    found = set()
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        for node in graph.node:
            if node.domain not in ("", "ai.onnx", "ai.onnx.ml") or not onnx.defs.has(node.op_type, OPSET, node.domain):
                found.add(node.op_type)
            graphs += [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    if found:
        raise Unsupported(f"tf2onnx has no form of {', '.join(sorted(found))}")


def _rename(model: ir.Model, job: Job, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give inputs and outputs their public names and order; inputs that nothing reads come back."""
    graph = model.graph
    held = {value.name: value for value in graph.inputs}
    made = {value.name: value for value in graph.outputs}
    public = {end.name for end in (*job.loaded.inputs, *job.loaded.outputs)}
    for value in _values(graph):
        if value.name in public:
            value.name = f"{value.name}/inner"
    ordered = []
    for end, tensor in zip(job.loaded.inputs, inputs, strict=True):
        kind = ir.TensorType(ir.DataType.from_numpy(np.dtype(end.dtype)))
        value = held[tensor] if tensor in held else ir.Value(type=kind)
        value.name, value.shape = end.name, ir.Shape(job.shapes[end.name])
        ordered.append(value)
    graph.inputs.clear()
    graph.inputs.extend(ordered)
    results: list[ir.Value] = []
    for end, tensor in zip(job.loaded.outputs, outputs, strict=True):
        node = ir.node("Identity", [made[tensor]])
        graph.append(node)
        node.outputs[0].name, node.outputs[0].type = end.name, made[tensor].type
        if made[tensor].shape is None:
            node.outputs[0].shape = ir.Shape(end.shape)
        results.append(node.outputs[0])
    graph.outputs.clear()
    graph.outputs.extend(results)


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]


def _by_stablehlo(job: Job) -> ir.Model:
    """TensorFlow's own bridge knows fixed sizes only, so every dimension must have one."""
    loaded = job.loaded
    if not loaded.path:
        raise Unsupported("the StableHLO bridge reads SavedModels, not frozen graphs")
    sizes = [job.shapes[end.name] for end in loaded.inputs]
    if any(isinstance(size, str) for shape in sizes for size in shape):
        raise Unsupported("the StableHLO bridge needs fixed sizes")
    from convertkit.converters.tensorflow import bridge

    with _quiet():
        try:
            module = bridge.stablehlo_of(loaded, job.shapes)
        except _TOOL_ERRORS as error:
            raise ToolError(f"TensorFlow's StableHLO bridge fails: {bridge.told(error)}") from error
    return bridge.onnx_of(module, loaded, job.shapes)


ROUTES = (Route("tf2onnx", _by_tf2onnx), Route("StableHLO", _by_stablehlo))
"""In the order in which they are tried."""


def nearest(refusals: Sequence[tuple[Route, ConvertKitError]]) -> Route | None:
    """The first of the routes whose numbers are as near as any route's and as float32 may make them; None without one.

    A model that amplifies roundings (the logarithm of a small power) gives other numbers in any order of operations.
    Whether roundings explain them is for the verification, which computes the model in float64.
    """
    near = [(error.relative, route) for route, error in refusals if isinstance(error, Differs)]
    is_other = [relative > _NEAR for relative, _ in near]
    return None if not near or any(is_other) else min(near, key=lambda each: each[0])[1]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """tf2onnx logs errors that we report ourselves."""
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
