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
        """Names of all operators of ONNX; raises where a signature and its schema disagree."""
        from convertkit.targets.coreml.handlers import COREML

        COREML.check()
        return Reply(sorted({key.op for key in COREML if not key.domain}))

    def missing(self, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Reply:
        """Versions of handled operators that canonical models may have, and no handler takes; deprecated ones aside."""
        from onnx import defs

        from convertkit.onnx.canonical import MAX_OPSET, MIN_OPSET
        from convertkit.targets.coreml.handlers import COREML

        operators = {key.op for key in COREML if not key.domain}
        opsets = range(MIN_OPSET, MAX_OPSET + 1)
        schemas = [defs.get_schema(op, opset) for op in operators for opset in opsets if defs.has(op, opset)]
        met = {(each.name, each.since_version) for each in schemas if not each.deprecated}
        return Reply(sorted(f"{op}-{since}" for op, since in met if since not in COREML.versions(op)))
