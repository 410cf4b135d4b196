"""Which tests are slow: ``make test-AREA`` leaves them out, so that an area takes less than a minute.

python tests/slow_tests.py RESULTS.xml …     writes tests/slow.txt from what ``pytest --junitxml`` measured
python tests/slow_tests.py --grids RESULTS.xml …     writes tests/grids.txt from what a run of all tests measured
python tests/slow_tests.py --daily RESULTS.xml …     adds to tests/grids.txt what ``make test`` measured as too long

Of each area of the Makefile the longest functions are slow until the others take 50 seconds of one core.  Of a test
with many parameters that takes long, ``make test`` runs every n-th, ``make nightly`` the others.  Of a file that
takes long, ``make test`` leaves the longest functions to ``make nightly``, but for those that a row of
tests/grids.txt keeps.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from math import ceil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "slow.txt"
GRIDS = ROOT / "tests" / "grids.txt"
SECONDS_OF_AN_AREA = 50.0
SECONDS_OF_A_GRID, SHARE_OF_A_GRID = 10.0, 0.15
SECONDS_OF_A_FILE, SHARE_OF_A_FILE = 8.0, 0.2
NIGHTLY, DAILY = 0, 1
_HEAD_OF_GRIDS = (
    "# Of these tests make test runs every n-th parameter, beginning with the one behind it, make nightly the others.\n"
    "# 0 leaves all of a function to make nightly; 1, written by hand, keeps all of it in make test.\n"
    "# Written by tests/slow_tests.py --grids and --daily.\n"
)
_HEAD = (
    "# Slow tests and their seconds, written by tests/slow_tests.py: left out of make test-AREA, run by make test.\n"
)


def areas() -> dict[str, tuple[str, ...]]:
    """Each area of the Makefile with the folders and files of its tests."""
    found = re.findall(r"^AREA_([\w-]+) := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {name: tuple(places.replace("$(wildcard tests/test_*.py)", "tests/test_").split()) for name, places in found}


def shares() -> dict[str, tuple[int, int]]:
    """Of each function of which ``make test`` runs a share: run every how manieth, beginning where."""
    rows = [line.split() for line in GRIDS.read_text().splitlines() if not line.startswith("#")]
    return {name: (int(step), int(first)) for name, step, first in rows}


def left_to_nightly(nodes: Iterable[str], step_of: dict[str, tuple[int, int]]) -> frozenset[str]:
    """Of the ids of tests, in order, those that ``make test`` leaves out; of a share, at least one is left in."""
    families: dict[str, list[str]] = {}
    for node in nodes:
        families.setdefault(node.partition("[")[0], []).append(node)
    found: set[str] = set()
    for name, (step, first) in step_of.items():
        family = families.get(name, [])
        daily = family[min(first, len(family) - 1) :: step] if family and step != NIGHTLY else ()
        found.update(set(family) - set(daily))
    return frozenset(found)


def listed() -> frozenset[str]:
    """Ids of slow functions, or of whole files."""
    return frozenset(line.split()[0] for line in LIST.read_text().splitlines() if not line.startswith("#"))


def is_slow(node: str, slow: frozenset[str]) -> bool:
    """Whether a test, by pytest's id, is of a slow function or file."""
    function = node.partition("[")[0]
    return function in slow or function.partition("::")[0] in slow


def measured(files: Iterable[Path]) -> Counter[str]:
    """Seconds of each test function, all of its parameters together."""
    return Counter({name: sum(times) for name, times in families(files).items()})  # type: ignore[misc]


def choose(seconds: Counter[str]) -> dict[str, float]:
    """The slow functions of every area, longest first."""
    slow: dict[str, float] = {}
    for places in areas().values():
        own = [(name, time) for name, time in seconds.most_common() if name.startswith(places)]
        rest = sum(time for _, time in own)
        for name, time in own:
            if rest <= SECONDS_OF_AN_AREA:
                break
            slow[name] = time
            rest -= time
    return slow


def families(files: Iterable[Path]) -> dict[str, list[float]]:
    """Seconds of each parameter of each test function."""
    found: dict[str, list[float]] = {}
    for file in files:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            path = case.get("classname", "").replace(".", "/") + ".py"
            name = f"{path}::{case.get('name', '').partition('[')[0]}"
            found.setdefault(name, []).append(float(case.get("time", 0)))
    return found


def choose_grids(times_of: dict[str, list[float]]) -> dict[str, tuple[int, int]]:
    """A share of each function with parameters that takes long: as many as fit, the quickest such share."""
    found = {}
    for name, times in times_of.items():
        total = sum(times)
        step = min(ceil(total / max(SECONDS_OF_A_GRID, SHARE_OF_A_GRID * total)), len(times))
        if step > 1:
            found[name] = _share(times, step)
    return found


def _share(times: list[float], step: int) -> tuple[int, int]:
    return step, min(range(step), key=lambda first: sum(times[first::step]))


def choose_nightly(times_of: dict[str, list[float]], but: frozenset[str]) -> dict[str, tuple[int, int]]:
    """Of every file that takes long its longest functions but some, until the others take little enough.

    Of a function with three parameters and more, one or two stay.
    """
    files: dict[str, list[str]] = {}
    for name in sorted(times_of, key=lambda name: -sum(times_of[name])):
        files.setdefault(name.partition("::")[0], []).append(name)
    found: dict[str, tuple[int, int]] = {}
    for names in files.values():
        rest = sum(sum(times_of[name]) for name in names)
        bound = max(SECONDS_OF_A_FILE, SHARE_OF_A_FILE * rest)
        for name in names:
            times = times_of[name]
            if rest <= bound or sum(times) < 2:
                break
            if name not in but:
                found[name] = step, first = _share(times, ceil(len(times) / 2)) if len(times) > 2 else (NIGHTLY, 0)
                rest -= sum(times) - (sum(times[first::step]) if step else 0)
    return found


def write_grids(option: str, files: list[Path]) -> None:
    """The shares of a run of all tests, or what ``make test`` leaves out besides; rows by hand stay."""
    before = shares()
    by_hand = {name: row for name, row in before.items() if row[0] == DAILY}
    if option == "--grids":
        rows = choose_grids(families(files)) | by_hand
    else:
        rows = before | choose_nightly(families(files), frozenset(before))
    lines = (f"{name} {step} {first}\n" for name, (step, first) in sorted(rows.items()))
    GRIDS.write_text(_HEAD_OF_GRIDS + "".join(lines))


def main() -> None:
    """Write the list; what stands in it for a whole file stays where the file was not measured."""
    if sys.argv[1] in ("--grids", "--daily"):
        write_grids(sys.argv[1], [Path(name) for name in sys.argv[2:]])
        return
    seconds = measured(map(Path, sys.argv[1:]))
    files = {name.partition("::")[0] for name in seconds}
    kept = {name for name in listed() if name.partition("::")[0] not in files} if LIST.exists() else set()
    lines = {f"{name} {time:.0f}" for name, time in choose(seconds).items()} | kept
    LIST.write_text(_HEAD + "".join(f"{line}\n" for line in sorted(lines)))


if __name__ == "__main__":
    main()
