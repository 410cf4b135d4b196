"""Sizes that a file declares of an output, held against a run where no rule of ONNX tells them.

before:  x [N, 6] → TreeEnsembleClassifier → Greater → Where → y [N, 1], and a run gives [N, 2]
after:   x [N, 6] → TreeEnsembleClassifier → Greater → Where → y [N, y_1]

ONNX Runtime runs such a file, and says so on its log alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from convertkit.artifact import Artifact, Dim, TensorSpec
from convertkit.errors import ConvertKitError
from convertkit.formulas import size_of
from convertkit.memory import is_large
from convertkit.onnx.runner import OnnxRunner
from convertkit.parity.feeds import proof_feeds

Stays = tuple[bool, ...]
"""For each axis that a run gives, whether its size is as declared."""


def tried_sizes(artifact: Artifact, untold: Collection[str]) -> Mapping[str, Stays]:
    """The outputs of which runs give other sizes than declared, by name, of those that are ``untold`` by rules.

    Nothing of a model that does not run on generated inputs, that has state, or whose weights are large: what the file
    declares counts.
    """
    asked = [spec for spec in artifact.outputs if spec.name in untold]
    if not asked or is_large(artifact) or any(spec.is_state for spec in artifact.inputs):
        return {}
    first, *_, last = proof_feeds(artifact.inputs, None, 0, brief=True)  # of two sizes
    try:
        with OnnxRunner(artifact) as runner:
            made = [runner.run(feed) for feed in (first, last)]
    except ConvertKitError:
        return {}
    sizes = [_sizes(artifact.inputs, {name: array.shape for name, array in feed.items()}) for feed in (first, last)]
    found = {spec.name: _stays(spec, [outputs[spec.name].shape for outputs in made], sizes) for spec in asked}
    return {name: stays for name, stays in found.items() if not all(stays)}


def free_tried_sizes(model: ir.Model, tried: Mapping[str, Stays]) -> None:
    """Let the sizes be dynamic of which runs gave others, in place."""
    for value in model.graph.outputs:
        stays = tried.get(str(value.name))
        if stays is not None and value.shape is not None:
            declared = tuple(value.shape) if len(stays) == len(value.shape) else (None,) * len(stays)
            value.shape = ir.Shape([size if same else None for size, same in zip(declared, stays, strict=True)])


def _sizes(inputs: Sequence[TensorSpec], given: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes that inputs give names."""
    pairs = ((dim, size) for spec in inputs if spec.name in given for dim, size in zip(spec.shape, given[spec.name]))
    return {dim: size for dim, size in pairs if isinstance(dim, str)}


def _stays(spec: TensorSpec, runs: Sequence[tuple[int, ...]], sizes: Sequence[Mapping[str, int]]) -> Stays:
    """Whether all runs gave the declared size, by axis; where these have another rank, nothing is as declared."""
    ranks = {len(run) for run in runs}
    if ranks != {len(spec.shape)}:
        return (False,) * max(ranks)
    return tuple(
        all(_is(dim, run[axis], known) for run, known in zip(runs, sizes, strict=True))
        for axis, dim in enumerate(spec.shape)
    )


def _is(dim: Dim, found: int, sizes: Mapping[str, int]) -> bool:
    told = dim if isinstance(dim, int) else size_of(dim, sizes)
    return told in (None, found)
