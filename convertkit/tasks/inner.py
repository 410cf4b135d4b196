"""Tasks that running tasks come to ask for, since only then is known what they work on; equal ones are one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, TypeVar

from convertkit.tasks.store import Store
from convertkit.tasks.task import Context, Keys, Task

T = TypeVar("T")


@dataclass(slots=True)
class _Slot:
    """One task by its key: who makes it holds ``lock``."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None


class InnerTasks:
    """Runs a task that needs no others in the thread that asks first; others wait, and get the same object.

    Results are kept in the store by the task's key, as those of other tasks are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._slots: dict[str, _Slot] = {}

    def run(self, task: Task[T], context: Context) -> T:
        """The task's result, made now where it is not there yet; nobody may change it.

        ``context`` is that of the task which asks.  One without a key is run each time.
        """
        key = Keys(lasting=self._store.is_shared).of(task)
        if key is None or task.keeps is None:
            return task.run((), context)
        with self._guard:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.value is None:
                slot.value = self._kept(key, task, task.keeps, context)
            value: T = slot.value
            return value

    def _kept(self, key: str, task: Task[T], kind: type[Any], context: Context) -> Any:
        if self._store.contains(key) and (known := self._store.lookup(key, kind)) is not None:
            return known
        folder = self._store.folder(key)
        made = task.run((), Context(folder, context.progress, context.resources, self))
        return self._store.commit(key, folder, made, kind, task.title)
