"""What all stages that change numerics have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from convertkit.progress import Progress, Silent
from convertkit.stage import LOSSY, FeedSource

_QUANTIZED = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QGemm", "ConvInteger", "MatMulInteger"})


@dataclass(slots=True, kw_only=True)
class LossyStep:
    """A stage from ONNX to ONNX; ``diagnosis`` tells, once it has run, what it did."""

    progress: Progress = field(default_factory=Silent)
    diagnosis: Mapping[str, object] | None = None

    version = "1"
    accepts = frozenset({"onnx"})
    produces = "onnx"
    tolerance = LOSSY


def is_quantized(model: ir.Model) -> bool:
    """Whether any operator quantizes an activation already: such a model passes through with its own scales."""
    return any(node.op_type in _QUANTIZED or node.op_type.startswith("QLinear") for node in model.graph)


def of_calibration(feeds: FeedSource | None) -> Mapping[str, object]:
    """What a stage's options hold of its data."""
    if feeds is None:
        return {}
    return {"calibration": feeds.description, "calibration_sha256": feeds.sha256, "samples": len(feeds)}
