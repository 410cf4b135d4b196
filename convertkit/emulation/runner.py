"""Runs a model file in a process of its own: on this processor, or on an arm core that QEMU emulates."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import convertkit
from convertkit.artifact import Array, Artifact
from convertkit.emulation.cores import Core
from convertkit.emulation.root import PACKAGES, RUNTIMES, emulator, root
from convertkit.errors import FeedError, ToolError, Unsupported, WorkerError
from convertkit.stage import Feed, Outputs, Portable
from convertkit.workers.launching import Launch
from convertkit.workers.messages import deadline_reader, receive, send

_PROGRAM = "convertkit.emulation.answering"


class ProcessorRunner:
    """A context manager around one process that answers; one that has ended is started again for the next call.

    ``core`` is an arm core, None for this machine's own processor.  Both run the same program.
    """

    def __init__(
        self, portable: Portable, artifact: Artifact, core: Core | None, timeout_s: float | None = None
    ) -> None:
        self._portable = portable
        self._artifact = artifact
        self._core = core
        self._timeout_s = timeout_s
        self._open = ExitStack()
        self._command: Sequence[str] = ()
        self._environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        text = [spec.name for spec in (*self._artifact.inputs, *self._artifact.outputs) if spec.dtype == "string"]
        if text:
            raise Unsupported(f"{text[0]} is text, and only numbers are compared between processors")
        with ExitStack() as opening:
            self._log = opening.enter_context(tempfile.TemporaryFile(prefix="convertkit-arm64-"))
            self._command, self._environment = opening.enter_context(self._launch())
            opening.callback(self._stop)
            self._start()
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``ToolError`` where the runtime fails, ``WorkerError`` beyond the timeout."""
        if missing := [spec.name for spec in self._artifact.inputs if spec.name not in feed]:
            raise FeedError(f"no array for input {missing[0]}")
        if self._process is None:
            self._start()
        encoded = {spec.name: spec.encode(feed[spec.name]) for spec in self._artifact.inputs}
        _, values = self._exchange({}, encoded)
        return {spec.name: spec.decode(values[spec.name]) for spec in self._artifact.outputs}

    @contextmanager
    def _launch(self) -> Iterator[tuple[Sequence[str], dict[str, str]]]:
        """The command of the program, and its environment."""
        if self._core is None:
            yield [sys.executable, "-P", "-m", _PROGRAM], dict(Launch.of(None, {}).environment)
            return
        program, arm = emulator(), root(self._portable.runtime)
        with tempfile.TemporaryDirectory(prefix="convertkit-arm64-") as name:
            prefix = Path(name)
            for each in arm.path.iterdir():
                if each.name != "proc":
                    (prefix / each.name).symlink_to(each)
            # QEMU shows the program the files of the prefix in the place of the machine's own.
            (prefix / "proc").mkdir()
            (prefix / "proc" / "cpuinfo").write_text(self._core.cpuinfo, encoding="ascii")
            (prefix / "program").mkdir()
            (prefix / "program" / "convertkit").symlink_to(Path(convertkit.__file__).parent)
            own = {
                "PYTHONPATH": f"{arm.path / PACKAGES}:{prefix / 'program'}",
                "PYTHONHOME": str(arm.path / "usr"),
                "PYTHONHASHSEED": "0",
                "PYTHONDONTWRITEBYTECODE": "1",
                "LD_LIBRARY_PATH": "",
            }
            given = [word for key, value in own.items() for word in ("-E", f"{key}={value}")]
            command = [str(program), "-L", str(prefix), "-cpu", self._core.name, *given]
            yield [*command, str(arm.python), "-P", "-m", _PROGRAM], dict(os.environ)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=self._environment
        )
        self._exchange(
            {
                "runtime": self._portable.runtime,
                "path": str(self._portable.path.absolute()),
                "signature": self._portable.signature,
                "inputs": self._portable.inputs,
                "outputs": self._portable.outputs,
            },
            {},
        )

    def _exchange(self, header: dict[str, Any], arrays: dict[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        try:
            send(process.stdin, header, arrays)
            return receive(deadline_reader(process.stdout, deadline))
        except TimeoutError as error:
            self._stop()
            raise WorkerError(f"{self._where} took longer than {self._timeout_s:g} s") from error
        except (BrokenPipeError, EOFError) as error:
            code = process.wait()
            self._stop()
            raise ToolError(f"{self._where} fails on {self._portable.path.name}: {self._last_words(code)}") from error

    @property
    def _where(self) -> str:
        distribution = RUNTIMES[self._portable.runtime]
        return f"{distribution} on {self._core.name}" if self._core is not None else f"{distribution} here"

    def _last_words(self, code: int) -> str:
        assert self._log is not None
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        if code < 0 or not lines:
            return f"the program was ended by signal {-code}" if code < 0 else f"the program ended with {code}"
        return lines[-1][:400]

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        process.wait()
