"""Canonical ONNX → the ``.onnx`` that TensorRT's parser takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array, Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.classical import with_labels, without_classical
from convertkit.onnx.edit import add_constant
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.stage import FLOAT32, FeedSource, Stage, Tolerance
from convertkit.targets.forms.transforms import write_transform
from convertkit.targets.forms.unrolled_cells import write_single_steps
from convertkit.targets.forms.writing import write_each
from convertkit.targets.tensorrt.capability import capabilities
from convertkit.targets.tensorrt.older import RELEASE as OLDER
from convertkit.targets.tensorrt.older import as_older
from convertkit.targets.tensorrt.package import write_package
from convertkit.targets.tensorrt.parser import NEWEST
from convertkit.targets.tensorrt.rtx import Architectures, Engine, build, runtime_version
from convertkit.targets.tensorrt.shapes import Range, check_names, check_sizes
from convertkit.targets.tensorrt.sparsity import sparse_weights

_EXPLICIT = frozenset({ir.DataType.INT8, ir.DataType.INT4, ir.DataType.FLOAT8E4M3FN})
_QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})
_OWN_RANGES = "quantize the float model with --target tensorrt --int8: symmetric integers need ranges of their own"


class DeliverExplicit:
    """Writes ``model.onnx`` with the files of its package, and refuses what TensorRT does not parse or express.

    Recurrent layers of one step are written out: TensorRT makes a loop of each layer, and TensorRT-RTX 1.7 builds
    no engine of two such loops whose states are slices of one input.  A Fourier transform is a product with its matrix:
    no parser has one.

    Sources of the rules: NVIDIA, "Working with Quantized Types"; the parser of TensorRT-RTX 1.7.
    """

    name = "tensorrt"
    version = "7"
    accepts = frozenset({"onnx"})
    produces = "tensorrt"
    tolerance: Tolerance = FLOAT32

    def __init__(
        self,
        ranges: Sequence[Range] = (),
        allowed: Sequence[str] = (),
        seed: int = 0,
        calibration: FeedSource | None = None,
        *,
        older: bool = False,
        rtx: Architectures | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """``allowed`` are operators to deliver although the parser does not take them; ``older`` is for TensorRT 8.6.

        ``rtx`` is what an engine for TensorRT-RTX is built for, in a worker that ``timeout_s`` bounds.
        """
        check_names(ranges)
        self._ranges, self._allowed = tuple(ranges), tuple(allowed)
        self._seed, self._calibration = seed, calibration
        self._release = OLDER if older else NEWEST
        self._rtx, self._timeout_s = rtx, timeout_s
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        profile = {each.name: list(each.sizes) for each in self._ranges}
        rtx = {} if self._rtx is None else {"rtx_sm": list(self._rtx.sms), "tensorrt_rtx": runtime_version()}
        release = {"release": OLDER} if self._release == OLDER else {}
        return {"profile": profile, "allow": list(self._allowed), "seed": self._seed, **release, **rtx}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Integer biases become float; every pair that is left is checked, and every node held against the parser."""
        if self._ranges or self._rtx is not None:
            check_sizes(source.inputs, self._ranges)
        model = load_model(source.path)
        without_classical(model)
        write_single_steps(model)
        if "DFT" not in self._allowed:
            write_each(model, {"DFT": write_transform})
        for node in tuple(model.graph.all_nodes()):
            if node.op_type == "DequantizeLinear":
                _float_bias(node)
        RemoveUnusedNodesPass()(model)
        for node in model.graph.all_nodes():
            if node.op_type in _QDQ:
                _check(node)
        if self._release == OLDER:
            model = as_older(model)
        found = capabilities(model, self._allowed, self._release)
        saved = save_model(model, workdir / "model.onnx", f"{self.name} {self.version}", source.initial_state)
        made = replace(saved, format=self.produces)
        engine = self._engine(made, model)
        write_package(made, model, found, self._ranges, self._calibration, self._seed, engine)
        return with_labels(made, source)

    def _engine(self, made: Artifact, model: ir.Model) -> Engine | None:
        """The engine beside ``made``, where one was asked for."""
        if self._rtx is None:
            return None
        sparse = bool(sparse_weights(model))
        engine = build(made.path, made.inputs, self._ranges, self._rtx, self._timeout_s, sparse=sparse)
        self.diagnosis = {"rtx_engine": engine.described()}
        return engine


def _float_bias(node: ir.Node) -> None:
    """An int32 constant behind DequantizeLinear as the floats that it stands for, of the scale's type."""
    integers, scale = node.inputs[0], node.inputs[1]
    if integers is None or scale is None or integers.dtype != ir.DataType.INT32 or node.graph is None:
        return
    if integers.const_value is None or scale.const_value is None or _shifted(node):
        return
    steps, sizes = integers.const_value.numpy(), scale.const_value.numpy()
    real = (steps.astype(np.float32) * _spread(node, sizes, steps.shape).astype(np.float32)).astype(sizes.dtype)
    assert isinstance(node.graph, ir.Graph)
    value = add_constant(node.graph, f"{node.outputs[0].name}_float", real)
    ir.convenience.replace_all_uses_with(node.outputs[0], value, replace_graph_outputs=True)


def _spread(node: ir.Node, sizes: Array, shape: tuple[int, ...]) -> Array:
    """Scales as they broadcast with integers of ``shape``: one for all, or one for each row or block along ``axis``.

    Source: ONNX operators, DequantizeLinear-21.
    """
    axis, block = node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0)
    if block:
        return np.repeat(sizes, block, axis).take(range(shape[axis]), axis)
    if sizes.size == 1 and sizes.ndim < 2:
        return sizes.reshape(())
    rows = [1] * len(shape)
    rows[axis] = sizes.size
    return sizes.reshape(rows)


def _check(node: ir.Node) -> None:
    """Raise ``Unsupported`` for integers of another type, and for a zero point other than 0."""
    inputs = (*node.inputs, None)
    integers = node.inputs[0] if node.op_type == "DequantizeLinear" else node.outputs[0]
    zero = inputs[2]
    dtype = zero.dtype if zero is not None else integers.dtype if integers is not None else None
    if dtype not in _EXPLICIT:
        kind = "uint8" if dtype is None else dtype.name.lower()
        raise _refusal(node, f"{kind} integers: TensorRT takes int8, float8 E4M3, and int4 for weights")
    if _shifted(node):
        raise _refusal(node, "a zero point other than 0: TensorRT's integers are symmetric")


def _shifted(node: ir.Node) -> bool:
    """Whether the zero point is not known to be 0."""
    zero = (*node.inputs, None)[2]
    return zero is not None and (zero.const_value is None or bool(zero.const_value.numpy().astype(np.float32).any()))


def _refusal(node: ir.Node, reason: str) -> Unsupported:
    return Unsupported(reason, subject=f"{node.name} ({node.op_type})", ways_out=(_OWN_RANGES,))


_: type[Stage] = DeliverExplicit
