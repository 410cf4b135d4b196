"""How long it takes to say what files cost elsewhere: ``estimate_time.py BOOK FILE.tflite … [--write]``.

For each file ``convertkit bench FILE --device`` of three cores, by the tables, and ``arm_costs.py``, which emulates
them.  Each row is a line of BOOK, and what is in there is not done again.  ``--write`` puts the table into
docs/measurements/device-costs.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from page_rows import replace_between

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "measurements" / "device-costs.md"
BEGIN, END = "<!-- bench/estimate_time.py -->", "<!-- end of times -->"
HEAD = "| file | by | processor s | clock s |\n|---|---|---|---|"
CORES = ("arm64-a55", "arm64-a76", "arm64-i8mm")
CONVERTKIT, EMULATOR = [sys.executable, "-m", "convertkit", "bench"], [sys.executable, str(HERE / "arm_costs.py")]
WAYS = {
    "the tables, three cores": [*CONVERTKIT, "FILE", *(f"--device={each}" for each in CORES)],
    "emulation, one core": [*EMULATOR, "FILE", f"--core={CORES[1]}"],
    "emulation, three cores": [*EMULATOR, "FILE", *(f"--core={each}" for each in CORES)],
}


def row(path: Path, title: str, command: list[str]) -> str:
    """Seconds of processor time and of the clock."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([str(path) if each == "FILE" else each for each in command], check=True, capture_output=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"| {path.parent.name} | {title} | {processor:.1f} | {wall:.1f} |"


def main() -> None:
    """Print the rows, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("book", type=Path)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    for path in args.files:
        for title, command in WAYS.items():
            known = args.book.read_text() if args.book.exists() else ""
            if f"| {path.parent.name} | {title} |" not in known:
                args.book.write_text(known + row(path, title, command) + "\n")
    made = "\n".join((BEGIN, HEAD, args.book.read_text() + END))
    if not args.write:
        print(made)
        return
    replace_between(PAGE, made, BEGIN, END)


if __name__ == "__main__":
    main()
