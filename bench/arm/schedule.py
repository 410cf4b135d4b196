"""Cycles of blocks of instructions by LLVM's schedule of a core: ``llvm-mca``, each block as the body of a loop."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arm.cores import Core
from arm.emulator import Counts, needed

_REPEATED = 100
_LEAST_SHARE = 0.998
"""Of the instructions: their blocks are looked at, most executed first; the rest takes as long as they do."""
_REPEATED_STEP = 1 / 16
"""Cycles of a step of x86's repeated moves and stores, which the emulator executes as a block each and a processor in
microcode, a line in some cycles; llvm-mca takes 100 for each."""
_LEAVES = re.compile(r"^(bl|blr|br|ret|callq?|retq?|jmpq?)\b.*")
"""llvm-mca takes 100 cycles for a call, which the counts of the blocks tell better."""
_JUMP = {"aarch64": "b #8", "x86_64": "jmp 8"}
_SEPARATOR = {"aarch64": ("0x00 0x00 0x00 0x00", "udf\t#0"), "x86_64": ("0x0f 0x0b", "ud2")}
_BETWEEN = 3
"""Separators in a row; what runs holds none of them, but may hold bytes that LLVM does not know."""
_WIDE = re.compile(r"^(fmla|fmls|fmul|fadd|fsub)\tv\d+\.(4s|2d|8h)")
_REGION = re.compile(r"Code Region - b(\d+)\n.*?Total Cycles:\s+(\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One call: instructions of all cores, cycles of the pipelines of one, of waiting for memory, and all together."""

    instructions: float
    cycles: float
    waiting: float
    nanoseconds: float


class Schedule:
    """Knows the cycles of the blocks that it was asked for."""

    def __init__(self, core: Core) -> None:
        self._core, self._cycles, self._length = core, dict[str, float](), dict[str, int]()

    def estimates(self, counts: Sequence[Counts], threads: int = 1) -> list[Estimate]:
        """Of each file, its work shared evenly by ``threads`` cores."""
        most: dict[str, None] = {}
        for each in counts:
            most |= dict.fromkeys(_most_executed(each))
        self._learn([block for block in most if block not in self._cycles])
        return [self._estimate(each, threads) for each in counts]

    def _estimate(self, counts: Counts, threads: int) -> Estimate:
        known = {block: count for block, count in counts.blocks.items() if block in self._cycles}
        bytes_known = sum(count * len(block) for block, count in known.items())
        share = bytes_known / max(sum(count * len(block) for block, count in counts.blocks.items()), 1)
        cycles = sum(count * self._cycles[block] for block, count in known.items()) / share / threads
        instructions = sum(count * self._length[block] for block, count in known.items()) / share
        waiting = self._core.waiting(counts.misses, threads)
        return Estimate(instructions, cycles, waiting, (cycles + waiting) / self._core.clock_ghz)

    def _learn(self, blocks: Sequence[str]) -> None:
        if not blocks:
            return
        listings = list(self._listings(blocks))
        if len(listings) != len(blocks):
            raise SystemExit(f"llvm-mc disassembles {len(listings)} of {len(blocks)} blocks")
        regions = [
            "\n".join((f"# LLVM-MCA-BEGIN b{place}", *lines, "# LLVM-MCA-END")) for place, lines in enumerate(listings)
        ]
        command = [f"-march={self._core.architecture.replace('_', '-')}", f"-mcpu={self._core.schedule}", "-mattr=+all"]
        if self._core.architecture != "aarch64":
            del command[-1]
        command += [f"-iterations={_REPEATED}", "-skip-unsupported-instructions=any"]
        printed = _ran("llvm-mca-19", command, "\n".join(regions))
        found = {int(place): int(cycles) / _REPEATED for place, cycles in _REGION.findall(printed)}
        for place, (block, lines) in enumerate(zip(blocks, listings, strict=True)):
            self._length[block] = len(lines)
            bound = sum(bool(_WIDE.match(line)) for line in lines) / (self._core.wide_per_cycle or 1e9)
            repeats = len(lines) == 1 and lines[0].startswith("rep")
            self._cycles[block] = _REPEATED_STEP if repeats else max(found.get(place, 0.0), bound)
        if len(found) < len(listings):
            raise SystemExit(f"llvm-mca tells the cycles of {len(found)} of {len(listings)} blocks")

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
                found.append(_LEAVES.sub(_JUMP[self._core.architecture], lines[place]))
                place += 1
        yield found


def _most_executed(counts: Counts) -> Iterator[str]:
    ordered = sorted(counts.blocks, key=lambda block: -counts.blocks[block] * len(block))
    whole = sum(counts.blocks[block] * len(block) for block in ordered)
    seen = 0.0
    for block in ordered:
        if seen > _LEAST_SHARE * whole:
            return
        seen += counts.blocks[block] * len(block)
        yield block


def _bytes(block: str, each: int) -> str:
    """The bytes as llvm-mc reads them, ``each`` of them in brackets: what one cannot read does not spoil the next."""
    octets = [f"0x{block[place : place + 2]}" for place in range(0, len(block), 2)]
    return " ".join(f"[{' '.join(octets[place : place + each])}]" for place in range(0, len(octets), each))


def _ran(program: str, options: Sequence[str], given: str) -> str:
    done = subprocess.run([needed(program), *options], input=given, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{program} failed: {done.stderr[-400:]}")
    return done.stdout
