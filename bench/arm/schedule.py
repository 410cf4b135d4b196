"""Cycles of blocks of instructions by LLVM's schedule of a core: ``llvm-mca``, of walks through those that ran."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from arm.cores import Core
from arm.emulator import Counts, needed
from arm.spills import Spills
from arm.walks import Pair, Walk, walks

_SHOWN = (
    *("-iterations=1", "-skip-unsupported-instructions=any", "-json", "-timeline", "-timeline-max-iterations=1"),
    *("-timeline-max-cycles=0", "-resource-pressure=false", "-instruction-info=false", "-summary-view=false"),
)
_REGIONS = 200
"""Of one start, as all that is printed is in memory."""
_LEAST_SHARE = 0.998
"""Of the instructions: their blocks are looked at, most executed first; the rest takes as long as they do."""
_REPEATED_STEP = 1 / 16
"""Cycles of a step of x86's repeated moves and stores, which the emulator executes as a block each and a processor in
microcode, a line in some cycles; llvm-mca takes 100 for each."""
_LEAVES = re.compile(r"^(bl|blr|br|ret|callq?|retq?|jmpq?)\b.*")
"""llvm-mca takes 100 cycles for a call, which the counts of the blocks tell better."""
_JUMP = {"aarch64": "b #8", "x86_64": "jmp 8"}
_AS_PROCESSORS_DO = (
    (re.compile(r"^pushq\s+(%\w+)$"), r"movq \1, -8(%rsp)"),
    (re.compile(r"^popq\s+(%\w+)$"), r"movq 8(%rsp), \1"),
    (re.compile(r"^endbr64$"), "nop"),
    (re.compile(r"^vpmov[sz]x\w+\s+(.*\)), (%ymm\d+)$"), r"vpbroadcastq \1, \2"),
)
"""Of x86 what llvm-mca tells otherwise.  Processors count the stack's pointer ahead, before anything is scheduled; to
llvm-mca each ``pop`` waits for the load of the one before.  Zen 3 widens what it loads into a long vector twice a
cycle, as it broadcasts (timed in a loop, all widths alike); to llvm-mca each takes 1.5, as from a register."""
_SEPARATOR = {"aarch64": ("0x00 0x00 0x00 0x00", "udf\t#0"), "x86_64": ("0x0f 0x0b", "ud2")}
_BETWEEN = 3
"""Separators in a row; what runs holds none of them, but may hold bytes that LLVM does not know."""
_WIDE = re.compile(r"^(fmla|fmls|fmul|fadd|fsub)\tv\d+\.(4s|2d|8h)")


@dataclass(frozen=True, slots=True)
class Estimate:
    """One call: instructions of all cores, cycles of the pipelines of one, of waiting for memory, and all together."""

    instructions: float
    cycles: float
    waiting: float
    nanoseconds: float


class Schedule:
    """Knows the instructions of the blocks that it was asked for."""

    def __init__(self, core: Core) -> None:
        self._core, self._listing, self._length = core, dict[str, list[str]](), dict[str, int]()

    def estimates(self, counts: Sequence[Counts], threads: int = 1) -> list[Estimate]:
        """Of each file, its work shared evenly by ``threads`` cores."""
        most = [list(_most_executed(each)) for each in counts]
        self._learn(list(dict.fromkeys(block for pairs in most for pair in pairs for block in pair if block)))
        ways = [
            walks(each.pairs, [pair for pair in pairs if not self._alone(pair[1])], self._walked())
            for each, pairs in zip(counts, most, strict=True)
        ]
        times = iter(self._times([walk for each in ways for walk in each]))
        costs = [_means([(walk, next(times)) for walk in each]) for each in ways]
        return [self._estimate(*each, threads) for each in zip(counts, most, costs, strict=True)]

    def _estimate(self, counts: Counts, most: Sequence[Pair], costs: Mapping[Pair, float], threads: int) -> Estimate:
        known = {pair: counts.pairs[pair] for pair in most}
        share = _weight(known) / _weight(counts.pairs) if known else 1.0
        cycles = sum(count * self._cycles(pair, costs) for pair, count in known.items()) / share / threads
        instructions = sum(count * len(self._listing[pair[1]]) for pair, count in known.items()) / share
        waiting = self._core.waiting(counts.misses, threads)
        return Estimate(instructions, cycles, waiting, (cycles + waiting) / self._core.clock_ghz)

    def _cycles(self, pair: Pair, costs: Mapping[Pair, float]) -> float:
        if self._alone(pair[1]):
            return _REPEATED_STEP
        lines = self._listing[pair[1]]
        bound = sum(bool(_WIDE.match(line)) for line in lines) / (self._core.wide_per_cycle or 1e9)
        return max(costs.get(pair, 0.0), bound)

    def _alone(self, block: str) -> bool:
        """Whether it is a step of a repeated move."""
        lines = self._listing[block]
        return len(lines) == 1 and lines[0].startswith("rep")

    def _walked(self) -> dict[str, int]:
        """Instructions of the blocks that a walk may pass."""
        return {block: length for block, length in self._length.items() if length and not self._alone(block)}

    def _learn(self, blocks: Sequence[str]) -> None:
        blocks = [block for block in blocks if block not in self._listing]
        if not blocks:
            return
        listings = list(self._listings(blocks))
        if len(listings) != len(blocks):
            raise SystemExit(f"llvm-mc disassembles {len(listings)} of {len(blocks)} blocks")
        self._listing |= zip(blocks, listings, strict=True)
        retired = self._retired(listings)
        self._length |= {block: len(each) for block, each in zip(blocks, retired, strict=True)}

    def _times(self, ways: Sequence[Walk]) -> list[list[float]]:
        """When the last instruction of each block of each walk was done."""
        told = [self._told(walk) for walk in ways]
        found = self._retired([lines for lines, _ in told])
        for (_, ends), cycles in zip(told, found, strict=True):
            if ends[-1] != len(cycles):
                raise SystemExit(f"llvm-mca tells the cycles of {len(cycles)} of {ends[-1]} instructions")
        return [[float(cycles[end - 1]) for end in ends] for (_, ends), cycles in zip(told, found, strict=True)]

    def _told(self, walk: Walk) -> tuple[list[str], list[int]]:
        """The lines of a walk, and how many instructions are done when each of its blocks is."""
        spills = Spills()
        lines, ends, left_out = list[str](), list[int](), 0
        for block in walk.blocks:
            own = self._listing[block]
            lines += spills.seen(own) if self._core.architecture == "x86_64" else own
            left_out += len(own) - self._length[block]
            ends.append(len(lines) - left_out)
        return lines, ends

    def _retired(self, listings: Sequence[Sequence[str]]) -> list[list[int]]:
        """The cycle in which each instruction is done, but for those that the core has not."""
        found: dict[str, list[int]] = {}
        command = [f"-march={self._core.architecture.replace('_', '-')}", f"-mcpu={self._core.schedule}", *_SHOWN]
        command += ["-mattr=+all"] if self._core.architecture == "aarch64" else []
        for part in range(0, len(listings), _REGIONS):
            regions = [
                "\n".join((f"# LLVM-MCA-BEGIN b{place}", *lines, "# LLVM-MCA-END"))
                for place, lines in enumerate(listings[part : part + _REGIONS], part)
            ]
            told = json.loads(_ran("llvm-mca-19", command, "\n".join(regions)))
            for region in told["CodeRegions"]:
                found[region["Name"]] = [each["CycleRetired"] for each in region["TimelineView"]["TimelineInfo"]]
        return [found.get(f"b{place}", []) for place in range(len(listings))]

    def _listings(self, blocks: Sequence[str]) -> Iterator[list[str]]:
        """The instructions of each block; what LLVM does not know is left out."""
        separator, word = _SEPARATOR[self._core.architecture]
        whole = self._core.architecture == "x86_64"
        parts = [_bytes(block, len(block) // 2 if whole else 4) for block in blocks]
        between = f"\n{chr(10).join([f'[{separator}]'] * _BETWEEN)}\n"
        options = ["--disassemble", f"-triple={self._core.architecture}"]
        options += ["-mcpu=znver4"] if whole else ["-mattr=+all"]
        lines = [line.strip() for line in _ran("llvm-mc-19", options, between.join(parts)).splitlines()]
        lines = [line for line in lines if line and not line.startswith(".")]
        found: list[str] = []
        place = 0
        while place < len(lines):
            if lines[place : place + _BETWEEN] == [word] * _BETWEEN:
                yield found
                found, place = [], place + _BETWEEN
            else:
                found.append(_scheduled(lines[place], self._core.architecture))
                place += 1
        yield found


def _scheduled(line: str, architecture: str) -> str:
    """An instruction as llvm-mca is told it."""
    line = _LEAVES.sub(_JUMP[architecture], line)
    for found, instead in _AS_PROCESSORS_DO if architecture == "x86_64" else ():
        line = found.sub(instead, line)
    return line


def _weight(pairs: Mapping[Pair, float]) -> float:
    return sum(count * len(block) for (_, block), count in pairs.items())


def _most_executed(counts: Counts) -> Iterator[Pair]:
    ordered = sorted(counts.pairs, key=lambda pair: -counts.pairs[pair] * len(pair[1]))
    whole, seen = _weight(counts.pairs), 0.0
    for pair in ordered:
        if seen > _LEAST_SHARE * whole:
            return
        seen += counts.pairs[pair] * len(pair[1])
        yield pair


def _means(timed: Sequence[tuple[Walk, Sequence[float]]]) -> dict[Pair, float]:
    """Cycles from the end of a block to the end of the next, by what both are."""
    found: dict[Pair, list[float]] = {}
    for walk, times in timed:
        for place, pair in walk.pairs():
            found.setdefault(pair, []).append(times[place] - times[place - 1])
    return {pair: sum(each) / len(each) for pair, each in found.items()}


def _bytes(block: str, each: int) -> str:
    """The bytes as llvm-mc reads them, ``each`` of them in brackets: what one cannot read does not spoil the next."""
    octets = [f"0x{block[place : place + 2]}" for place in range(0, len(block), 2)]
    return " ".join(f"[{' '.join(octets[place : place + each])}]" for place in range(0, len(octets), each))


def _ran(program: str, options: Sequence[str], given: str) -> str:
    done = subprocess.run([needed(program), *options], input=given, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{program} failed: {done.stderr[-400:]}")
    return done.stdout
