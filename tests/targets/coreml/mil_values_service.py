"""The worker's side of the comparison with MIL: what coremltools computes of constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from convertkit.targets.coreml.imports import import_coremltools
from convertkit.workers.process import Reply


class Values:
    """Builds one operation of constants, and tells what MIL infers of it."""

    def __init__(self) -> None:
        import_coremltools()

    def infer(self, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Reply:
        """Results by number; none where MIL infers nothing.  ``params`` has what is not an array."""
        import coremltools
        from coremltools.converters import mil
        from coremltools.converters.mil.mil import Function

        lists = {name: [arrays.pop(each) for each in names] for name, names in params["lists"].items()}
        given = {**params["plain"], **lists, **{name: value[()] for name, value in arrays.items()}}
        with Function({}, opset_version=getattr(coremltools.target, params["system"])):
            made = getattr(mil.Builder, params["kind"])(**given)
            results = made if isinstance(made, list | tuple) else (made,)
            found = [each.val for each in results]
            if all(each is None for each in found) and hasattr(results[0].op, "materialized_val_inference"):
                found = [results[0].op.materialized_val_inference()]
        told = {str(at): np.asarray(each) for at, each in enumerate(found) if each is not None}
        return Reply(len(told), told)
