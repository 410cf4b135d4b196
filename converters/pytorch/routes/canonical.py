"""From an exporter's file to canonical ONNX with exactly the model's interface."""

from __future__ import annotations

from pathlib import Path

import convertkit.onnx.optimizer  # noqa: F401 - which canonicalize imports when it is called: here torch is waited for
from convertkit.artifact import Artifact
from convertkit.converters.pytorch.model.interface import Interface
from convertkit.converters.pytorch.operators.halves import tolerance_of, widen
from convertkit.converters.pytorch.operators.indices import widen_indices
from convertkit.converters.pytorch.operators.integers import judged
from convertkit.converters.pytorch.operators.spectra import exact_transforms
from convertkit.converters.pytorch.routes.lengths import forget_growth, forget_steps
from convertkit.converters.pytorch.routes.restoring import settle_interface
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.plain_constants import fold_plain_constants
from convertkit.onnx.resampling import float32_tolerance
from convertkit.onnx.save import save_model
from convertkit.stage import FLOAT32, Tolerance

MADE_BY = "pytorch-to-onnx 1"


def canonical(exported: Path, interface: Interface) -> tuple[Artifact, Tolerance]:
    """The canonical form of a file, beside it, and how exactly it computes what the model does.

    Raises a ``ConvertKitError`` where the file has another interface than the model or cannot be read.
    """
    model = load_model(exported)
    settle_interface(model, interface.leaves, interface.output_names)
    fold_plain_constants(model)
    widen_indices(model)
    forget_steps(model, interface.leaves)
    forget_growth(model)
    tolerance = tolerance_of(model)
    if tolerance is not FLOAT32:
        widen(model)
    tolerance = judged(model, tolerance)
    model = canonicalize(model)
    if exact_transforms(model):
        model = canonicalize(model)
    if tolerance is FLOAT32:
        tolerance = float32_tolerance(model)
    return save_model(model, exported.with_name("canonical.onnx"), MADE_BY, interface.initial_state), tolerance
