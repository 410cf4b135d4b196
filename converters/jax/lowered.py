"""Programs that were lowered for accelerators, as XLA runs them on a CPU: so they are converted and verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convertkit.converters.jax.solvers import on_processor
from convertkit.converters.stablehlo.branches import take_branch
from convertkit.converters.stablehlo.cumulative import without_scans
from convertkit.converters.stablehlo.importer import Parsed, entry_point

_HERE = "cpu"
_VECTORS = ("syevd", "gesvd")


def for_processor(parsed: Parsed, platforms: Sequence[str]) -> tuple[bytes | None, tuple[str, ...]]:
    """Change a module in place; as a portable artifact if it is another one now, and notes on what was done."""
    notes: list[str] = []

    def change(module: Any) -> bool:
        if len(platforms) > 1:
            chosen = _HERE if _HERE in platforms else platforms[0]
            take_branch(module, entry_point(module), platforms.index(chosen))
            notes.append(f"exported for {', '.join(platforms)}: verified and converted as it computes on {chosen}")
        calls = on_processor(module)
        if calls:
            notes.append(f"what a GPU's routines compute is verified and converted as on a CPU: {', '.join(calls)}")
        if any(name in call for call in calls for name in _VECTORS):
            notes.append("vectors of eigenvalues or singular values may have other signs than on the GPU")
        scans = without_scans(module)
        return len(platforms) > 1 or bool(calls) or scans

    return parsed.changed(change), tuple(notes)
