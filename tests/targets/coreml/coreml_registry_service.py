"""The worker's side of the coverage test: which operators have a handler, and whether signatures fit the schemas."""

from __future__ import annotations

from typing import Any

import numpy as np

from convertkit.targets.coreml.imports import import_coremltools
from convertkit.workers.process import Reply


class Handlers:
    """Tells of the registry."""

    def __init__(self) -> None:
        import_coremltools()

    def operators(self, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Reply:
        """Names of all operators; raises where a signature and its schema disagree."""
        from convertkit.targets.coreml.handlers import COREML

        COREML.check()
        return Reply(sorted({key.op for key in COREML}))
