"""What loading an artifact and its first call take, in a process that has done nothing else."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from convertkit.artifact import Array
from convertkit.stage import Feed
from convertkit.workers.process import Reply, Worker


def in_new_process(model: str, threads: int | None, feed: Feed) -> dict[str, Any]:
    """:meth:`FirstCall.measure` in a worker; what that has in its temporary folder goes also where it is killed."""
    with (
        tempfile.TemporaryDirectory(prefix="convertkit-call-", ignore_cleanup_errors=True) as place,
        Worker("convertkit.looking.first_call:FirstCall", env={"TMPDIR": place}) as worker,
    ):
        found: dict[str, Any] = worker.call("measure", {"model": model, "threads": threads}, dict(feed)).value
    return found


class FirstCall:
    """Runs in a worker: loads a model and calls it once."""

    def measure(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Milliseconds and bytes of resident memory, for ``model`` with the inputs ``arrays``."""
        from convertkit.looking.opened import opened
        from convertkit.looking.timing import as_run, runner_of

        with opened(params["model"]) as found:
            artifact = as_run(found)
            runner = runner_of(artifact, params["threads"])
            _reset_peak()
            before, begun = _status("VmRSS:"), time.perf_counter()
            with runner:
                loaded = time.perf_counter()
                runner.run(arrays)
                called = time.perf_counter()
                peak = _status("VmHWM:")
        told = {"load_ms": 1e3 * (loaded - begun), "first_ms": 1e3 * (called - loaded)}
        return Reply({**told, "memory_bytes": None if peak is None or before is None else max(0, peak - before)})


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak of this process
    except OSError:
        return


def _status(key: str) -> int | None:
    """Bytes that the system tells of this process; None where it tells nothing."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), None)
