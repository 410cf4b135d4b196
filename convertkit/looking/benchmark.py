"""``convertkit bench``: how long artifacts take, beside each other and beside what they took before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import GateError, SourceError, UsageError
from convertkit.looking.estimating import Estimated, estimated, operator_table
from convertkit.looking.first_call import in_new_process
from convertkit.looking.opened import opened, size_of
from convertkit.looking.tables import Shown, Table
from convertkit.looking.timing import as_run, node_table, one_feed, prepared, profile, runner_of
from convertkit.operators import NodeTime
from convertkit.stage import Feed
from convertkit.telemetry import without_telemetry
from convertkit.text import size_text
from convertkit.turns import Interval, exactly, in_turns, interval, quantiles_ms, ratio, yardstick

SCHEMA = 1
MAX_RATIO = 1.25
"""How much longer than its baseline an artifact may take: what another hour of the same machine explains."""
_YARD = "\0yardstick"
_AT = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Measured:
    """One artifact: milliseconds of a call at quantiles, of loading and of the first call, bytes on disk and in memory.

    ``relative`` is the time of a call over that of a fixed piece of work, by which other hours are compared.
    ``memory_bytes`` is what a fresh process needs more at its peak, None where the system does not tell.
    """

    name: str
    format: str
    sha256: str
    size_bytes: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    rounds: int
    load_ms: float
    first_ms: float
    memory_bytes: int | None
    relative: Interval
    nodes: tuple[NodeTime, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """An artifact beside another one, or beside its baseline: how much longer a call takes, and what is allowed.

    It fails where the whole interval lies above what is allowed.
    """

    name: str
    beside: str
    ratio: Interval
    allowed: float | None

    @property
    def failed(self) -> bool:
        """Whether it is slower than allowed beyond doubt."""
        return self.allowed is not None and self.ratio.low > self.allowed

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.failed:
            return "TOO SLOW"
        return "slower" if self.ratio.low > 1 else "faster" if self.ratio.high < 1 else "no difference found"


@dataclass(frozen=True, slots=True, repr=False)
class Bench(Shown):
    """What was measured; ``compared`` are the artifacts beside the first, and each beside its baseline.

    With ``device`` nothing is measured: ``estimated`` holds each artifact on each device, and those are compared.
    """

    schema: int
    threads: int | None
    measured: tuple[Measured, ...]
    compared: tuple[Compared, ...]
    estimated: tuple[Estimated, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is slower than allowed."""
        return not any(each.failed for each in self.compared)

    @property
    def failure(self) -> GateError | None:
        """What is too slow, with its exit code."""
        slow = [each for each in self.compared if each.failed]
        if not slow:
            return None
        told = "; ".join(f"{each.name} takes {each.ratio.text} times as long as {each.beside}" for each in slow)
        return GateError(f"{told}; {slow[0].allowed:g} is allowed")

    @property
    def headline(self) -> str:
        """The medians in a line."""
        if self.estimated:
            return "\n".join(f"{each.name}: estimated, {each.device}, {each.ms:.3g} ms" for each in self.estimated)
        return ", ".join(f"{each.name}: {each.p50_ms:.3f} ms" for each in self.measured)

    def tables(self) -> tuple[Table, ...]:
        """Times and sizes, comparisons, and the slowest nodes where there is one artifact."""
        beside = [
            (each.name, each.beside, each.ratio.text, "" if each.allowed is None else f"{each.allowed:g}", each.verdict)
            for each in self.compared
        ]
        if self.estimated:
            times = Table("times as long, estimated", ("", "as", "", "allowed", ""), tuple(beside))
            return times, operator_table(self.estimated)
        rows = [
            (
                each.name,
                *(f"{ms:.3f}" for ms in (each.p50_ms, each.p90_ms, each.p99_ms)),
                f"{each.first_ms:.1f}",
                f"{each.load_ms:.1f}",
                size_text(each.size_bytes),
                "" if each.memory_bytes is None else size_text(each.memory_bytes),
            )
            for each in self.measured
        ]
        head = ("artifact", "median ms", "90 %", "99 %", "first call", "loading", "size", "memory")
        found = [Table("", head, tuple(rows), tuple(range(1, 8)))]
        found.append(Table("times as long (with 99 % confidence)", ("", "as", "", "allowed", ""), tuple(beside)))
        return (*found, *([node_table(self.measured[0].nodes)] if len(self.measured) == 1 else ()))


@without_telemetry()
def bench(
    *artifacts: str | PathLike[str],
    threads: int | None = None,
    seconds: float = 2.0,
    compare: str | PathLike[str] | Mapping[str, Any] | None = None,
    save: str | PathLike[str] | None = None,
    max_ratio: float | None = None,
    device: str | Sequence[str] = (),
) -> Bench:
    """How long a call of each artifact takes, in turns with the others, and what it needs of disk and memory.

    Several are compared with the first: each round times all of them, so that what else the machine does slows all.
    Raises ``UsageError`` for what is neither an ONNX nor a TFLite file.

    Args:
        artifacts: files or delivered folders.
        threads: of the runtime; its own default without it.
        seconds: how long to measure each.
        compare: what ``save`` wrote before: each artifact is compared with the one of its name.
        save: a file for ``compare`` to read later.
        max_ratio: how much longer than the first one, or than its baseline, an artifact may take: 1.25 for a
            baseline, which is of another hour; beside the first nothing is required without it.
        device: devices that are not here, such as ``arm64-a76``: TFLite and ONNX Runtime files are estimated by
            their cost tables and not timed, so that every machine gives the same numbers.

    """
    if not artifacts:
        raise UsageError("bench() needs at least one artifact")
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}, expected at least 1")
    if not 0 < seconds <= 3600:
        raise UsageError(f"seconds is {seconds:g}, expected more than 0 and at most 3600")
    if max_ratio is not None and not max_ratio >= 1:
        raise UsageError(f"max_ratio is {max_ratio:g}, expected at least 1")
    names = [fspath(each) for each in artifacts]
    if len(set(names)) < len(names):
        raise UsageError("the same artifact is named twice; a copy of it can be compared with it")
    if device:
        return _estimated(
            names, (device,) if isinstance(device, str) else tuple(device), max_ratio, threads, compare, save
        )
    before = _baseline(compare) if compare is not None else {}
    measured, times = _measured(names, threads, seconds)
    beside_first = [
        Compared(each.name, names[0], ratio(times[each.name], times[names[0]]), max_ratio) for each in measured[1:]
    ]
    beside_baseline = _beside_baseline(measured, before, MAX_RATIO if max_ratio is None else max_ratio)
    found = Bench(SCHEMA, threads, measured, (*beside_first, *beside_baseline))
    if save is not None:
        from convertkit.report.jsonable import dumps

        Path(save).write_text(dumps(found.as_json()), encoding="utf-8")
    return found


def _estimated(names: list[str], devices: tuple[str, ...], max_ratio: float | None, *measuring: object) -> Bench:
    """Each artifact on each device, beside the first on the same."""
    if any(each is not None for each in measuring):
        raise UsageError("--threads, --save and --compare are about measuring here; --device estimates")
    found = estimated(names, devices)
    first = {each.device: each.ms for each in found if each.name == names[0]}
    beside = [
        Compared(each.name, f"{names[0]} on {each.device}", exactly(each.ms / first[each.device]), max_ratio)
        for each in found
        if each.name != names[0]
    ]
    return Bench(SCHEMA, None, (), tuple(beside), found)


def _measured(names: list[str], threads: int | None, seconds: float) -> tuple[tuple[Measured, ...], dict[str, Any]]:
    with ExitStack() as stack:
        models = {name: stack.enter_context(opened(name)) for name in names}
        runs = {name: as_run(found) for name, found in models.items()}
        feeds = {name: one_feed(artifact) for name, artifact in runs.items()}
        calls: dict[str, Callable[[], object]] = {_YARD: yardstick()}
        for name, artifact in runs.items():
            runner = stack.enter_context(runner_of(artifact, threads))
            calls[name] = prepared(runner, feeds[name])
        times = in_turns(calls, seconds * len(names))
    found = tuple(_one(name, runs[name], feeds[name], times, threads) for name in names)
    return found, times


def _one(name: str, artifact: Artifact, feed: Feed, times: Mapping[str, Any], threads: int | None) -> Measured:
    first = in_new_process(name, threads, feed)
    p50, p90, p99 = quantiles_ms(times[name], _AT)
    return Measured(
        name,
        artifact.format,
        sha256_of(artifact.path),
        size_of(artifact),
        p50,
        p90,
        p99,
        len(times[name]),
        float(first["load_ms"]),
        float(first["first_ms"]),
        first["memory_bytes"],
        interval(times[name] / times[_YARD]),
        profile(artifact, feed),
    )


def _baseline(given: str | PathLike[str] | Mapping[str, Any]) -> Mapping[str, Interval]:
    """The relative times of a file that ``save`` wrote, by the artifacts' names."""
    if isinstance(given, Mapping):
        found: Any = given
    else:
        try:
            found = json.loads(Path(given).expanduser().read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SourceError(f"{fspath(given)} is not a baseline that can be read: {error}") from error
    try:
        told = found.get("bench", found)  # what --json prints holds it, too
        if told["schema"] != SCHEMA:
            raise SourceError(f"the baseline has schema {told['schema']}; this convertkit reads {SCHEMA}")
        return {str(each["name"]): _interval(each["relative"]) for each in told["measured"]}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SourceError("the baseline is not what convertkit bench --save writes") from error


def _interval(told: Mapping[str, Any]) -> Interval:
    found = Interval(*(float(told[key]) for key in ("median", "low", "high")))
    if not 0 < found.low <= found.median <= found.high:
        raise ValueError("not an interval")
    return found


def _beside_baseline(
    measured: tuple[Measured, ...], before: Mapping[str, Interval], allowed: float
) -> tuple[Compared, ...]:
    """Each beside the one of its name, or of the only one beside the only one."""
    if not before:
        return ()
    if len(before) == len(measured) == 1:
        before = {measured[0].name: next(iter(before.values()))}
    if lacking := [each.name for each in measured if each.name not in before]:
        raise UsageError(f"the baseline knows nothing of {lacking[0]}; it has: {', '.join(before)}")
    return tuple(
        Compared(each.name, "its baseline", _over(each.relative, before[each.name]), allowed) for each in measured
    )


def _over(now: Interval, then: Interval) -> Interval:
    """One interval over another: certain only where both are."""
    return Interval(now.median / then.median, now.low / then.high, now.high / then.low)
