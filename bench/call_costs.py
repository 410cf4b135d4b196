"""What a call takes beside its operators: ``call_costs.py TINY/*.tflite [--core CORE=FOUND.json …] > calls.toml``.

``--here x86-amx`` prints the row of the machine at hand alone.

The files are those that ``estimate_set.py`` makes for it: some operators on some numbers, which no comparison has.
What they take more than the tables say of their operators is fitted as so much for a call, and so much for an operator
of it, XNNPACK's or LiteRT's own.  FOUND.json is what ``arm_costs.py`` writes of these files; what servers take is
measured here, in turns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from estimate_set import WHOLE

from convertkit.targets.tflite.costs.estimate import estimates
from convertkit.targets.tflite.costs.measured.clock import Here
from convertkit.targets.tflite.inspection import placed_operators

HEADER = """\
# Nanoseconds of a call of LiteRT beside what its operators take, and of each operator beside its row of the tables; by
# bench/call_costs.py.  Arm cores are emulated; servers were measured on one with VNNI and on one with AMX."""
Floats = npt.NDArray[np.float64]
SERVERS = {"x86-vnni": ("x86", "x86-avx512", "x86-vnni"), "x86-amx": ("x86-amx",)}
"""Devices that are the machine at hand, with those that it stands for."""


def row(names: Sequence[str], paths: Sequence[Path], taken: Sequence[float], device: str) -> str:
    """``taken`` are nanoseconds of a call; half of the files have less than what is fitted, half more."""
    tables = np.array([sum(node.ms for node in estimates(path, (device,))[0].nodes) * 1e6 for path in paths])
    counts = np.array([len(placed_operators(path)) for path in paths], float)
    more = np.array(taken) - tables
    whole = np.array([path.name.startswith(WHOLE) for path in paths])
    operator, own = (_slope(more[these], counts[these]) for these in (~whole, whole))
    call = float(np.median((more - operator * counts)[~whole]))
    told = f"call = {call:.4g}, operator = {operator:.3g}, own = {max(own - operator, 0.0):.3g}"
    return "\n".join(f'"{name}" = {{ {told} }}' for name in names)


def _slope(more: Floats, counts: Floats) -> float:
    """What one operator more takes: half of all pairs of files say less, half more."""
    places = range(len(more))
    slopes = [(more[b] - more[a]) / (counts[b] - counts[a]) for a in places for b in places if counts[b] > counts[a]]
    return max(float(np.median(slopes)), 0.0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--core", action="append", default=[], metavar="CORE=FOUND.json")
    parser.add_argument("--here", choices=tuple(SERVERS), default="x86-vnni", help="the machine at hand")
    args = parser.parse_args()
    lines = [row(SERVERS[args.here], args.files, Here(sweeps=12, rounds=50).nanoseconds(args.files), args.here)]
    for each in args.core:
        core, _, found = each.partition("=")
        told = {Path(one["file"]).name: one["ms"] * 1e6 for one in json.loads(Path(found).read_text())}
        lines.append(row((core,), args.files, [told[path.name] for path in args.files], core))
    print("\n".join((HEADER, *lines)))


if __name__ == "__main__":
    main()
