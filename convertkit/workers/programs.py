"""Programs that are run to their end, and that end with the task that runs them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_PART_S = 0.2


def run_to_end(
    command: Sequence[str],
    *,
    timeout_s: float | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Like ``subprocess.run`` with what the program says, as text; killed where the task is halted meanwhile.

    Raises ``subprocess.TimeoutExpired`` where it takes longer.  A wait of ``subprocess.run`` hears of nothing until the
    program ends; this one waits in short parts.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=cwd, env=env
    ) as process:
        try:
            while True:
                try:
                    said, complained = process.communicate(timeout=_PART_S)
                    return subprocess.CompletedProcess(command, process.returncode, said, complained)
                except subprocess.TimeoutExpired:
                    if until is not None and time.monotonic() > until:
                        raise
        except BaseException:
            process.kill()
            raise
