"""The route through torch's TorchScript-based ONNX exporter: scripts with loops and branches included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.subject import Subject, value_for
from convertkit.converters.pytorch.routes import cells, divisions, masked_attention

OPSET = 18


def export(
    subject: Subject, leaves: Sequence[Leaf], outputs: Sequence[str], feed: Mapping[str, Array], path: str
) -> None:
    """Write the model to ``path``; ``feed`` is an example at which it computes."""
    values = {leaf.name: value_for(leaf, feed[leaf.name]) for leaf in leaves}
    args, kwargs = subject.arguments(leaves, values)
    free = {leaf.name: _free(leaf) for leaf in leaves if _free(leaf)}
    cells.define()
    divisions.define()
    masked_attention.define()
    with torch.no_grad():
        torch.onnx.export(
            subject.module,
            args,
            path,
            kwargs=kwargs or None,
            input_names=[leaf.name for leaf in leaves if not leaf.scalar],
            output_names=list(outputs),
            dynamic_axes=free,
            opset_version=OPSET,
            dynamo=False,
            verbose=True,  # without it the source lines are taken off; the print goes to the worker's log
        )


def _free(leaf: Leaf) -> dict[int, str]:
    return {axis: dim for axis, dim in enumerate(leaf.shape) if isinstance(dim, str)}
