"""A worker process: frameworks and untrusted files live there, never in the parent.

The parent makes a :class:`Worker` for a service class and calls its methods.  A crash, an
out-of-memory kill or a hang in the worker becomes one :class:`~convertkit.errors.WorkerError`
sentence; an error that the service raises on purpose is raised again in the parent.

Nothing that a worker sends is ever executed (:mod:`convertkit.workers.messages`).  ``isolated=True`` runs one
call in a fork of the worker: state that the call leaves behind or a crash is contained, while
imports done in the service's constructor are paid once.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import MappingProxyType, TracebackType
from typing import IO, Any, Protocol, Self, runtime_checkable

from convertkit import errors
from convertkit.artifact import Array
from convertkit.workers.launching import Launch, Launched, launched
from convertkit.workers.messages import (
    CHUNK,
    deadline_reader,
    is_complete,
    reader,
    receive,
    receive_line,
    send,
    send_line,
)

_OBJECTS_PER_COLLECTION = 20_000
"""Python's own 700 make collecting a twentieth of the time of torch's exporter, whose graphs are all alive."""
_NO_ARRAYS: Mapping[str, Array] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service method returns: a JSON value and arrays by name."""

    value: Any = None
    arrays: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One method of a service and what it is given."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)


@runtime_checkable
class TimedService(Protocol):
    """A service that is told what importing its module took, its framework included."""

    import_seconds: float


@dataclass(frozen=True, slots=True)
class _Expected:
    """A reply that has not arrived."""

    method: str
    deadline: float | None


class Worker:
    """Runs one service object in a process of its own; a context manager.

    ``service`` is ``package.module:Class``; the class is made without arguments in the worker, and
    each of its methods takes ``(params: dict, arrays: dict)`` and returns a :class:`Reply`.
    ``timeout_s`` bounds every call.  The worker's stdout and stderr go to a file: :attr:`log`.
    ``framework`` is a package that it imports before all else.
    """

    def __init__(
        self,
        service: str,
        *,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        framework: str | None = None,
    ) -> None:
        self._service = service
        self._framework = framework
        self._timeout_s = timeout_s
        self._env = env or {}
        self._launched: Launched | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._calls = 0
        self._expected: dict[int, _Expected] = {}
        self._arrived: dict[int, tuple[dict[str, Any], dict[str, Array]]] = {}
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

        The next call first waits for the replies of all that were begun.
        """
        return self._begin((Call(method, params or {}, arrays),), isolated=isolated)[0]

    def begin_together(self, calls: Sequence[Call]) -> tuple[Callable[[], Reply], ...]:
        """Several isolated calls at the same time, each in a fork of its own."""
        return self._begin(calls, isolated=True)

    def _begin(self, calls: Sequence[Call], *, isolated: bool) -> tuple[Callable[[], Reply], ...]:
        process = self._started()
        while self._expected:  # both sides writing at once would wait for each other for ever
            self._take_one(process, next(iter(self._expected.values())))
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        numbers = range(self._calls, self._calls + len(calls))
        self._calls = numbers.stop
        told = [
            {"number": number, "method": call.method, "params": dict(call.params), "arrays": len(call.arrays)}
            for number, call in zip(numbers, calls, strict=True)
        ]
        arrays = {
            f"{number}/{name}": a
            for number, call in zip(numbers, calls, strict=True)
            for name, a in call.arrays.items()
        }
        assert process.stdin is not None
        try:
            send(process.stdin, {"calls": told, "isolated": isolated}, arrays)
        except BrokenPipeError:
            raise self._died(process, calls[0].method) from None
        expected = {number: _Expected(call.method, deadline) for number, call in zip(numbers, calls, strict=True)}
        self._expected.update(expected)
        return tuple(partial(self._reply, process, number, each) for number, each in expected.items())

    def _reply(self, process: subprocess.Popen[bytes], number: int, expected: _Expected) -> Reply:
        while number not in self._arrived:
            self._take_one(process, expected)
        answer, values = self._arrived.pop(number)
        if "error" in answer:
            raise _revived(answer["error"], self._title(expected.method), self.log)
        return Reply(answer["value"], values)

    def _take_one(self, process: subprocess.Popen[bytes], expected: _Expected) -> None:
        """Receive whichever reply comes next, waiting no longer than ``expected`` may take."""
        assert process.stdout is not None
        try:
            answer, values = receive(deadline_reader(process.stdout, expected.deadline))
        except TimeoutError:
            self._stop()
            raise errors.WorkerError(
                f"{self._title(expected.method)} took longer than {self._timeout_s:g} s and was stopped;"
                " raise --timeout"
            ) from None
        except EOFError:
            raise self._died(process, expected.method) from None
        self.peak_rss_bytes = max(self.peak_rss_bytes, int(answer.get("peak_rss_bytes", 0)))
        del self._expected[answer["number"]]
        self._arrived[answer["number"]] = answer, values

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if self._launched is not None:
                self._launched.log.close()
            self._launched = launched(Launch.of(self._framework, self._env))
            self._process = self._launched.process
            self._expected.clear()
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already, which the first call finds out
                send_line(self._process.stdin, self._service)
        return self._process

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
            f"{self._title(method)} {_cause_of_death(code)}{_last_line(self.log)}", ended_by=max(0, -code)
        )


def _cause_of_death(code: int) -> str:
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


# --- the worker's side ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A call as the worker received it."""

    number: int
    method: str
    params: dict[str, Any]
    arrays: dict[str, Array]


def _numbered(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[_Numbered]:
    values = iter(arrays.items())
    return [
        _Numbered(
            each["number"],
            each["method"],
            each["params"],
            {name.partition("/")[2]: array for name, array in islice(values, each["arrays"])},
        )
        for each in header["calls"]
    ]


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere EOF on stdin ends it)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _peak_rss_bytes() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in who) * unit


def _answer(service: object, call: _Numbered, out: IO[bytes]) -> None:
    told = {"number": call.number}
    try:
        reply = getattr(service, call.method)(call.params, call.arrays)
        send(out, {**told, "value": reply.value, "peak_rss_bytes": _peak_rss_bytes()}, reply.arrays)
    except Exception as error:  # noqa: BLE001 - the border of the process: everything is reported to the parent
        if not isinstance(error, errors.ConvertKitError):
            import traceback

            traceback.print_exc()
        send(out, {**told, "error": _described(error), "peak_rss_bytes": _peak_rss_bytes()}, {})


def _described(error: Exception) -> dict[str, Any]:
    if isinstance(error, ModuleNotFoundError):
        error = errors.missing_framework(error.name) or error
    error = errors.full_disk(error) or error
    return {"class": type(error).__name__, "message": str(error), "fields": _fields(error)}


def _fields(error: Exception) -> dict[str, Any]:
    if isinstance(error, errors.Unsupported):
        names = ("reason", "subject", "location", "ways_out")
        return {name: getattr(error, name) for name in names}
    if isinstance(error, errors.MissingFramework):
        return {"framework": error.framework, "extra": error.extra}
    return {}


@dataclass(frozen=True, slots=True)
class _Forked:
    """A fork and the call that it answers."""

    pid: int
    call: _Numbered


@dataclass(frozen=True, slots=True)
class _Child:
    """What a fork has written so far."""

    forked: _Forked
    data: bytearray


def _answer_in_forks(service: object, calls: Sequence[_Numbered], out: IO[bytes]) -> None:
    """Answer every call in a fork of its own, all at the same time; replies go out as they come."""
    answered = list[int]()
    with selectors.DefaultSelector() as running:
        for call in calls:
            inlet, outlet = os.pipe()
            pid = os.fork()
            if pid == 0:
                _die_with_parent()
                os.close(inlet)
                with os.fdopen(outlet, "wb") as pipe:
                    _answer(service, call, pipe)
                os._exit(0)
            os.close(outlet)
            running.register(inlet, selectors.EVENT_READ, _Child(_Forked(pid, call), bytearray()))
        while running.get_map():
            for key, _ in running.select():
                if part := os.read(key.fd, CHUNK):
                    key.data.data.extend(part)
                    continue
                running.unregister(key.fd)
                os.close(key.fd)
                answered += _passed_on(key.data, out)
    for pid in answered:
        os.waitpid(pid, 0)


def _passed_on(child: _Child, out: IO[bytes]) -> tuple[int, ...]:
    """Pass on what a fork has answered, or how it died; the fork that still is to be waited for.

    One that has said all is not waited for first: to give back the memory of a framework takes it 10 ms.
    """
    forked = child.forked
    if is_complete(child.data):
        out.write(child.data)
        out.flush()
        return (forked.pid,)
    _, status = os.waitpid(forked.pid, 0)
    message = f"one attempt {_cause_of_death(os.waitstatus_to_exitcode(status))}"
    send(out, {"number": forked.call.number, "error": {"class": "WorkerError", "message": message, "fields": {}}}, {})
    return ()


def serve(replies_to: int, framework_s: float) -> None:
    """Hear from the parent which service is wanted, then answer calls to it until the parent closes the pipe.

    Replies go to the file descriptor ``replies_to``; ``framework_s`` is what importing the framework took.
    """
    _die_with_parent()
    calls = sys.stdin.buffer
    replies = os.fdopen(replies_to, "wb")
    service: object = None
    failure: ImportError | errors.ConvertKitError | None = None
    read = reader(calls)
    try:
        service = _made(receive_line(read), framework_s)  # before there is a call: the parent may have started us early
    except EOFError:
        return  # nobody wants this process
    except (ImportError, errors.ConvertKitError) as error:
        failure = error
    while True:
        try:
            header, arrays = receive(read)
        except EOFError:
            return
        calls_made = _numbered(header, arrays)
        if failure is not None:
            for call in calls_made:
                send(replies, {"number": call.number, "error": _described(failure)}, {})
        elif header["isolated"]:
            _answer_in_forks(service, calls_made, replies)
        else:
            _answer(service, calls_made[0], replies)


def _made(service_name: str, framework_s: float) -> object:
    begun = time.perf_counter()
    module, _, name = service_name.partition(":")
    # What importing a framework makes stays: collecting among it takes a tenth of that time, and makes forks copy it.
    gc.disable()
    try:
        service: object = getattr(importlib.import_module(module), name)()
    finally:
        gc.freeze()
        gc.set_threshold(_OBJECTS_PER_COLLECTION)
        gc.enable()
    if isinstance(service, TimedService):
        service.import_seconds = framework_s + time.perf_counter() - begun
    return service
