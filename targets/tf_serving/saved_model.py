"""Write a SavedModel of plain TensorFlow operators.  Only a worker imports TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.errors import Unsupported
from convertkit.targets.tf_serving.call import Call
from convertkit.targets.tf_serving.compat import saved_model_message
from convertkit.targets.tf_serving.file import Graph, Operator, Tensor
from convertkit.targets.tf_serving.handlers import HANDLERS

SIGNATURE = "serving_default"
_WAYS_OUT = ("--target tflite", "--target onnxruntime --package triton")


class Building:
    """Lowers the graphs of a ``.tflite`` file into TensorFlow's default graph."""

    def __init__(self, tf: Any, graphs: Sequence[Graph]) -> None:
        self._tf, self._graphs = tf, graphs

    def main(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of the main graph by name; ``given`` has its inputs by name."""
        main = self._graphs[0]
        results = self._run(main, [given[main.tensors[index].name] for index in main.inputs])
        return {main.tensors[index].name: value for index, value in zip(main.outputs, results, strict=True)}

    def called(self, index: int) -> Callable[..., list[Any]]:
        """A graph as a function of tensors."""
        return lambda *given: self._run(self._graphs[index], given)

    def _run(self, graph: Graph, given: Sequence[Any]) -> list[Any]:
        values = dict[int, Any](zip(graph.inputs, given, strict=True))
        for operator in graph.operators:
            name = _name(graph, operator)
            with self._tf.name_scope(_plain(name)):
                results = self._operator(graph, operator, values, name)
            for index, value in zip(operator.outputs, results, strict=True):
                values[index] = value
        return [self._value(graph, index, values) for index in graph.outputs]

    def _operator(self, graph: Graph, operator: Operator, values: dict[int, Any], name: str) -> Sequence[Any]:
        handler = HANDLERS.get(operator.code)
        if handler is None:
            raise unknown(graph, operator)
        given = [None if index < 0 else partial(self._value, graph, index, values) for index in operator.inputs]
        constants = [None if index < 0 or index in values else graph.tensors[index].value for index in operator.inputs]
        told = [None if index < 0 else graph.tensors[index] for index in operator.inputs]
        outputs = [graph.tensors[index] for index in operator.outputs]
        try:
            made = handler(Call(self._tf, given, constants, operator.options, outputs, self.called, told))
        except Unsupported as refusal:
            raise refused(graph, operator, refusal) from refusal
        except (ValueError, TypeError) as error:
            reason = str(error).splitlines()[0][:300]
            raise Unsupported(
                f"TensorFlow refuses {operator.code}: {reason}", subject=name, ways_out=_WAYS_OUT
            ) from error
        results = made if isinstance(made, tuple | list) else (made,)
        for tensor, value in zip(outputs, results, strict=True):
            _check(operator.code, tensor, value)
        return results

    def _value(self, graph: Graph, index: int, values: dict[int, Any]) -> Any:
        if index in values:
            return values[index]
        tensor = graph.tensors[index]
        if tensor.value is None:
            raise Unsupported("it is read before it is computed", subject=f"tensor {tensor.name}")
        return self._tf.constant(np.asarray(tensor.value, order="C"))


def unknown(graph: Graph, operator: Operator) -> Unsupported:
    """The refusal of an operator without a handler."""
    reason = f"{operator.code} is not written for TensorFlow"
    return Unsupported(reason, subject=_name(graph, operator), ways_out=_WAYS_OUT)


def refused(graph: Graph, operator: Operator, refusal: Unsupported) -> Unsupported:
    """What a handler refuses, with the operator."""
    return Unsupported(f"{operator.code}: {refusal}", subject=_name(graph, operator), ways_out=_WAYS_OUT)


def _name(graph: Graph, operator: Operator) -> str:
    return graph.tensors[operator.outputs[0]].name if operator.outputs else operator.code


def _check(code: str, tensor: Tensor, value: Any) -> None:
    """Raise ``Unsupported`` where TensorFlow knows another element type, rank or size than the file says."""
    found, wanted = value.shape.as_list() if value.shape.rank is not None else None, list(tensor.shape)
    sizes_agree = found is None or (
        len(found) == len(wanted) and all(a is None or b < 0 or a == b for a, b in zip(found, wanted, strict=True))
    )
    if value.dtype.name != tensor.dtype or not sizes_agree:
        made = f"{value.dtype.name}{found}"
        raise Unsupported(
            f"TensorFlow makes {made} of {code}, not {tensor.dtype}{wanted}", subject=tensor.name, ways_out=_WAYS_OUT
        )


def write(tf: Any, graphs: Sequence[Graph], folder: Path, names: tuple[Sequence[str], Sequence[str]]) -> None:
    """Write the SavedModel into the new ``folder``.

    ``names`` are those of the signature's inputs and outputs, which the main graph's tensors have.
    """
    v1, main = tf.compat.v1, graphs[0]
    with tf.Graph().as_default() as graph:
        tensors = {main.tensors[index].name: main.tensors[index] for index in main.inputs}
        given = {
            name: v1.placeholder(each.dtype, [None if size < 0 else size for size in each.shape], _plain(name))
            for name, each in tensors.items()
        }
        found = Building(tf, graphs).main(given)
        results = {name: tf.identity(found[name], name=f"result_{_plain(name)}") for name in names[1]}
        signature = v1.saved_model.predict_signature_def({name: given[name] for name in names[0]}, results)
        with v1.Session(graph=graph) as session:
            builder = v1.saved_model.Builder(str(folder))
            builder.add_meta_graph_and_variables(
                session, [v1.saved_model.tag_constants.SERVING], signature_def_map={SIGNATURE: signature}
            )
            builder.save()
    _settle(saved_model_message(), folder)


def _settle(message: Any, folder: Path) -> None:
    """The same bytes for the same model: functions in the order of their names, maps in that of their keys."""
    file = folder / "saved_model.pb"
    model = message.FromString(file.read_bytes())
    for meta in model.meta_graphs:
        library = meta.graph_def.library
        functions = sorted(library.function, key=lambda each: each.signature.name)
        del library.function[:]
        library.function.extend(functions)
    file.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)
    variables = folder / "variables"
    if variables.exists():
        variables.rmdir()  # weights are constants; what packs files, as manifests and archives do, has no empty folder


def _plain(name: str) -> str:
    """A name that a node may have: letters, digits and a few signs, none of these in front."""
    return re.sub(r"[^A-Za-z0-9_.\\/-]+", "_", name).lstrip("_.\\/-") or "value"
