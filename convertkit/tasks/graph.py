"""The tasks that were submitted and what they need: which of them wait, which have a result, and when that may go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from convertkit.tasks.nodes import Node, Place, State, below
from convertkit.tasks.store import Store
from convertkit.tasks.task import Keys, Task


class Graph:
    """What a scheduler knows of its tasks; it starts none of them.

    Whoever calls it sees to it that one thread at a time does.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys = Keys(lasting=store.is_shared)
        self._nodes: dict[str, Node] = {}
        self._named: dict[int, Node] = {}
        self._places: dict[Path, Place] = {}
        self.waiting: set[Node] = set()
        """The tasks that are to run and do not yet."""

    def node(self, task: Task[Any]) -> Node:
        """The task's node; those of what it needs come before it in the order."""
        if id(task) not in self._named:
            key = self._keys.of(task)  # holds the task, so that its id is not another's
            needs = tuple(self.node(need) for need in task.needs)
            name = key or f"{len(self._nodes)}-without-a-key"
            kept = key if task.keeps is not None else None
            self._named[id(task)] = self._nodes.setdefault(name, Node(task, name, kept, needs, len(self._nodes)))
        return self._named[id(task)]

    def look_up(self, node: Node, found: dict[Node, float | None]) -> None:
        """Ask the store for the task, and only where it has no result for what it needs; seconds where it has one."""
        if node in found or node.state is not State.IDLE:
            return
        began = time.perf_counter()
        hit = node.key is not None and self._store.contains(node.key)
        found[node] = time.perf_counter() - began if hit else None
        if not hit:
            for need in node.needs:
                self.look_up(need, found)

    def demand(self, node: Node, found: dict[Node, float | None]) -> Iterator[Node]:
        """Have the task wait for its turn, and what it needs, too; yields those whose results are in the store."""
        if node.state is not State.IDLE:
            return
        seconds = found.get(node)
        if seconds is not None:
            node.state, node.was_cached, node.seconds = State.DONE, True, seconds
            for each in below(node):
                each.was_spared = True
            yield node
            return
        node.state = State.WAITING
        self.waiting.add(node)
        for need in node.needs:
            yield from self.demand(need, found)
            need.users.add(node)
            need.had_users = True
        failed = next((need for need in node.needs if need.error is not None), None)
        if failed is not None:
            self.fail(node, failed.error)

    def fail(self, node: Node, error: BaseException | None) -> None:
        """The task and all that wait for it have failed."""
        node.state, node.error = State.FAILED, error
        self.waiting.discard(node)
        for user in tuple(node.users):
            self.fail(user, error)
        self.leave_needs(node)

    def leave_needs(self, node: Node) -> None:
        """The task needs nothing any longer."""
        for need in node.needs:
            need.users.discard(node)
            self.unwant(need)

    def unwant(self, node: Node) -> None:
        """Take a task back, or let its result go, where nobody wants it."""
        if node.state is State.WAITING and not node.is_wanted:
            node.state = State.IDLE
            self.waiting.discard(node)
            self.leave_needs(node)
        self.let_go(node)

    def let_go(self, node: Node) -> None:
        """Drop a result that nobody needs any longer, and the folders that only it refers to."""
        if not node.is_spent:
            return
        node.value, node.is_loaded = None, False
        if node.key is None or not self._store.holds(node.key):
            node.state = State.IDLE
        places, node.places = node.places, ()
        for place in places:
            place.users.discard(node)
            if not place.users:
                del self._places[place.folder]
                self._store.drop(place.folder)

    def note_places(self, node: Node, folder: Path, paths: tuple[Path, ...]) -> None:
        """Keep the folders that a result refers to as long as the result, its own and others'."""
        if folder.exists():  # else its files have moved into the store
            self._places[folder] = Place(folder, set())
        above = {folder, *paths, *(parent for path in paths for parent in path.parents)}
        node.places = tuple(self._places[each] for each in above if each in self._places)
        for place in node.places:
            place.users.add(node)

    def value(self, node: Node) -> Any:
        """The result of a task that is over; else raises its error, ``CancelledError`` or :class:`Gone`."""
        if node.error is not None:
            raise node.error
        if node.state is not State.DONE:
            raise CancelledError(node.task.title)
        if not node.is_loaded and node.key is not None and node.task.keeps is not None:
            node.value = self._store.lookup(node.key, node.task.keeps)
            node.is_loaded = node.value is not None
            if not node.is_loaded:
                raise Gone(node)
            node.value = node.task.restored(node.value)
        return node.value

    def make_again(self, node: Node) -> None:
        """Run a task whose result has vanished from the store."""
        found: dict[Node, float | None] = {node: None}
        for need in node.needs:
            self.look_up(need, found)
        node.state = State.IDLE
        for _ in self.demand(node, found):
            pass


class Gone(Exception):
    """A result that was in the store is not there any longer."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.name)
        self.node = node
