"""Compare targets/onnxruntime/providers.toml with the lists that ONNX Runtime publishes.

    python bench/provider_lists.py [--pages CHECKOUT] [--kernels CHECKOUT]

Core ML's and NNAPI's lists lie in the installed package.  ``--pages`` is a checkout of ONNX Runtime's branch
``gh-pages``, with the pages of XNNPACK, QNN and OpenVINO; ``--kernels`` one of its branch ``main``, with CUDA's
kernels.  Prints the operators that a list and the table do not share; exit code 1 where there are any.  Of CUDA's
provider, versions and types are those that it takes on a GPU (``cuda_nodes.py``).
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.tools.mobile_helpers import usability_checker

TABLE = Path(__file__).resolve().parents[1] / "targets" / "onnxruntime" / "providers.toml"
SHIPPED = {
    "coreml_program": "coreml_supported_mlprogram_ops.md",
    "coreml_network": "coreml_supported_neuralnetwork_ops.md",
    "nnapi": "nnapi_supported_ops.md",
}
PAGES = {"xnnpack": "Xnnpack", "qnn": "QNN", "openvino": "OpenVINO"}
SPELLED = {
    "Argmax": "ArgMax",
    "HardMax": "Hardmax",
    "LogSoftMax": "LogSoftmax",
    "Matmul": "MatMul",
    "Prelu": "PRelu",
    "Unsqeeze": "Unsqueeze",
}
"""How the lists write operators, and ONNX."""
_FUNCTIONS = {"Mish", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
UNLISTED = {
    "qnn": {"Reshape"},
    "cuda": {"DeformConv", "LpNormalization", "NonMaxSuppression", "Scatter", *_FUNCTIONS},
}
"""What the table has beyond a list; it says why, and of CUDA's it was seen on a GPU."""
ROW = re.compile(r"^\|\s*(?:(ai\.onnx|com\.microsoft)[.:])?(\w+)\s*\|")
NOWHERE = re.compile(r"\|\s*No\s*\|\s*No\s*\|\s*$")
"""An operator that OpenVINO's list has for no device."""
KERNEL = re.compile(r"^\|(\w[\w.]*)\|[^|]*\|[\d\[]")


def listed(text: str) -> set[str]:
    """Operators in the first column of a page's tables; those of com.microsoft with their domain."""
    rows = [found for line in text.splitlines() if (found := ROW.match(line)) and not NOWHERE.search(line)]
    names = ((domain or "", SPELLED.get(name, name)) for domain, name in (row.groups() for row in rows))
    known = [(domain, name) for domain, name in names if domain or onnx.defs.has(name)]
    return {f"{domain}.{name}" if domain == "com.microsoft" else name for domain, name in known}


def kernels(text: str) -> set[str]:
    """CUDA's operators."""
    part = text.partition("implemented by CUDAExecutionProvider")[2].partition("## Operators implemented by")[0]
    found, domain = set[str](), ""
    for line in part.splitlines():
        if "Operator Domain:" in line:
            domain = "com.microsoft." if "com.microsoft" in line else ""
        elif row := KERNEL.match(line):
            found.add(domain + row[1])
    return found


def differences(name: str, table: dict[str, Any], found: set[str]) -> Iterator[str]:
    """In both directions."""
    row = table[name]
    ours = {*row["operators"], *row.get("conditions", {})}
    yield from (f"{name}: the list has {each}" for each in sorted(found - ours))
    yield from (f"{name}: the list does not have {each}" for each in sorted(ours - found - UNLISTED.get(name, set())))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--kernels", type=Path)
    options = parser.parse_args()
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    shipped = Path(usability_checker.__file__).parent
    sources = {name: shipped / file for name, file in SHIPPED.items()}
    if options.pages:
        folder = options.pages / "docs" / "execution-providers"
        sources |= {name: folder / f"{file}-ExecutionProvider.md" for name, file in PAGES.items()}
    told = [line for name, path in sources.items() for line in differences(name, table, listed(path.read_text()))]
    if options.kernels:
        found = kernels((options.kernels / "docs" / "OperatorKernels.md").read_text())
        told += differences("cuda", table, found)
    print("\n".join(told) or f"the table has what {', '.join(sources)} list")
    return bool(told)


if __name__ == "__main__":
    sys.exit(main())
