"""A Dask cluster on this machine, each part of it a process of its own."""

import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STARTS_S = 120


@dataclass
class Cluster:
    address: str
    workers: list


@contextmanager
def running(*words, environment=None):
    """A scheduler and two workers, which are not started again where they end."""
    given = dict(os.environ if environment is None else environment)
    given["PYTHONPATH"] = os.pathsep.join([os.getcwd(), given.get("PYTHONPATH", "")])
    processes = []
    with tempfile.TemporaryDirectory() as folder:

        def started(module, *words):
            log = Path(folder) / f"{len(processes)}.log"
            command = [sys.executable, "-m", f"distributed.cli.{module}", *words, "--no-dashboard"]
            with log.open("w") as stream:
                processes.append(subprocess.Popen(command, env=given, stdout=stream, stderr=stream))
            return log

        try:
            address = _said(started("dask_scheduler", "--host", "127.0.0.1", "--port", "0"), r"(tcp://[\d.]+:\d+)")
            logs = [started("dask_worker", address, "--nthreads", "1", "--no-nanny", *words) for _ in range(2)]
            for log in logs:
                _said(log, r"(Registered to)")
            yield Cluster(address, processes[1:])
        finally:
            for process in reversed(processes):
                process.kill()
                process.wait()


def _said(log, pattern):
    end = time.monotonic() + STARTS_S
    while time.monotonic() < end:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"it did not start: {log.read_text()}")
