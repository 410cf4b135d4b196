"""Exports of files broken on purpose, each as its own command line, from one warm process.

A script, because it holds frameworks that the tests' own process must not: ``broken_exports.py FOLDER
MODULE…`` imports the modules, then exports every file or folder that its stdin names, one per line, and
answers each with a line of JSON.  Command and worker are both forks, so a crash, a hang or leftover state
stays with one file, and each has its own memory, as when a user calls ``convertkit``; what is saved
is the import of the frameworks.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np

from convertkit.workers.launching import Launch

TIMEOUT_S = 120
WARM = {
    "tensorflow": ("convertkit.converters.tensorflow.service", "convertkit.converters.tensorflow.source"),
    "keras": ("convertkit.converters.keras.service", "convertkit.converters.keras.source"),
    "tflite": ("convertkit.converters.tflite.reference", "ai_edge_litert.interpreter"),
    "jax": ("convertkit.converters.jax.service", "convertkit.converters.jax.source", "onnxscript.optimizer"),
}
CORE = ("convertkit.cli", "convertkit.steps.session", "convertkit.delivery", "convertkit.targets.onnxruntime")


@dataclass(frozen=True, slots=True)
class Ended:
    """How one export ended; ``exit_code`` is negative for a signal, ``None`` for a hang."""

    exit_code: int | None
    said: str

    @property
    def without_power(self) -> bool:
        """Whether the proof had nothing to compare: the broken file gives no numbers, or the same for every input."""
        return self.exit_code == 3 and "not verified: " in self.said

    @property
    def fault(self) -> str:
        """What is wrong with it; empty for a conversion and for a refusal in one sentence."""
        if self.exit_code is None:
            return f"hangs for {TIMEOUT_S} s"
        if self.exit_code < 0:
            return f"dies of {signal.Signals(-self.exit_code).name}"
        if "Traceback" in self.said or "internal error" in self.said:
            return self.said
        if self.exit_code == 0 or self.without_power:
            return ""
        one = [line for line in self.said.splitlines() if line.startswith("convertkit: ")]
        return "" if self.exit_code == 1 and len(one) == 1 else f"exit code {self.exit_code}: {self.said}"


class Exporter:
    """The warm process; a context manager."""

    def __init__(self, workdir: Path, framework: str) -> None:
        self._workdir = workdir
        self._framework = framework

    def __enter__(self) -> Self:
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
            "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_NUM_INTRAOP_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, __file__, str(self._workdir), *CORE, *WARM[self._framework]]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)

    def export(self, source: Path) -> Ended:
        """Export to ONNX with all proofs; the source framework loads the same file as the reference."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{source}\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


def mutants(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Half truncated; half with a flipped bit, every third of those with up to four in the first 2 kB."""
    rng = np.random.default_rng(seed)
    for index in range(count):
        if index % 2:
            yield data[: int(rng.integers(0, len(data)))]
            continue
        flipped = bytearray(data)
        reach, most = (min(2048, len(data)), 4) if index % 3 == 0 else (len(data), 1)
        for _ in range(int(rng.integers(1, most + 1))):
            flipped[int(rng.integers(reach))] ^= 1 << int(rng.integers(8))
        yield bytes(flipped)


# --- the warm process -----------------------------------------------------------------------------


class _Forked:
    """What ``convertkit.workers`` needs of a ``Popen``, for a worker that is a fork of this process."""

    def __init__(self, launch: Launch, log: IO[bytes]) -> None:
        calls, our_calls = os.pipe()
        our_replies, replies = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.environ.update(launch.environment)
            for held, place in ((calls, 0), (replies, 1), (log.fileno(), 2)):
                os.dup2(held, place)
            for held in (calls, our_calls, our_replies, replies):
                os.close(held)
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - of the process
            _serve(launch.framework or "")
        os.close(calls)
        os.close(replies)
        self.stdin, self.stdout = os.fdopen(our_calls, "wb"), os.fdopen(our_replies, "rb")

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _serve(framework: str) -> None:
    from convertkit.workers import serving

    code = 1
    try:
        serving.main(framework)
        code = 0
    finally:
        os._exit(code)


def _export(source: str, workdir: Path, said: int) -> None:
    """In a fork: the command, its worker forked likewise."""
    from convertkit import cli
    from convertkit.workers import launching, process

    def started(launch: Launch) -> launching.Launched:
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        return launching.Launched(launch, _Forked(launch, log), log)  # type: ignore[arg-type]

    process.launched = started
    os.setsid()
    for place in (1, 2):
        os.dup2(said, place)
    code = 1
    try:
        cli.main(["export", source, "--target", "onnxruntime", "-o", str(workdir / "out"), "--force"])
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(pid: int) -> int | None:
    """The exit code of a child, or ``None`` where it had to be killed."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def serve_exports(workdir: Path, modules: Sequence[str]) -> None:
    """Answer every line of stdin until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in modules:
        importlib.import_module(name)
    said = workdir / "said.txt"
    for line in sys.stdin:
        with said.open("wb") as stream:
            child = os.fork()
            if child == 0:
                _export(line.strip(), workdir, stream.fileno())
            code = _ended(child)
        answers.write(json.dumps({"exit_code": code, "said": said.read_text(errors="replace")}) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve_exports(Path(sys.argv[1]), sys.argv[2:])
