"""Classical models for a target that has neither their operators nor text."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from convertkit.artifact import Artifact
from convertkit.onnx.canonical import simplify
from convertkit.onnx.ml import decompose_kernels
from convertkit.onnx.ml.words import number_words


def without_classical(model: ir.Model) -> None:
    """Trees and support vectors as ONNX's operators, and places in a list of words for the words, in place."""
    if decompose_kernels(model):
        simplify(model)
    if number_words(model):
        simplify(model)


def with_labels(made: Artifact, source: Artifact) -> Artifact:
    """``made`` with the words that its numbers stand for, which ``source`` gives, that it was made of."""
    labels = {spec.name: spec.labels for spec in source.outputs}
    return replace(made, outputs=tuple(replace(spec, labels=labels.get(spec.name, ())) for spec in made.outputs))
