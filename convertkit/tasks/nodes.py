"""What a scheduler knows of each task: how far it is, who waits for it, and whose files its result refers to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

from convertkit.tasks.task import Task


class State(Enum):
    """How far a task is."""

    IDLE = auto()
    """Nobody asks for it, or its result was let go."""
    WAITING = auto()
    """It is to run, and does not yet."""
    RUNNING = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(slots=True, eq=False)
class Place:
    """A folder with files, and the tasks whose results refer to them; it goes with the last of these results."""

    folder: Path
    users: set[Node]


@dataclass(slots=True, eq=False)
class Node:
    """A task in a scheduler's graph.

    ``order`` is its place in the order of the code.  ``key`` is None where its result is not to be kept in a store.
    ``users`` are the tasks that wait for its result or run on it.
    """

    task: Task[Any]
    name: str
    key: str | None
    needs: tuple[Node, ...]
    order: int
    state: State = State.IDLE
    value: Any = None
    is_loaded: bool = False
    error: BaseException | None = None
    seconds: float = 0.0
    attempts: int = 0
    was_cached: bool = False
    was_spared: bool = False
    is_asked_for: bool = False
    was_fetched: bool = False
    holds: int = 0
    had_users: bool = False
    users: set[Node] = field(default_factory=set)
    places: tuple[Place, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether it may start."""
        return self.state is State.WAITING and all(need.state is State.DONE for need in self.needs)

    @property
    def is_over(self) -> bool:
        """Whether it has a result or has failed."""
        return self.state in (State.DONE, State.FAILED)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for it."""
        return self.is_asked_for or bool(self.users)

    @property
    def is_spent(self) -> bool:
        """Whether its result is not needed any longer: all that were to use it have, and who asked for it has it."""
        is_awaited = bool(self.users or self.holds) or (self.is_asked_for and not self.was_fetched)
        return self.state is State.DONE and not is_awaited and (self.had_users or not self.is_asked_for)


def below(node: Node) -> Iterator[Node]:
    """The task and all that it needs, each once."""
    seen, waiting = {node}, [node]
    while waiting:
        each = waiting.pop()
        yield each
        for need in each.needs:
            if need not in seen:
                seen.add(need)
                waiting.append(need)
