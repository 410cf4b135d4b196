"""The worker's side of :mod:`convertkit.workers.process`: making the service, and answering calls to it."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from dataclasses import dataclass
from typing import IO, Any

from convertkit import errors
from convertkit.artifact import Array
from convertkit.guarding import die_with_parent
from convertkit.workers.messages import is_complete, reader, receive, receive_line, send
from convertkit.workers.process import TimedService, cause_of_death

_OBJECTS_PER_COLLECTION = 20_000
"""Python's own 700 make collecting a twentieth of the time of torch's exporter, whose graphs are all alive."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as the worker received it."""

    method: str
    params: dict[str, Any]
    arrays: dict[str, Array]


def _peak_rss_bytes() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in who) * unit


def _answer(service: object, call: _Call, out: IO[bytes]) -> None:
    try:
        reply = getattr(service, call.method)(call.params, call.arrays)
        send(out, {"value": reply.value, "peak_rss_bytes": _peak_rss_bytes()}, reply.arrays)
    except Exception as error:  # noqa: BLE001 - the border of the process: everything is reported to the parent
        if not isinstance(error, errors.ConvertKitError):
            import traceback

            traceback.print_exc()
        send(out, {"error": _described(error), "peak_rss_bytes": _peak_rss_bytes()}, {})


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


def _answer_in_fork(service: object, call: _Call, out: IO[bytes]) -> None:
    """Answer in a fork: what the call leaves behind goes with it, and its death is an answer."""
    inlet, outlet = os.pipe()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        os.close(inlet)
        with os.fdopen(outlet, "wb") as pipe:
            _answer(service, call, pipe)
        os._exit(0)
    os.close(outlet)
    with os.fdopen(inlet, "rb") as pipe:
        answer = pipe.read()
    if is_complete(answer):
        out.write(answer)
        out.flush()
        os.waitpid(pid, 0)  # only now: to give back the memory of a framework takes 10 ms
        return
    _, status = os.waitpid(pid, 0)
    message = f"one attempt {cause_of_death(os.waitstatus_to_exitcode(status))}"
    send(out, {"error": {"class": "WorkerError", "message": message, "fields": {}}}, {})


def serve(replies_to: int, framework_s: float) -> None:
    """Hear from the parent which service is wanted, then answer calls to it until the parent closes the pipe.

    Replies go to the file descriptor ``replies_to``; ``framework_s`` is what importing the framework took.
    """
    die_with_parent()
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
        call = _Call(header["method"], header["params"], arrays)
        if failure is not None:
            send(replies, {"error": _described(failure)}, {})
        elif header["isolated"]:
            _answer_in_fork(service, call, replies)
        else:
            _answer(service, call, replies)


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
