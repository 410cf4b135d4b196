"""In which order a model's file has its inputs and outputs: a runtime counts them so."""

from __future__ import annotations

from convertkit.targets.mobile.formats import format_of
from convertkit.targets.ort_mobile.reading import names

Names = tuple[tuple[str, ...], tuple[str, ...]]


def names_of(model: bytes) -> Names:
    """The names of inputs and of outputs in the order of the file."""
    return {"tflite": _of_tflite, "ort": names, "onnx": _of_onnx}[format_of(model)](model)


def _of_tflite(model: bytes) -> Names:
    from ai_edge_litert import schema_py_generated as schema

    graph = schema.Model.GetRootAs(model, 0).Subgraphs(0)
    ins = tuple(graph.Tensors(graph.Inputs(at)).Name().decode() for at in range(graph.InputsLength()))
    return ins, tuple(graph.Tensors(graph.Outputs(at)).Name().decode() for at in range(graph.OutputsLength()))


def _of_onnx(model: bytes) -> Names:
    import onnx

    graph = onnx.load_from_string(model).graph
    constants = {each.name for each in graph.initializer}
    ins = tuple(each.name for each in graph.input if each.name not in constants)
    return ins, tuple(each.name for each in graph.output)
