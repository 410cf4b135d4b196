"""Tasks that tests run, also in other processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.tasks.task import Context, Task

RUNS: list[str] = []
"""Names of the tasks that ran in this process, in order."""


@dataclass(frozen=True, slots=True)
class Note:
    """A result: who made it of what, and a file that says the same."""

    text: str
    file: Path | None = None
    array: np.ndarray[Any, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Say(Task[Note]):
    """Puts its name around what it is given, in text, a file and an array; ``option`` decides, too."""

    name: str
    needs: tuple[Task[Any], ...] = ()
    option: str = ""
    bytes_held: int = 0
    alone: bool = False
    is_keyed: bool = True
    keeps: type[Any] | None = Note
    seconds: float = 0.0
    fails: BaseException | None = None
    gate: threading.Event | None = field(default=None)
    """What the run waits for."""

    @property
    def title(self) -> str:
        return f"say {self.name}"

    def decides(self) -> Mapping[str, object] | None:
        return {"name": self.name, "option": self.option} if self.is_keyed else None

    def memory(self, given: tuple[Any, ...]) -> int:
        return self.bytes_held

    def run(self, given: tuple[Any, ...], context: Context) -> Note:
        RUNS.append(self.name)
        if self.gate is not None:
            assert self.gate.wait(20)
        time.sleep(self.seconds)
        if self.fails is not None:
            raise self.fails
        for each in given:
            assert each.file is None or each.file.read_text() == each.text
        text = f"{self.name}{self.option}({','.join(each.text for each in given)})"
        file = context.folder / "said.txt"
        file.write_text(text)
        return Note(text, file, np.frombuffer(text.encode(), np.uint8).astype(np.float32))
