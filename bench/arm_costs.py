"""Estimate what TFLite and ONNX files cost on cores that are not here: ``arm_costs.py FILE … [--core NAME …]``.

Every block of instructions that one call executes is counted under emulation, exactly; LLVM's schedule of the core
tells its cycles, and simulated caches what waits for memory.  Two runs print the same numbers.  How far they can be
trusted, and what is needed, says docs/measurements/device-costs.md.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arm.cores import cores
from arm.emulator import counted
from arm.schedule import Estimate, Schedule


def main() -> None:
    """Print a line for each file and core."""
    known = cores()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--core", action="append", choices=tuple(known), dest="cores")
    parser.add_argument("--calls", type=int, default=2, help="the difference of one call and so many (default 2)")
    parser.add_argument("--threads", type=int, default=1, help="cores that share a call evenly (default 1)")
    parser.add_argument("--kernels", choices=("xnnpack", "builtin"), default="xnnpack")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    names = args.cores or ["arm64-a55", "arm64-a76", "arm64-i8mm"]

    def estimated(name: str) -> list[Estimate]:
        counts, _ = counted(args.files, known[name], args.calls, args.kernels)
        return Schedule(known[name]).estimates(counts, args.threads)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(estimated, names))
    for name, estimates in zip(names, found, strict=True):
        for path, each in zip(args.files, estimates, strict=True):
            row = {"file": str(path), "core": name, "instructions": each.instructions, "cycles": each.cycles,
                   "waiting": each.waiting, "ms": each.nanoseconds / 1e6}  # fmt: skip
            rows.append(row)
            print(f"{path}: estimated, {name}, {row['ms']:.3f} ms ({each.instructions / 1e6:.3f} M instructions, "
                  f"{each.cycles / 1e6:.3f} M cycles, {each.waiting / 1e6:.3f} M waiting)", flush=True)  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
