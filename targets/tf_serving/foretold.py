"""What cannot become a SavedModel, told by the ``.tflite`` file alone: TensorFlow takes seconds to import."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.errors import Unsupported
from convertkit.targets.tf_serving.call import check_activation, computed
from convertkit.targets.tf_serving.file import Graph, Operator
from convertkit.targets.tf_serving.handlers import CONSTANTS, HANDLERS
from convertkit.targets.tf_serving.saved_model import refused, unknown


def foretell(graphs: Sequence[Graph]) -> None:
    """Raise ``Unsupported`` for the first operator that its handler refuses."""
    for graph in graphs:
        for operator in graph.operators:
            _check(graph, operator)


def _check(graph: Graph, operator: Operator) -> None:
    if operator.code not in HANDLERS:
        raise unknown(graph, operator)
    try:
        check_activation(operator.options)
        for place in CONSTANTS.get(operator.code, ()):
            if not _is_stored(graph, operator, place):
                raise computed(place)
    except Unsupported as refusal:
        raise refused(graph, operator, refusal) from refusal


def _is_stored(graph: Graph, operator: Operator, place: int) -> bool:
    index = operator.inputs[place] if place < len(operator.inputs) else -1
    return index >= 0 and graph.tensors[index].value is not None
