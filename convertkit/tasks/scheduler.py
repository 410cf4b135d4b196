"""Runs graphs of tasks: each once, in the order of the code, as many at once as jobs and memory allow."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from convertkit.progress import Progress
from convertkit.tasks.codec import paths_in
from convertkit.tasks.course import Course
from convertkit.tasks.executor import Executor, Ran
from convertkit.tasks.graph import Gone, Graph
from convertkit.tasks.inner import InnerTasks
from convertkit.tasks.nodes import Node, State, below
from convertkit.tasks.resources import Resources
from convertkit.tasks.store import Store
from convertkit.tasks.task import Task

T = TypeVar("T")
_PATIENCE_S = 2.0
"""Behind Ctrl-C: so long may what runs come to its own end, and so long may it take to be halted."""
OnDone = Callable[[Task[Any], bool, float], None]


class Scheduler:
    """Runs submitted tasks and what they need; to be used in a ``with`` statement.

    Tasks start as soon as they are submitted, in the order of submission and of :attr:`Task.needs`: with one job
    everything runs as plain code would.  A result is let go once all that were submitted and need it are done, unless
    :meth:`hold` says otherwise; that of a task which was submitted itself stays until :meth:`result` has returned it,
    and until the end where nothing needs it.  Whoever has made ``store`` and ``resources`` closes them, after this.

    ``memory_bytes`` bounds the sum of :meth:`Task.memory` of what runs; a task that needs more runs while no other does
    that needs any.  ``on_done`` is called with each task, whether its result was in the store, and the seconds it took;
    in the thread that it ran in.
    """

    def __init__(
        self,
        executor: Executor,
        store: Store,
        resources: Resources,
        progress: Progress,
        jobs: int,
        memory_bytes: int,
        on_done: OnDone = lambda task, cached, seconds: None,
    ) -> None:
        self.course = Course(progress)
        self._executor = executor
        self._store = store
        self._progress = progress
        self._jobs = jobs
        self._memory = memory_bytes
        self._on_done = on_done
        self._graph = Graph(store)
        self._running: dict[Node, _Run] = {}
        self._unwatched: deque[_Run] = deque()
        self._submitting = threading.RLock()
        self._changed = threading.Condition()
        self._thread = threading.local()
        self._stopping = False
        self._is_interrupted = False
        executor.start(resources, progress, InnerTasks(store))

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C
            self.interrupt()
        self.close()

    def submit(self, task: Task[Any]) -> None:
        """Have the task run, and everything that it needs, where their results are not in the store."""
        with self._submitting:
            node = self._graph.node(task)
            found: dict[Node, float | None] = {}
            self._graph.look_up(node, found)
            with self._changed:
                node.is_asked_for, node.was_fetched = True, False
                hits = list(self._graph.demand(node, found))
                self._expect()
        for hit in hits:
            self._on_done(hit.task, True, hit.seconds)
        with self._changed:
            self._start()
        self._watch()

    def result(self, task: Task[T]) -> T:
        """The task's result, once it is there; raises what the task, or the first failed one that it needs, raised.

        Raises ``LookupError`` where the result was let go, and ``CancelledError`` where another thread cancels it.
        """
        node = self._registered(task)
        if node.state is State.IDLE and not node.attempts:
            self.submit(task)
        with self._changed:
            if node.state is State.IDLE:
                raise LookupError(f"the result of {task.title} was let go; hold it before that")
            node.holds += 1
            try:
                value = self._awaited(node)
                node.was_fetched = True
                return cast(T, value)
            finally:
                node.holds -= 1
                self._graph.let_go(node)

    def run(self, task: Task[T]) -> T:
        """:meth:`submit` and :meth:`result` in one."""
        self.submit(task)
        return self.result(task)

    def _awaited(self, node: Node) -> Any:
        while True:
            self._wait(lambda: node.is_over or node.state is State.IDLE)
            try:
                return self._graph.value(node)
            except Gone:
                self._graph.make_again(node)
                self._changed.notify_all()
                self._start()
                self._watch()

    def hold(self, task: Task[Any]) -> None:
        """Keep the task's result for :meth:`result` and for tasks that are submitted later, until :meth:`release`."""
        node = self._registered(task)
        with self._changed:
            node.holds += 1

    def release(self, task: Task[Any]) -> None:
        """End one :meth:`hold`."""
        node = self._registered(task)
        with self._changed:
            node.holds -= 1
            self._graph.let_go(node)

    def cancel(self, *tasks: Task[Any]) -> None:
        """Take these back: what nobody else needs is not started, and what of it runs is waited for."""
        nodes = [self._registered(task) for task in tasks]
        with self._changed:
            for node in nodes:
                node.is_asked_for = False
                self._graph.unwant(node)
            self._expect()
            self._changed.notify_all()
            affected = [each for node in nodes for each in below(node)]
            self._wait(lambda: not self._waits_for(affected))

    @contextmanager
    def taken_back(self, *tasks: Task[Any]) -> Iterator[None]:
        """:meth:`cancel` these at the end of the block; Ctrl-C anywhere in it ends the run (:meth:`interrupt`)."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C
                self.interrupt()
            raise
        finally:
            self.cancel(*tasks)

    def _waits_for(self, nodes: Iterable[Node]) -> bool:
        """Whether one of these runs still that nobody wants; behind Ctrl-C nothing is waited for."""
        return not self._is_interrupted and any(each in self._running and not each.is_wanted for each in nodes)

    def was_cached(self, task: Task[Any]) -> bool:
        """Whether the task did not run because its result, or that of what needs it, was in the store."""
        node = self._registered(task)
        return node.was_cached or (node.was_spared and not node.attempts)

    def seconds(self, task: Task[Any]) -> float:
        """How long the task ran or, where it did not, how long it took to look its result up."""
        return self._registered(task).seconds

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is started: it is closed, or Ctrl-C was pressed."""
        return self._stopping

    def interrupt(self) -> None:
        """End as Ctrl-C does: nothing new is started, and what runs is waited for a moment only.

        It may come to its own end, then is halted, then is left to itself: a call into a library may take minutes.
        """
        with self._changed:
            self._stopping = True
            self._watch()
            if not self._changed.wait_for(lambda: not self._running, _PATIENCE_S):
                self._executor.halt()
                self._changed.wait_for(lambda: not self._running, _PATIENCE_S)
            self._is_interrupted = True
            self._changed.notify_all()

    def close(self) -> None:
        """Start nothing new, wait for what runs, and end the executor; after Ctrl-C nothing is waited for."""
        self._drain()
        self._executor.close()

    def _registered(self, task: Task[Any]) -> Node:
        with self._submitting:
            return self._graph.node(task)

    def _expect(self) -> None:
        """Have the course know what is to run."""
        self.course.waiting({node: node.task.title for node in self._graph.waiting})

    def _start(self) -> None:
        """Start what may start now; :meth:`_watch` is to follow, without the lock."""
        while self._start_ready():
            pass

    def _start_ready(self) -> bool:
        """Whether this is to be done again: a result had vanished, and more waits now."""
        held_up = False
        for node in sorted(self._graph.waiting, key=lambda each: each.order):
            if self._stopping or len(self._running) >= self._jobs or any(each.task.alone for each in self._running):
                break
            if not node.is_ready or (node.task.alone and self._running):
                continue
            try:
                given = tuple(self._graph.value(need) for need in node.needs)
                memory = node.task.memory(given)
                used = sum(run.memory for run in self._running.values())
                if memory and used and (held_up or used + memory > self._memory):
                    held_up = True  # what comes later does not overtake it
                    continue
                self._run(node, given, memory)
            except Gone as gone:
                self._graph.make_again(gone.node)
                self._changed.notify_all()
                return True
            except Exception as error:  # noqa: BLE001 - the task's own, told where its result is asked for
                self._graph.fail(node, error)
        return False

    def _run(self, node: Node, given: tuple[Any, ...], memory: int) -> None:
        folder = self._store.folder(node.name)
        self._progress.status(node.task.title)
        node.attempts += 1
        self._running[node] = run = _Run(node, memory, folder)  # known before it begins: Ctrl-C may come between
        try:
            run.future = self._executor.submit(f"{node.name}-{node.attempts}", node.task, given, folder)
        except Exception:
            del self._running[node]
            raise
        node.state = State.RUNNING
        self._graph.waiting.discard(node)
        self.course.starts(node, node.task.title)
        self._unwatched.append(run)

    def _watch(self) -> None:
        """Have :meth:`_finished` called for what was started; not where that calls this, to which the loop returns."""
        if getattr(self._thread, "is_watching", False):
            return
        self._thread.is_watching = True
        try:
            while True:
                try:
                    run = self._unwatched[0]
                except IndexError:  # another thread may have taken the last one
                    return
                run.future.add_done_callback(partial(self._finished, run))  # at once where it is done already
                with suppress(ValueError):
                    self._unwatched.remove(run)
        finally:
            self._thread.is_watching = False

    def _finished(self, run: _Run, future: Future[Ran]) -> None:
        """Keep the result; in the thread that the task ran in."""
        with self._changed:
            if run.is_claimed or self._is_interrupted:
                return
            run.is_claimed = True
        node = run.node
        try:
            ran = future.result()
            value = ran.value
            if node.key is not None and node.task.keeps is not None:
                value = self._store.commit(node.key, ran.folder, value, node.task.keeps, node.task.title)
            paths = tuple(paths_in(value))
            self._on_done(node.task, False, ran.seconds)
        except BaseException as error:  # noqa: BLE001 - the task's own, raised where its result is asked for
            self._failed(run, error)
            return
        self.course.ends(node)
        with self._changed:
            del self._running[node]
            node.state, node.value, node.is_loaded, node.seconds = State.DONE, value, True, ran.seconds
            self._graph.note_places(node, ran.folder, paths)
            self._graph.leave_needs(node)
            self._graph.let_go(node)
            self._start()
            self._changed.notify_all()
        self._watch()

    def _failed(self, run: _Run, error: BaseException) -> None:
        self.course.ends(run.node)
        with self._changed:
            del self._running[run.node]
            self._store.drop(run.folder)
            if run.node.attempts == 1 and self._store.gives_up(error):
                run.node.state = State.WAITING
                self._graph.waiting.add(run.node)
            else:
                self._graph.fail(run.node, error)
            self._start()
            self._changed.notify_all()
        self._watch()

    def _wait(self, is_over: Callable[[], bool]) -> None:
        try:
            while not is_over():
                if self._stopping:
                    raise RuntimeError("the scheduler was closed")
                self._changed.wait()
        except Exception:
            self._drain()
            raise
        except BaseException:  # Ctrl-C
            self.interrupt()
            raise

    def _drain(self) -> None:
        with self._changed:
            self._stopping = True
            self._watch()
            while self._running and not self._is_interrupted:
                self._changed.wait()
            self._changed.notify_all()


@dataclass(slots=True, eq=False, repr=False)
class _Run:
    """One attempt at a task; ``is_claimed`` once its end is seen to, which two threads may come to do.

    It has no text of its own: a deque asks for that where it does not find a run, and the graph's would take minutes.
    """

    node: Node
    memory: int
    folder: Path
    future: Future[Ran] = field(init=False)
    is_claimed: bool = False
