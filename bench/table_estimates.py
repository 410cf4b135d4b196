"""Hold what the cost tables say of whole files against emulation: ``table_estimates.py CORE=FOUND.json … [--write]``.

FOUND.json is what ``arm_costs.py FILE … --core CORE --json FOUND.json`` writes of files that ``estimate_set.py`` makes;
they have to lie where they lay.  ``--zoo OUT`` takes our files of the zoo besides, which ``device_zoo.py`` emulated.
``--write`` puts the table into docs/measurements/device-costs.md; what sums it up by the estimated time is what
``targets/tflite/devices.py`` tells users.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from device_zoo import EMULATED, Book, folder_of, is_ours
from page_rows import replace_between

from convertkit.errors import Unsupported
from convertkit.targets.tflite.costs.estimate import estimates

PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "device-costs.md"
BEGIN, END = "<!-- bench/table_estimates.py -->", "<!-- end -->"
HEAD = "| file | device | emulated ms | by the tables ms | ratio |\n|---|---|---|---|---|"
RANGES = ((0.0, 0.05), (0.05, 0.7), (0.7, float("inf")))
"""Of estimated milliseconds."""
Row = tuple[str, str, float, float | None]


def rows(core: str, found: Path) -> list[Row]:
    """Name of the file, core, milliseconds of emulation and of the tables."""
    told = [each for each in json.loads(found.read_text()) if each["core"] == core]
    return [
        (
            Path(each["file"]).name.removesuffix(".tflite"),
            core,
            each["ms"],
            estimated(Path(each["file"]), core),
        )
        for each in told
    ]


def of_zoo(out: Path) -> list[Row]:
    """Ours that were emulated, those of the same bytes once."""
    found: dict[tuple[bytes, str], Row] = {}
    for (name, label, core), row in Book(out / "rows.jsonl").rows().items():
        if core not in EMULATED or not is_ours(label):
            continue
        path = out / folder_of(name, label) / "model.tflite"
        told = (f"{name}, {label}", core, row["ms"], estimated(path, core))
        found.setdefault((path.read_bytes(), core), told)
    return sorted(found.values(), key=lambda row: EMULATED.index(row[1]))


def estimated(path: Path, core: str) -> float | None:
    """Milliseconds; None where no table knows an operator."""
    try:
        return estimates(path, (core,))[0].ms
    except Unsupported:
        return None


def section(every: Sequence[Row]) -> str:
    """The table and what sums it up."""
    lines = [
        f"| {name} | `{core}` | {emulated:.3g} | "
        + ("– | – |" if ours is None else f"{ours:.3g} | {ours / emulated:.2f} |")
        for name, core, emulated, ours in every
    ]
    known = [(emulated, ours) for *_, emulated, ours in every if ours is not None]
    ranks = [np.argsort(np.argsort(column)) for column in zip(*known, strict=True)]
    told = [_sum(known, *each) for each in RANGES]
    correlation = f"Rank correlation of all: {np.corrcoef(*ranks)[0, 1]:.2f}."
    return "\n".join((BEGIN, HEAD, *lines, "", *filter(None, told), correlation, END))


def _sum(known: Sequence[tuple[float, float]], first: float, last: float) -> str:
    """By which share the larger of the two is above the smaller."""
    ratios = np.array([ours / emulated for emulated, ours in known if first <= ours < last])
    if not len(ratios):
        return ""
    errors = np.maximum(ratios, 1 / ratios) - 1
    which = f"from {first:g} to {last:g} ms" if np.isfinite(last) else f"above {first:g} ms"
    return (
        f"Of these {len(ratios)} are estimated {which}: median error {100 * np.median(errors):.0f} %, "
        f"worst {100 * errors.max():.0f} %."
    )


def main() -> None:
    """Print the section, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("found", nargs="+", help="CORE=FOUND.json")
    parser.add_argument("--zoo", type=Path, metavar="OUT")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    pairs = [each.partition("=")[::2] for each in args.found]
    every = [row for core, path in pairs for row in rows(core, Path(path))]
    made = section(every + (of_zoo(args.zoo) if args.zoo else []))
    if not args.write:
        print(made)
        return
    replace_between(PAGE, made, BEGIN, END)


if __name__ == "__main__":
    main()
