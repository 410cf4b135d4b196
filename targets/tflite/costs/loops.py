"""How the steps of an LSTM, GRU or RNN are best written: one after the other, or several in each turn of a WHILE.

A loop takes time of its own.  Written out, each step has a copy of the weights in memory, packed for its kernel, and a
call reads all of them: where they are more than the caches hold, that takes several times as long as the loop.  A turn
of several steps has as many copies.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from convertkit.targets.forms.devices import machines_of

_HERE = Path(__file__).parent
_UNKNOWN = "x86"
"""Stands for a machine whose loops nothing has measured."""
MAX_STEPS = 32
"""Longer sequences are a WHILE where no device is named: the file grows with each step that is written."""
MAX_STEPS_NAMED = 64
"""The same for a device that the user names."""
TOGETHER = (5, 2, 1)
"""Steps that a turn may have: LiteRT copies everything that the loop carries in every turn."""
MOST_HELD = 8 << 20
"""Bytes of all copies of a layer's weights: of what holds more, the form with the fewest copies is taken."""
WRITTEN_OUT = 0
OPERATORS_OF_A_STEP = 14
"""Of an LSTM's or GRU's: what the runtime keeps of a step beside its weights is that of as many operators."""


@dataclass(frozen=True, slots=True)
class LoopCosts:
    """Of one machine, as ``loops.toml`` tells them.

    Steps that fill no turn are written out behind the loop.
    """

    loop: float
    turn: float
    step_bytes: float
    caches: tuple[tuple[float, float], ...]

    def nanoseconds(self, steps: int, weight_bytes: float, together: int, layers: int) -> float:
        """Of a layer's steps, beside their operators; written out, the copies of all ``layers`` are in the caches."""
        each = weight_bytes + self.step_bytes
        if together == WRITTEN_OUT:
            return steps * each * self.per_byte(layers * steps * each)
        turns, rest = divmod(steps, together)
        looped = turns * (self.turn + together * each * self.per_byte(together * each))
        return self.loop + looped + rest * each * self.per_byte((together + rest) * each)

    def per_byte(self, held: float) -> float:
        """Nanoseconds to read a byte again of so many that are read in turns."""
        return max((price for size, price in self.caches if held > size), default=0.0)


@dataclass(frozen=True, slots=True)
class Loops:
    """The machines that a model is made for, with their shares; ``written_steps`` are the most without a loop."""

    machines: tuple[tuple[float, LoopCosts], ...]
    written_steps: int = MAX_STEPS

    def together(self, steps: int, weight_bytes: float, layers: int) -> int:
        """How many steps a turn has, by the least weighted sum; ``WRITTEN_OUT`` where there should be no loop.

        ``weight_bytes`` are those that a step reads, ``layers`` is how many such layers the model has.
        """
        copies = {each: each + steps % each for each in TOGETHER if 2 * each <= steps}
        if steps <= self.written_steps:
            copies = {WRITTEN_OUT: steps, **copies}
        fewest = min(copies.values())
        forms = [form for form, count in copies.items() if count * weight_bytes <= MOST_HELD or count == fewest]
        return min(forms, key=lambda form: self._nanoseconds(steps, weight_bytes, form, layers))

    def _nanoseconds(self, steps: int, weight_bytes: float, together: int, layers: int) -> float:
        return sum(
            share * machine.nanoseconds(steps, weight_bytes, together, layers) for share, machine in self.machines
        )


@cache
def loops(devices: tuple[str, ...]) -> Loops:
    """Those of ``devices``, each of the same weight; names are those that :mod:`devices` knows, and ``this``."""
    table = _table()
    machines = tuple((share, table.get(name, table[_UNKNOWN])) for name, share in machines_of(devices).items())
    return Loops(machines, MAX_STEPS_NAMED if devices else MAX_STEPS)


@cache
def _table() -> Mapping[str, LoopCosts]:
    rows = tomllib.loads((_HERE / "loops.toml").read_text())
    return {
        name: LoopCosts(row["loop"], row["turn"], row["step_bytes"], tuple((size, ns) for size, ns in row["caches"]))
        for name, row in rows.items()
    }
