"""ONNX Runtime's cost tables: ``python bench/onnxruntime_costs.py > targets/onnxruntime/costs/x86.toml``.

``--core arm64-a76 --book FILE`` emulates that core instead of taking times here (``arm_costs.py``, whose root has to
have ONNX Runtime's wheel, too); each row is a line of FILE, and what is in there is not done again.  Rows of the table
of x86 that no chain measures are taken from it, at the core's median pace.

What an operator costs depends on its neighbours: integers are laid out channels-last, float32 in blocks of channels,
and both are converted at the borders.  So every operator is measured in chains of two lengths, in float32 and in QDQ
with uint8 activations as it is delivered; the difference is the operator, what is left of the shorter chain the
borders.  Over several sizes ``call + work * rate + elements * element`` is fitted (see ``convertkit.profile.OpCost``).
Times are those of the thread, so other processes on the machine disturb them little.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from arm.clock import Emulated
from arm.cores import Core, cores

from convertkit.targets.onnxruntime.measured.chains import ROWS, Found, Row, found_of, models_of
from convertkit.targets.onnxruntime.measured.clock import Here
from convertkit.targets.onnxruntime.measured.tables import beside, placed

OF_X86 = Path(__file__).parents[1] / "targets" / "onnxruntime" / "costs" / "x86.toml"
CLOCK = Here(rounds=25)
MOST_EMULATED = 30e6
"""Work of an operator: larger ones take minutes under emulation, and the pace of a multiply-add is known by then."""
TOGETHER = 12
"""Rows of one start of the emulator."""
HEADER = """\
# Nanoseconds on ONNX Runtime 1.31, one thread, {device}: call + work * rate + elements * element, where work is
# a multiply-add for Conv, ConvTranspose, Gemm and MatMul, else an element.  Regenerate with
# bench/onnxruntime_costs.py{how}."""
HERE = {"device": "x86-64 with VNNI", "how": " on the machine that matters"}


def measured(rows: Sequence[Row]) -> list[Found]:
    """Here."""
    return [found_of(CLOCK.nanoseconds(models_of(row), row.shape)) for row in rows]


def emulated(core: Core) -> Callable[[Sequence[Row]], list[Found]]:
    """On a core that is not here: all rows by one start of the emulator."""

    def of(rows: Sequence[Row]) -> list[Found]:
        each = [models_of(row) for row in rows]
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{place}.onnx" for place in range(sum(map(len, each)))]
            for path, model in zip(paths, itertools.chain(*each), strict=True):
                path.write_bytes(model.SerializeToString())
            times = iter(Emulated(core).nanoseconds(paths))
        return [found_of(list(itertools.islice(times, len(models)))) for models in each]

    return of


def told(rows: Sequence[Row], by: Callable[[Sequence[Row]], list[Found]], book: Path | None) -> Iterator[Found]:
    """Of each row, some at a time; what is in the book is taken from it."""
    known = [json.loads(line) for line in book.read_text().splitlines()] if book and book.exists() else []
    there: dict[str, Found] = {each["row"]: tuple(each["found"]) for each in known}
    for first in range(0, len(rows), TOGETHER):
        listed = rows[first : first + TOGETHER]
        missing = [row for row in listed if repr(row) not in there]
        for row, found in zip(missing, by(missing) if missing else (), strict=True):
            there[repr(row)] = found
            if book:
                with book.open("a") as lines:
                    lines.write(json.dumps({"row": repr(row), "found": found}) + "\n")
        yield from (there[repr(row)] for row in listed)


def said(rows: Sequence[Row], found: Sequence[Found]) -> None:
    """What was found, to stderr."""
    for row, (real, whole, ends) in zip(rows, found, strict=True):
        told = f"float32 {real / 1e3:9.2f} us, int8 {whole / 1e3:9.2f} us, borders {ends / 1e3:8.2f} us"
        print(f"{row.kind:20} {row.shape!s:18} {row.weight!s:18} {told}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the table; the measured times go to stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", choices=tuple(cores()))
    parser.add_argument("--book", type=Path)
    parser.add_argument("--known", action="store_true", help="of what is in the book alone")
    args = parser.parse_args()
    rows = [row for row in ROWS if row.work <= MOST_EMULATED] if args.core else list(ROWS)
    if args.known:
        there = {json.loads(line)["row"] for line in args.book.read_text().splitlines()}
        whole = {row.kind for row in rows} - {row.kind for row in rows if repr(row) not in there}
        rows = [row for row in rows if row.kind in whole]
    by = emulated(cores()[args.core]) if args.core else measured
    found = list(told(rows, by, args.book))
    said(rows, found)
    made = placed(rows, found)
    how = {"device": f"{args.core}, emulated", "how": f" --core {args.core}"} if args.core else HERE
    print(HEADER.format(**how))
    print("[cost]")
    for kind, row in made.items():
        print(_line(kind, row))
    print("# Of x86 at the core's median pace." if args.core else "# Kept from the table before.")
    for kind, row in beside(made, tomllib.loads(OF_X86.read_text())["cost"]).items():
        print(_line(kind, row))


def _line(kind: str, row: Mapping[str, float]) -> str:
    return f'"{kind}" = {{ {", ".join(f"{key} = {value:.6g}" for key, value in row.items())} }}'


if __name__ == "__main__":
    main()
