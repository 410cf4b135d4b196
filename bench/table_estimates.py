"""Hold what the cost tables say of whole files against emulation: ``table_estimates.py CORE=FOUND.json … [--write]``.

FOUND.json is what ``arm_costs.py FILE … --core CORE --json FOUND.json`` writes; the files have to lie where they lay.
``--write`` puts the table into docs/measurements/device-costs.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from convertkit.targets.tflite.costs.estimate import estimates

PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "device-costs.md"
BEGIN, END = "<!-- bench/table_estimates.py -->", "<!-- end -->"
HEAD = "| file | device | emulated ms | by the tables ms | ratio |\n|---|---|---|---|---|"


def rows(core: str, found: Path) -> list[tuple[str, str, float, float]]:
    """Name of the file, core, milliseconds of emulation and of the tables."""
    told = [each for each in json.loads(found.read_text()) if each["core"] == core]
    return [
        (
            Path(each["file"]).name.removesuffix(".tflite"),
            core,
            each["ms"],
            estimates(Path(each["file"]), (core,))[0].ms,
        )
        for each in told
    ]


def section(every: list[tuple[str, str, float, float]]) -> str:
    """The table and what sums it up."""
    lines = [
        f"| {name} | `{core}` | {emulated:.3g} | {ours:.3g} | {ours / emulated:.2f} |"
        for name, core, emulated, ours in every
    ]
    errors = np.array([abs(ours / emulated - 1) for *_, emulated, ours in every])
    ranks = [np.argsort(np.argsort([each[place] for each in every])) for place in (2, 3)]
    summed = (
        f"Over these {len(every)}: median error {100 * np.median(errors):.0f} %, worst {100 * errors.max():.0f} %, "
        f"rank correlation {np.corrcoef(*ranks)[0, 1]:.2f}."
    )
    return "\n".join((BEGIN, HEAD, *lines, "", summed, END))


def main() -> None:
    """Print the section, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("found", nargs="+", help="CORE=FOUND.json")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    pairs = [each.partition("=")[::2] for each in args.found]
    made = section([row for core, path in pairs for row in rows(core, Path(path))])
    if not args.write:
        print(made)
        return
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + made + rest.partition(END)[2])


if __name__ == "__main__":
    main()
