"""``--log-json``: what a command tells while it happens, one JSON object a line, as ``event_log.schema.json`` says."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

from convertkit import __version__

if TYPE_CHECKING:
    from types import TracebackType

    from convertkit.records import StepRecord

T = TypeVar("T")
SCHEMA = 1
_EVERY_S = 1.0
"""Between two objects on one stage: more of them would tell nothing new."""


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) that every line of ``--log-json`` fulfils."""
    text = resources.files("convertkit").joinpath("event_log.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


class EventLog:
    """Progress as lines of JSON on stderr; ``quiet`` leaves only how it ends.

    stderr is written through a descriptor of its own, so that what keeps native code silent does not hide a line.
    """

    def __init__(self, command: str, *, quiet: bool = False) -> None:
        self._stream = _own_stderr()
        self._guard = threading.Lock()
        self._quiet = quiet
        self._share: float | None = None
        self._left_s: float | None = None
        self._told_at: dict[str, float] = {}
        self.tell("start", command=command, convertkit=__version__)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def tell(self, event: str, **what: object) -> None:
        """Write one object."""
        if self._quiet and event != "end":
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"schema": SCHEMA, "time": now, "event": event, **what}, ensure_ascii=False)
        with self._guard:
            print(line, file=self._stream, flush=True)

    def status(self, title: str) -> None:
        """A stage begins."""
        self.tell("stage", stage=title, **self._whole())

    def overall(self, share: float, left_s: float | None) -> None:
        """How far the whole is; objects on stages say it."""
        self._share, self._left_s = share, left_s
        if self._is_time(""):
            self.tell("progress", stage=None, done=None, total=None, **self._whole())

    def track(self, items: Iterable[T], total: int | None, title: str) -> Iterator[T]:
        """Tell how many of a stage's items are done."""
        done = 0
        for done, item in enumerate(items, 1):
            yield item
            if done == total or self._is_time(title):
                self.tell("progress", stage=title, done=done, total=total, **self._whole())

    def warn(self, warning: str) -> None:
        """What the user may want to stop the work for."""
        self.tell("warning", message=warning)

    def step(self, target: str, step: StepRecord) -> None:
        """A step of an export is made and verified, or not verified."""
        from convertkit.formatting import parity_text

        told = dict.fromkeys((*step.versus_previous.warnings, *step.versus_source.warnings))
        self.tell(
            "step",
            target=target,
            stage=step.stage,
            passed=step.passed,
            cached=step.cached,
            seconds=step.seconds,
            size_bytes=step.size_bytes,
            parity=parity_text(step.versus_previous),
            warnings=list(told),
        )

    def say(self, line: str, *, failed: bool = False, of: Mapping[str, object] | None = None) -> None:
        """Something is done or has failed: a cell of a release."""
        self.tell("cell", passed=not failed, message=line, **(of or {}))

    def _whole(self) -> dict[str, object]:
        left = self._left_s
        share = None if self._share is None else round(self._share, 4)
        return {"share": share, "left_s": None if left is None else round(left, 1)}

    def _is_time(self, title: str) -> bool:
        now = time.monotonic()
        if now - self._told_at.get(title, -_EVERY_S) < _EVERY_S:
            return False
        self._told_at[title] = now
        return True


def _own_stderr() -> TextIO:
    """Stderr where nobody else turns it elsewhere; as it is where it is not a file of the system."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError):
        return sys.stderr
