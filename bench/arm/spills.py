"""Vectors that x86 code keeps on the stack: a load of what was just stored waits for it, which llvm-mca does not know.

To llvm-mca no load waits for a store, or every load for every one.  So a value goes through a register of MMX, which no
code here uses, by instructions that take as long as the way through the stack: seven cycles on Zen 2 to 4.  (Integers
are as fast there as in registers, since these cores rename the stack's slots, too.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_MOVE = r"^vmov(?:aps|ups|dqa|dqu)\s+"
_SLOT = r"(-?\d*\(%r[sb]p\))"
_STORE = re.compile(rf"{_MOVE}%[xy]mm(\d+), {_SLOT}$")
_LOAD = re.compile(rf"{_MOVE}{_SLOT}, %[xy]mm(\d+)$")
_NEW_FRAME = re.compile(r", %r[sb]p$")
_REGISTERS = 8


class Spills:
    """What lies on the stack along one walk."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._stored = 0

    def seen(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines with the ways through the stack."""
        for line in lines:
            if _NEW_FRAME.search(line):
                self._slots.clear()
            load = _LOAD.match(line)
            if load and load[1] in self._slots:
                yield f"movq2dq %mm{self._slots[load[1]]}, %xmm{load[2]}"
                continue
            yield line
            if store := _STORE.match(line):
                yield from self._kept(store[2], store[1])

    def _kept(self, slot: str, register: str) -> Iterator[str]:
        number = self._stored % _REGISTERS
        self._stored += 1
        self._slots = {each: taken for each, taken in self._slots.items() if taken != number} | {slot: number}
        yield f"movdq2q %xmm{register}, %mm{number}"
        yield from [f"pmaddwd %mm{number}, %mm{number}"] * 2
