"""What a ``.ort`` file says of itself: its inputs and outputs in order, the opset, and the operators that are fused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnxruntime.tools.ort_format_model  # noqa: F401 - makes the next one importable
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import AttributeType, InferenceSession

MICROSOFT = "com.microsoft"
"""The domain of the operators that ONNX Runtime fuses others to."""


def names(model: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of inputs and of outputs in the order of the file."""
    graph = _model(model).Graph()
    weights = {graph.Initializers(at).Name() for at in range(graph.InitializersLength())}
    ins = (graph.Inputs(at) for at in range(graph.InputsLength()))
    outs = (graph.Outputs(at) for at in range(graph.OutputsLength()))
    return tuple(each.decode() for each in ins if each not in weights), tuple(each.decode() for each in outs)


def opset(model: bytes) -> int:
    """The version of ONNX's own operators, 0 where the file has none."""
    root = _model(model)
    found = (root.OpsetImport(at) for at in range(root.OpsetImportLength()))
    return max((int(each.Version()) for each in found if not each.Domain()), default=0)


def fused(model: bytes) -> frozenset[str]:
    """The types of all operators that are ONNX Runtime's own, those in branches and loops as well."""
    return frozenset(_fused(_model(model).Graph()))


def _fused(graph: Any) -> Iterator[str]:
    for place in range(graph.NodesLength()):
        node = graph.Nodes(place)
        if (node.Domain() or b"").decode() == MICROSOFT:
            yield node.OpType().decode()
        for at in range(node.AttributesLength()):
            attribute = node.Attributes(at)
            if attribute.Type() == AttributeType.AttributeType.GRAPH:
                yield from _fused(attribute.G())


def _model(data: bytes) -> Any:
    return InferenceSession.InferenceSession.GetRootAs(data, 0).Model()
