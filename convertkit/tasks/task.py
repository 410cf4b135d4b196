"""What a task is, and the key by which equal tasks are one."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from convertkit.progress import Progress
from convertkit.tasks.resources import Resources
from convertkit.tasks.versions import code_version

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Sharing(Protocol):
    """Runs what the tasks of one run come to ask for, each once."""

    def run(self, task: Task[T], context: Context) -> T:
        """The task's result; ``context`` is that of the task which asks."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a running task works with.

    ``folder`` is new, empty and the task's own: files that its result refers to stay there, and nobody changes them
    afterwards.
    """

    folder: Path
    progress: Progress
    resources: Resources
    inner: Sharing | None = None
    """Where tasks of one run share what they come to ask for; None where each has its own."""

    def once(self, task: Task[T]) -> T:
        """The result of a task that needs no others, made now or by whoever has asked for the same before."""
        return task.run((), self) if self.inner is None else self.inner.run(task, self)


class Task(ABC, Generic[T_co]):
    """A pure step of work: the same needs and the same decisions give the same result.

    Concrete tasks are frozen, slotted dataclasses with ``eq=False`` that can be pickled.  Two tasks are one where their
    keys are the same; a task without a key is only ever itself, so what it is given to must get the same object.
    """

    __slots__ = ()

    alone: bool = False
    """Runs while nothing else does: its result is a time."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What progress shows: ``quantize``, ``compile tflite``."""

    @property
    @abstractmethod
    def needs(self) -> tuple[Task[Any], ...]:
        """The tasks whose results :meth:`run` is given, in this order; the same objects each time."""

    @abstractmethod
    def decides(self) -> Mapping[str, object] | None:
        """All that decides the result beside the results of :attr:`needs`, as JSON would hold it.

        None where that cannot be said (the user's own code) or the result is not a value (a time): such a result, and
        all that is made of it, is never looked up in a store.
        """

    @property
    @abstractmethod
    def keeps(self) -> type[Any] | None:
        """The class of the result, by whose hints a store reads it; None where it stays in memory."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Imported packages, beside that of the task's own class, whose code decides the result: of plugins."""
        return ()

    def memory(self, given: tuple[Any, ...]) -> int:
        """Bytes that the run holds at its peak, an estimate; 0 where that is not worth counting."""
        return 0

    def restored(self, result: Any) -> Any:
        """A stored result of an equal task as this one would have made it: what it reads may lie elsewhere."""
        return result

    @abstractmethod
    def run(self, given: tuple[Any, ...], context: Context) -> T_co:
        """Make the result of the results of :attr:`needs`."""


class Keys:
    """The keys of many tasks, each computed once; it holds the tasks, so that none takes another's place.

    Keys that are not ``lasting`` leave out the version of the code, which is the same as long as one process runs.
    """

    __slots__ = ("_known", "_lasting")

    def __init__(self, *, lasting: bool = True) -> None:
        self._lasting = lasting
        self._known: dict[int, tuple[Task[Any], str | None]] = {}

    def of(self, task: Task[Any]) -> str | None:
        """The task's key; None where it, or a task that it needs, has nothing that decides its result."""
        if id(task) not in self._known:
            self._known[id(task)] = (task, self._made(task))
        return self._known[id(task)][1]

    def _made(self, task: Task[Any]) -> str | None:
        decides = task.decides()
        needs = [self.of(each) for each in task.needs]
        if decides is None or None in needs:
            return None
        kind = type(task)
        packages = dict.fromkeys((kind.__module__.partition(".")[0], *task.packages)) if self._lasting else ()
        code = [code_version(package) for package in packages]
        said = [kind.__module__, kind.__qualname__, code, decides, needs]
        try:
            text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        except TypeError as error:
            raise TypeError(f"{kind.__qualname__}.decides() holds what JSON does not: {error}") from error
        return hashlib.sha256(text.encode()).hexdigest()


def key(task: Task[Any]) -> str | None:
    """Sha256 of the task's class, its code, what decides its result and the keys of what it needs.

    None where the result may not be looked up in a store; a scheduler gives such a task a name of its own.
    """
    return Keys().of(task)
