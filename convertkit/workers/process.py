"""A worker process: frameworks and untrusted files live there, never in the parent.

The parent makes a :class:`Worker` for a service class and calls its methods.  A crash, an
out-of-memory kill or a hang in the worker becomes one :class:`~convertkit.errors.WorkerError`
sentence; an error that the service raises on purpose is raised again in the parent.

Nothing that a worker sends is ever executed (:mod:`convertkit.workers.messages`).  ``isolated=True`` runs one
call in a fork of the worker: state that the call leaves behind or a crash is contained, while
imports done in the service's constructor are paid once.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from convertkit import errors
from convertkit.artifact import Array
from convertkit.workers.elsewhere import Elsewhere
from convertkit.workers.launching import Launch, Launched, launched
from convertkit.workers.messages import (
    deadline_reader,
    receive,
    send,
    send_line,
)

_NO_ARRAYS: Mapping[str, Array] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service method returns: a JSON value and arrays by name."""

    value: Any = None
    arrays: Mapping[str, Array] = field(default_factory=dict)


@runtime_checkable
class TimedService(Protocol):
    """A service that is told what importing its module took, its framework included."""

    import_seconds: float


@dataclass(slots=True)
class _Pending:
    """A call that was begun, and its answer once that has arrived."""

    method: str
    deadline: float | None
    answer: tuple[dict[str, Any], dict[str, Array]] | None = None


class Worker:
    """Runs one service object in a process of its own; a context manager.

    ``service`` is ``package.module:Class``; the class is made without arguments in the worker, and
    each of its methods takes ``(params: dict, arrays: dict)`` and returns a :class:`Reply`.
    ``timeout_s`` bounds every call.  The worker's stdout and stderr go to a file: :attr:`log`.
    ``framework`` is a package that it imports before all else.  ``elsewhere`` is the environment whose Python runs it,
    where that is another one: the service's top-level package is lent to it.
    """

    def __init__(
        self,
        service: str,
        *,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        framework: str | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._service = service
        self._framework = framework
        self._elsewhere = elsewhere
        self._timeout_s = timeout_s
        self._env = env or {}
        self._launched: Launched | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: _Pending | None = None
        self.peak_rss_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if self._launched is not None:
            self._launched.log.close()

    @property
    def log(self) -> str:
        """What the worker's process has printed so far."""
        if self._launched is None:
            return ""
        self._launched.log.seek(0)
        return self._launched.log.read().decode(errors="replace")

    def start(self) -> None:
        """Start the process now, so that it imports what its service needs while the parent does other things."""
        self._started()

    def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] = _NO_ARRAYS,
        *,
        isolated: bool = False,
    ) -> Reply:
        """Run a service method in the worker and return its reply.

        Raises the ``ConvertKitError`` that the method raised, or ``WorkerError`` where the worker
        crashed, ran out of memory, hung beyond the timeout or failed in a way it did not foresee.
        """
        return self.begin(method, params, arrays, isolated=isolated)()

    def begin(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] = _NO_ARRAYS,
        *,
        isolated: bool = False,
    ) -> Callable[[], Reply]:
        """Like :meth:`call`, but the parent may work meanwhile: what is returned waits for the reply.

        The next call first waits for that reply, too.
        """
        process = self._started()
        if self._pending is not None:  # both sides writing at once would wait for each other for ever
            self._receive(process, self._pending)
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        assert process.stdin is not None
        try:
            send(process.stdin, {"method": method, "params": dict(params or {}), "isolated": isolated}, arrays)
        except BrokenPipeError:
            raise self._died(process, method) from None
        self._pending = pending = _Pending(method, deadline)
        return partial(self._reply, process, pending)

    def _reply(self, process: subprocess.Popen[bytes], pending: _Pending) -> Reply:
        answer, values = pending.answer or self._receive(process, pending)
        if "error" in answer:
            raise _revived(answer["error"], self._title(pending.method), self.log)
        return Reply(answer["value"], values)

    def _receive(self, process: subprocess.Popen[bytes], pending: _Pending) -> tuple[dict[str, Any], dict[str, Array]]:
        """Wait for the answer, no longer than the call may take."""
        assert process.stdout is not None
        try:
            pending.answer = answer = receive(deadline_reader(process.stdout, pending.deadline))
        except TimeoutError:
            self._stop()
            raise errors.WorkerError(
                f"{self._title(pending.method)} took longer than {self._timeout_s:g} s and was stopped; raise --timeout"
            ) from None
        except EOFError:
            raise self._died(process, pending.method) from None
        self.peak_rss_bytes = max(self.peak_rss_bytes, int(answer[0].get("peak_rss_bytes", 0)))
        self._pending = None
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if self._launched is not None:
                self._launched.log.close()
            self._launched = launched(self._launch())
            self._process = self._launched.process
            self._pending = None
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already, which the first call finds out
                send_line(self._process.stdin, self._service)
        return self._process

    def _launch(self) -> Launch:
        if self._elsewhere is None:
            return Launch.of(self._framework, self._env)
        return Launch.there(self._elsewhere, self._service.partition(":")[0], self._framework, self._env)

    def _stop(self) -> None:
        if self._process is not None and self._launched is not None:
            self._launched.stop()
            self._process = None

    def _title(self, method: str) -> str:
        return (
            f"the worker ({self._service.partition(':')[0].rpartition('.')[0].removeprefix('convertkit.')}: {method})"
        )

    def _died(self, process: subprocess.Popen[bytes], method: str) -> errors.WorkerError:
        code = process.wait()
        self._process = None
        return errors.WorkerError(
            f"{self._title(method)} {cause_of_death(code)}{_last_line(self.log)}", ended_by=max(0, -code)
        )


def cause_of_death(code: int) -> str:
    """How a process ended with that exit code, in words."""
    if code == -signal.SIGKILL:
        return "was killed, most likely for lack of memory"
    if code < 0:
        return f"crashed with {signal.Signals(-code).name}"
    return f"ended unexpectedly with exit code {code}"


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f"; its last words: {lines[-1][:300]}" if lines else ""


def _revived(error: Mapping[str, Any], title: str, log: str) -> errors.ConvertKitError:
    """The worker's error as the same class here; what is not one of ours becomes ``WorkerError``."""
    kind = getattr(errors, str(error["class"]), None)
    if kind is errors.Unsupported:
        fields = error["fields"]
        return errors.Unsupported(
            fields["reason"],
            subject=fields["subject"],
            location=fields["location"],
            ways_out=tuple(fields["ways_out"]),
        )
    if kind is errors.MissingFramework:
        return errors.MissingFramework(error["fields"]["framework"], error["fields"]["extra"])
    if isinstance(kind, type) and issubclass(kind, errors.ConvertKitError):
        return kind(str(error["message"]))
    if error["class"] == "MemoryError":
        return errors.WorkerError(f"{title} ran out of memory")
    return errors.WorkerError(f"{title} failed: {error['class']}: {_first_line(str(error['message']))}")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")[:500]
