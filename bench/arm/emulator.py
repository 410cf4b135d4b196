"""Counts what a TFLite file executes on a core, under QEMU's user emulation with the plugin ``blocks.c``.

It needs ``qemu-aarch64`` (or ``qemu-x86_64``) of QEMU 7 with plugins, ``cc``, and the folder that
$CONVERTKIT_DEVICE_ROOT names: a root with Python and LiteRT's wheel for the core's architecture.  The page
docs/measurements/device-costs.md says how to make them.  Addresses, hashes and inputs are fixed, so that two runs give
the same counts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from arm.cores import LEVELS, Core

_HERE = Path(__file__).parent
_MARKER = {"aarch64": 173, "x86_64": 110}
"""The number of the system call getppid."""
ROOT = "CONVERTKIT_DEVICE_ROOT"


@dataclass(frozen=True, slots=True)
class Counts:
    """One call of a file: executions of each block behind each other, and lines that caches lacked.

    A block is its instructions in hexadecimal, and behind nothing an empty text.
    """

    pairs: dict[tuple[str, str], float]
    misses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Segment:
    pairs: dict[tuple[int, int], int]
    misses: tuple[int, ...]


def needed(name: str) -> str:
    """The path of a program; ends in one sentence where it is missing."""
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed: see 'What it needs' in docs/measurements/device-costs.md")
    return found


def counted(paths: Sequence[Path], core: Core, calls: int = 2, kernels: str = "xnnpack") -> tuple[list[Counts], str]:
    """One call of each file, as the difference of one call and ``calls``; and what the emulated program printed.

    Where ``calls`` is 1, what the interpreter does for a call is in it.  ``kernels`` are ``xnnpack`` or, as the runtime
    has them without a delegate, ``builtin``.
    """
    given = os.environ.get(ROOT)
    if not given:
        raise SystemExit(f"${ROOT} names no folder: see 'What it needs' in docs/measurements/device-costs.md")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").write_text("".join(f"{path.resolve()}\n" for path in paths))
        printed = _run(core, Path(given).resolve(), folder, calls, kernels)
        blocks: dict[int, str] = {}
        segments = list(_segments(folder / "counts", blocks))
    # Segments of a file: one call, what is between, and several calls.
    step = _marks(calls) - 1
    if len(segments) < step * len(paths):
        raise SystemExit(f"the emulated program stopped after {printed.count(chr(10))} files: {printed[-400:]}")
    own = range(0, step * len(paths), step)
    if calls == 1:
        nothing = _Segment({}, (0,) * 2 * LEVELS)
        return [_difference(nothing, segments[place], 1, blocks) for place in own], printed
    return [_difference(segments[place], segments[place + 2], calls - 1, blocks) for place in own], printed


def _marks(calls: int) -> int:
    """Before and behind one call, and before and behind several."""
    return 4 if calls > 1 else 2


def _run(core: Core, root: Path, folder: Path, calls: int, kernels: str) -> str:
    plugin = folder / "blocks.so"
    subprocess.run(
        [needed("cc"), "-O2", "-shared", "-fPIC", "-o", str(plugin), str(_HERE / "blocks.c")], check=True, text=True
    )
    caches = [f"cache{level + 1}={size}:{ways}" for level, (size, ways) in enumerate(core.caches)]
    arguments = [f"out={folder / 'counts'}", f"marker={_MARKER[core.architecture]}", f"marks={_marks(calls)}"]
    arguments += caches
    own = {"PYTHONHASHSEED": "0", "PYTHONPATH": f"{root}/opt/sp"}
    own |= {"PYTHONHOME": f"{root}/usr", "LD_LIBRARY_PATH": ""} if core.architecture == "aarch64" else {}
    prefix = _prefix(core, root, folder) if core.architecture == "aarch64" else None
    python = root / "usr" / "bin" / "python3.11"
    command = [needed("setarch"), "-R", needed(f"qemu-{core.architecture}"), "-cpu", core.emulated]
    command += ["-L", str(prefix)] if prefix else []
    command += ["-plugin", ",".join((str(plugin), *arguments))]
    for key, value in own.items():
        command += ["-E", f"{key}={value}"]
    command += [str(python), str(_HERE / "calls.py"), str(folder / "files"), str(calls), kernels]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the emulated program failed ({done.returncode}): {done.stderr[-600:]}")
    return done.stdout


def _prefix(core: Core, root: Path, folder: Path) -> Path:
    """The root as the emulator shows it to the program, with what Linux says of the core."""
    prefix = folder / "root"
    (prefix / "proc").mkdir(parents=True)
    for each in root.iterdir():
        if each.name != "proc":
            (prefix / each.name).symlink_to(each)
    (prefix / "proc" / "cpuinfo").write_text(core.cpuinfo())
    return prefix


def _segments(path: Path, blocks: dict[int, str]) -> Iterator[_Segment]:
    """What the plugin wrote; ``blocks`` gets their instructions by number.  A line cut off at the end is left out."""
    found: _Segment | None = None
    with path.open() as lines:
        for line in lines:
            match line.split():
                case ["block", number, _, instructions]:
                    blocks[int(number)] = instructions
                case ["block", *_]:
                    pass  # cut off
                case ["segment", _]:
                    if found is not None:
                        yield found
                    found = None
                case ["misses", *misses]:
                    found = _Segment({}, tuple(map(int, misses)))
                case [before, number, count] if found is not None and number.isdigit():
                    found.pairs[int(before), int(number)] = int(count)
    if found is not None:
        yield found


def _difference(once: _Segment, more: _Segment, calls: int, blocks: dict[int, str]) -> Counts:
    counts: dict[tuple[str, str], float] = {}
    for pair, count in more.pairs.items():
        each = (count - once.pairs.get(pair, 0)) / calls
        if each > 0:
            key = blocks.get(pair[0], ""), blocks[pair[1]]
            counts[key] = counts.get(key, 0.0) + each
    misses = [(after - before) / calls for before, after in zip(once.misses, more.misses, strict=True)]
    assert len(misses) == 2 * LEVELS
    return Counts(counts, tuple(max(each, 0.0) for each in misses))
