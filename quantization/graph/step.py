"""What all stages that change numerics have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convertkit.progress import Progress, Silent
from convertkit.stage import LOSSY


@dataclass(slots=True, kw_only=True)
class LossyStep:
    """A stage from ONNX to ONNX; ``diagnosis`` tells, once it has run, what it did."""

    progress: Progress = field(default_factory=Silent)
    diagnosis: Mapping[str, object] | None = None

    version = "1"
    accepts = frozenset({"onnx"})
    produces = "onnx"
    tolerance = LOSSY
