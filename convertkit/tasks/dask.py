"""Tasks on a Dask cluster: worker processes, of one machine or of many, that share a file system with this one.

Each attempt works in a folder of its own, so that a worker which was thought dead does no harm.  Live things belong to
the worker process and end with the run.  A worker that dies costs the time of its tasks: they run again elsewhere.
"""

from __future__ import annotations

import os
import pickle
import secrets
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.errors import MissingFramework, ToolError, UsageError, WorkerError
from convertkit.progress import Progress, Silent
from convertkit.tasks.executor import Ran
from convertkit.tasks.halting import Halted
from convertkit.tasks.inner import InnerTasks
from convertkit.tasks.resources import Resources
from convertkit.tasks.task import Context, Task
from convertkit.tasks.versions import code_version

try:
    import distributed
except ModuleNotFoundError as error:
    raise MissingFramework("distributed", "dask") from error

_RETRIES = 3
"""How often a task is tried again after workers or connections have failed, never after its own errors."""
_CONNECT_S = 20
_LOOK_S = 2.0
_WITHOUT_WORKERS_S = 60.0
"""How long a cluster may be without workers, while others start."""


class Dask:
    """Runs tasks on the cluster whose scheduler is at ``address`` (``tcp://HOST:PORT``).

    Raises ``ToolError`` where that does not answer or has no workers.  A task ends with ``UsageError`` where its worker
    has another convertkit or does not see the task's folder.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._guard = threading.Lock()
        self._waiting: set[Future[Ran]] = set()
        self._over = threading.Event()
        self._run = f"convertkit-{secrets.token_hex(6)}"
        try:
            self._client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ToolError(f"there is no Dask scheduler at {address}: {error}") from error

    @property
    def jobs(self) -> int:
        """How many tasks the cluster runs at once."""
        return sum(self._client.nthreads().values())

    def start(self, resources: Resources, progress: Progress, inner: InnerTasks) -> None:
        """Give every worker process resources of its own; those of this process are not used."""
        if not self.jobs:
            raise ToolError(f"the Dask scheduler at {self._address} has no workers")
        self._client.register_plugin(_Live(), name=self._run)
        threading.Thread(target=self._watch, name="dask-watch", daemon=True).start()

    def submit(self, name: str, task: Task[Any], given: tuple[Any, ...], folder: Path) -> Future[Ran]:
        """Run the task on any worker; ``TypeError`` and the like where it cannot be pickled."""
        ours: Future[Ran] = Future()
        ours.set_running_or_notify_cancel()
        with self._guard:
            self._waiting.add(ours)
        theirs = self._client.submit(
            _attempted,
            self._run,
            code_version(),
            folder,
            pickle.dumps((task, given)),
            key=f"{name}-{self._run}",
            pure=False,
            retries=_RETRIES,
        )
        theirs.add_done_callback(lambda done: self._pass_on(done, ours, task, folder))
        return ours

    def halt(self) -> None:
        """Wait for no task any longer: the cluster forgets those that have not begun, and what the others make."""
        for ours in tuple(self._waiting):
            self._end(ours, Halted())

    def close(self) -> None:
        """End the run on the workers, which close what they hold; the cluster stays."""
        if self._over.is_set():
            return
        self._over.set()
        with suppress(OSError):  # the cluster has ended before
            self._client.unregister_worker_plugin(self._run)
        self._client.close()

    def _watch(self) -> None:
        """Fail what waits while the cluster has no worker, for which Dask would wait for ever."""
        without_s = 0.0
        while not self._over.wait(_LOOK_S):
            has_workers = False
            with suppress(OSError, TimeoutError):  # the scheduler has ended
                has_workers = bool(self._client.nthreads())
            without_s = 0.0 if has_workers else without_s + _LOOK_S
            if without_s > _WITHOUT_WORKERS_S:
                for ours in tuple(self._waiting):
                    self._end(ours, WorkerError(f"the Dask cluster at {self._address} has no workers any longer"))

    def _end(self, ours: Future[Ran], end: Ran | BaseException) -> None:
        """Give our future its end, the first one that comes."""
        with self._guard:
            if ours not in self._waiting:
                return
            self._waiting.discard(ours)
        if isinstance(end, Ran):
            ours.set_result(end)
        else:
            ours.set_exception(end)

    def _pass_on(self, theirs: distributed.Future, ours: Future[Ran], task: Task[Any], folder: Path) -> None:
        """Let our future end as theirs has."""
        try:
            end = pickle.loads(theirs.result())
        except distributed.KilledWorker:
            error = f"{task.title}: the workers it ran on died, {_RETRIES + 1} times; is there enough memory?"
            self._end(ours, WorkerError(error))
        except BaseException as error:  # noqa: BLE001 - the cluster's or the connection's
            self._end(ours, WorkerError(f"{task.title}: Dask failed: {type(error).__name__}: {error}"))
        else:
            if isinstance(end, _Failure):
                self._end(ours, end.error())
            elif not end.folder.is_dir():
                self._end(ours, _not_shared(folder, "this process", "what a worker wrote below it"))
            else:
                self._end(ours, end)


class _Live(distributed.WorkerPlugin):  # type: ignore[misc]
    """The resources of one worker process for one run."""

    def setup(self, worker: distributed.Worker) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=worker.local_directory, ignore_cleanup_errors=True)
        self.resources = Resources(Path(self._folder.name))

    def teardown(self, worker: distributed.Worker) -> None:
        with self._folder:
            self.resources.close()


@dataclass(frozen=True, slots=True)
class _Parts:
    """An exception that is not made again from its arguments alone, as pickle would."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    state: Mapping[str, Any]

    def made(self) -> BaseException:
        error = self.kind.__new__(self.kind, *self.args)
        error.__dict__.update(self.state)
        return error


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error of a task, and where it was raised."""

    what: BaseException | _Parts
    trace: str

    def error(self) -> BaseException:
        """The error, with where it was raised as a note."""
        error = self.what.made() if isinstance(self.what, _Parts) else self.what
        error.add_note(self.trace)
        return error


def _attempted(run: str, version: str, folder: Path, sent: bytes) -> bytes:
    """Run a pickled task on a worker, and pickle its end; what Dask takes for an error, it would try again."""
    try:
        return pickle.dumps(_attempt(run, version, folder, sent))
    except Exception as error:  # noqa: BLE001 - raised where the result is asked for
        return pickle.dumps(_failure(error))


def _attempt(run: str, version: str, folder: Path, sent: bytes) -> Ran:
    worker = distributed.get_worker()
    if code_version() != version:
        raise UsageError(
            f"the worker {worker.address} has another convertkit or other libraries; install the same on all"
        )
    if not folder.is_dir():
        raise _not_shared(folder, f"the worker {worker.address}", "it")
    attempt = folder / secrets.token_hex(6)
    attempt.mkdir()
    task, given = pickle.loads(sent)
    began = time.perf_counter()
    value = task.run(given, Context(attempt, Silent(), worker.plugins[run].resources))
    return Ran(value, attempt, time.perf_counter() - began)


def _failure(error: Exception) -> _Failure:
    """What arrives as this error does, else as one that says the same."""
    trace = f"on a worker, process {os.getpid()}:\n{''.join(traceback.format_exception(error))}"
    for what in (error, _Parts(type(error), error.args, error.__dict__)):
        with suppress(Exception):  # pickle raises what it likes
            sent = _Failure(what, trace)
            if str(pickle.loads(pickle.dumps(sent)).error()) == str(error):
                return sent
    return _Failure(ToolError(f"{type(error).__name__}: {error}"), trace)


def _not_shared(folder: Path, who: str, what: str) -> UsageError:
    return UsageError(f"{who} does not see {what}: {folder} must be on a file system that all workers share")
