"""The most memory that an artifact takes to load and to run: in its runtime's own process, or as its target tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convertkit.errors import UsageError
from convertkit.looking.first_call import in_new_process
from convertkit.looking.opened import opened
from convertkit.looking.timing import as_run, one_feed
from convertkit.release import golden
from convertkit.result import Result
from convertkit.state import with_state

GATE = "peak_memory"


def peak_memory(result: Result, vectors: Path | None) -> int | None:
    """Bytes; None where no runtime here stands for the one that will run the artifact, or the system does not tell.

    A target that plans its memory tells it (the arena of microcontrollers).  Else it is what a new process needs more
    at its peak while it loads the artifact and calls it once, on the first golden vector or on generated inputs.
    """
    planned = _arena(result.report)
    if planned is not None:
        return planned
    folder = str(result.artifact.path.parent)
    with opened(folder) as found:
        try:
            artifact = as_run(found)
        except UsageError:
            return None
        feed = one_feed(artifact) if vectors is None else with_state(artifact, golden.read(vectors)[0].inputs)
    found = in_new_process(folder, None, feed)["memory_bytes"]
    return None if found is None else int(found)


def _arena(report: Mapping[str, Any]) -> int | None:
    for step in report["steps"]:
        arena = (step.get("diagnosis") or {}).get("arena")
        if arena is not None:
            return int(arena["bytes"])
    return None
