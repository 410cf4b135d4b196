"""The worker that decodes weights: Vela's codec is native code, which ends the process where a stream is not one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convertkit.artifact import Array
from convertkit.targets.ethos_u.weights import check_weights
from convertkit.workers.process import Reply


class WeightService:
    """Holds a compiled file against the one that it was compiled from."""

    def check(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """How many weights of the operators ``on_npu`` are in both files, ``before`` and ``after``."""
        before, after = (Path(params[name]).read_bytes() for name in ("before", "after"))
        return Reply(check_weights(before, after, frozenset(params["on_npu"])))
