"""Measure what operators cost within a model whose tensors the caches hold: ``python bench/near_costs.py``.

Prints ``targets/tflite/costs/x86.toml`` with new ``_near`` and ``_call`` columns, as
``convertkit.targets.tflite.costs.measured.rows`` fits them.
"""

from __future__ import annotations

import tomllib

from kernel_costs import COSTS, rendered
from tile_costs import say

from convertkit.targets.tflite.costs.measured.clock import Here
from convertkit.targets.tflite.costs.measured.rows import SHAPES, near_rows

HERE = Here(sweeps=10, rounds=3)


def main() -> None:
    """Print the table."""
    committed = tomllib.loads(COSTS.read_text())
    for kind, found in near_rows(HERE, SHAPES, say).items():
        if kind in committed["ns_per_unit"]:
            committed["ns_per_unit"][kind] |= found
    print(rendered(committed))


if __name__ == "__main__":
    main()
