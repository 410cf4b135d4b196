"""How fast the command answers: ``startup.py`` prints the best and the median of 15 runs in fresh processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

RUNS = 15
TOOL = str(Path(sysconfig.get_path("scripts")) / "convertkit")
CORE = "import convertkit, onnx, onnx_ir, onnxruntime"
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import convertkit": [sys.executable, "-c", "import convertkit"],
    "convertkit --help": [TOOL, "--help"],
    "convertkit export --help": [TOOL, "export", "--help"],
    "convertkit targets": [TOOL, "targets"],
    CORE: [sys.executable, "-c", CORE],
}


def seconds(command: list[str]) -> float:
    """Wall-clock time of one run."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    """Interleave the commands, so that a busy moment of the machine hits all of them."""
    taken: dict[str, list[float]] = {title: [] for title in COMMANDS}
    for command in COMMANDS.values():
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # fills the file cache
    for _ in range(RUNS):
        for title, command in COMMANDS.items():
            taken[title].append(seconds(command))
    print(f"{'command':<48}{'best':>8}{'median':>8}")
    for title, times in taken.items():
        print(f"{title:<48}{min(times):7.3f}s{statistics.median(times):7.3f}s")


if __name__ == "__main__":
    main()
