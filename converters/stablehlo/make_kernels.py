"""Write ``kernels.json``: the element types that ONNX Runtime's CPU kernels take, per operator.

Run as ``python -m convertkit.converters.stablehlo.make_kernels``.  Where opset 18 and 26 resolve to
different kernels, only what both take counts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from convertkit.onnx.onnxruntime_compat import kernels

OPSETS = (18, 26)
_CONSTRAINTS = ("T", "V", "T1", "X")


def kernel_table(definitions: list[Any]) -> dict[str, list[str]]:
    """NumPy-like dtype names by operator, from ONNX Runtime's own kernel definitions."""
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for definition in definitions:
        if definition.provider != "CPUExecutionProvider" or definition.domain:
            continue
        first, last = definition.version_range
        names = [name for name in _CONSTRAINTS if name in definition.type_constraints]
        for opset in OPSETS:
            if names and first <= opset <= last:
                types = definition.type_constraints[names[0]]
                found[definition.op_name][opset] |= {t[7:-1] for t in types if t.startswith("tensor(")}
    return {
        op: sorted(set.intersection(*by_opset.values()))
        for op, by_opset in sorted(found.items())
        if op[0].isupper() and set.intersection(*by_opset.values())
    }


def main() -> None:
    """Write the table beside this module."""
    table = kernel_table(list(kernels()))
    text = ",\n".join(f"  {json.dumps(op)}: {json.dumps(types)}" for op, types in table.items())
    Path(__file__).with_name("kernels.json").write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    main()
