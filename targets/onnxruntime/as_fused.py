"""A model as ONNX Runtime fuses it, with all sizes known: what its kernels are is not in the file that it loads."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from convertkit.errors import Unsupported
from convertkit.onnx.inspection import with_shapes
from convertkit.onnx.onnxruntime_compat import ERRORS

_QUIET = 4
_LAYOUT_OF_X86 = "NchwcTransformer"
"""What it fuses depends on the processor; the cost tables have what it gains."""
_MOST_BYTES = 1 << 29
"""Of a file with its weights: it is written once more."""
WAYS_OUT = ("convertkit bench without --device, which measures here",)


def as_fused(path: Path) -> ir.Model:
    """The graph that a session runs, the same on every machine; free dimensions are 1.

    ``path`` is an ``.onnx`` or an ``.ort`` file.  Where ONNX Runtime loses a size, one call with zeros tells it.
    Raises ``Unsupported`` for what is too large, and for what ONNX Runtime does not load.
    """
    if sum(each.stat().st_size for each in _files(path)) > _MOST_BYTES:
        raise Unsupported("a file above 512 MiB is not estimated", subject=path.name, ways_out=WAYS_OUT)
    with tempfile.TemporaryDirectory(prefix="convertkit-fused-") as place:
        source = path
        if path.suffix == ".ort":
            source = Path(place) / "as_stored.onnx"
            _written(path, source, ())
        free = {str(dim) for value in ir.load(source).graph.inputs for dim in value.shape or () if not _is_fixed(dim)}
        made = Path(place) / "fused.onnx"
        _written(source, made, sorted(free))
        model = with_shapes(ir.load(made))
        _measure(model, Path(place) / "asked.onnx")
        for value in model.graph.initializers.values():  # the files that hold them are gone in a moment
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = ir.tensor(value.const_value.numpy().copy(), name=value.name)
    return model


def _files(path: Path) -> list[Path]:
    return [each for each in (path, path.with_name(f"{path.name}.data")) if each.exists()]


def _is_fixed(dim: object) -> bool:
    return isinstance(dim, int) or (isinstance(dim, ir.SymbolicDim) and dim.value is None)


def _written(source: Path, made: Path, free: Sequence[str]) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(made)
    options.add_session_config_entry("session.save_model_format", "ONNX")
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    for name in free:
        options.add_free_dimension_override_by_name(name, 1)
    try:
        ort.InferenceSession(
            str(source), options, providers=["CPUExecutionProvider"], disabled_optimizers=[_LAYOUT_OF_X86]
        )
    except ERRORS as error:
        raise _refused(source, error) from error


def _refused(path: Path, error: Exception) -> Unsupported:
    reason = str(error).strip().splitlines()[0][:200]
    return Unsupported(f"ONNX Runtime does not load it: {reason}", subject=path.name, ways_out=WAYS_OUT)


def _measure(model: ir.Model, path: Path) -> None:
    """Give every value of the graph its sizes where its shape has other dimensions than numbers."""
    lost = [value for node in model.graph for value in node.outputs if value.name and not _is_told(value)]
    if not lost:
        return
    asked = model.clone()
    made = {value.name: value for node in asked.graph for value in node.outputs}
    for place, value in enumerate(lost):
        shape = ir.Node("", "Shape", [made[value.name]])
        shape.outputs[0].name, shape.outputs[0].type = f"__size_{place}", ir.TensorType(ir.DataType.INT64)
        asked.graph.append(shape)
        asked.graph.outputs.append(shape.outputs[0])
    ir.save(asked, path)
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        found = session.run([f"__size_{place}" for place in range(len(lost))], dict(map(_zeros, model.graph.inputs)))
    except ERRORS as error:
        raise _refused(path, error) from error
    for value, sizes in zip(lost, found, strict=True):
        value.shape = ir.Shape([int(size) for size in sizes])


def _is_told(value: ir.Value) -> bool:
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return True
    return value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def _zeros(value: ir.Value) -> tuple[str, np.ndarray]:
    dtype = ir.DataType.FLOAT if value.dtype is None else value.dtype
    shape = [dim if isinstance(dim, int) else 1 for dim in value.shape or ()]
    return str(value.name), np.zeros(shape, dtype.numpy())
