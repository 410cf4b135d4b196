"""Cases of ONNX's node suite through SavedModels, as a page of docs/.

python tests/targets/tf_serving/served_suite.py [--every N] [--out docs/measurements/conformance-tf-serving.md]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from convertkit.errors import ConvertKitError
from convertkit.workers.process import Worker

HERE = Path(__file__).resolve().parent
CONFORMANCE = HERE.parents[1] / "conformance"
sys.path.insert(0, str(CONFORMANCE))

import suite  # noqa: E402 - the folder of another script, which is no package


def run(cases: Sequence[suite.Eligible]) -> Iterator[tuple[suite.Eligible, dict[str, Any]]]:
    """Each case with what became of it, one after the other in a process with TensorFlow."""
    paths = (str(HERE), str(CONFORMANCE), os.environ.get("PYTHONPATH", ""))
    environment = {"PYTHONPATH": os.pathsep.join(paths), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    with (
        tempfile.TemporaryDirectory() as folder,
        Worker("saved_model_service:Conformance", timeout_s=120, env=environment, framework="tensorflow") as worker,
    ):
        tolerances = suite.write(tuple(cases), Path(folder))
        for case in cases:
            params = {"folder": folder, "name": case.name, **tolerances[case.name]}
            try:
                yield case, worker.call("case", params).value
            except ConvertKitError as error:
                yield case, {"status": "error", "reason": str(error), "codes": []}


_STATUSES = ("right", "refused", "wrong", "error")
_HEAD = """# ONNX operator conformance of SavedModels

Written by `make conformance-tf-serving`. Each case of `tests/conformance/eligible.json` goes through the lowering of
`--target tflite` and from there into a SavedModel of `--package tf-serving`, which TensorFlow runs on the suite's own
data; the outputs are compared with the suite's.
"""


def page(found: Sequence[tuple[suite.Eligible, dict[str, Any]]]) -> str:
    """Totals, a row for each operator, every case that is not right."""
    totals = Counter(result["status"] for _, result in found)
    others = ", ".join(f"{totals[status]} {status}" for status in _STATUSES[1:])
    share = 100 * totals["right"] / len(found)
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for case, result in found:
        by_operator[case.op][result["status"]] += 1
    lines = [
        _HEAD,
        f"**{totals['right']} of {len(found)} right ({share:.1f} %)**; {others}. They have",
        f"{len({code for _, result in found for code in result['codes']})} operators of TFLite between them.",
        "",
        f"| operator | cases | {' | '.join(_STATUSES)} |",
        "|---" * (len(_STATUSES) + 2) + "|",
    ]
    for operator, counts in sorted(by_operator.items()):
        cells = " | ".join(str(counts[status] or "") for status in _STATUSES)
        lines.append(f"| {operator} | {counts.total()} | {cells} |")
    lines += ["", "## Not right", "", "| case | status | reason |", "|---|---|---|"]
    for case, result in found:
        if result["status"] != "right":
            reason = " ".join(result["reason"].replace("|", "\\|").split())[:300]
            lines.append(f"| {case.name} | {result['status']} | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the cases, print the totals, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only each n-th case")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = list(run(suite.eligible()[:: options.every]))
    print(dict(Counter(result["status"] for _, result in found)))
    if options.out:
        options.out.write_text(page(found))


if __name__ == "__main__":
    main()
