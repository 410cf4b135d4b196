"""The conformance board: every eligible case through the compiler and LiteRT, as a page of docs/.

python tests/conformance/board.py [--op OP …] [--out docs/measurements/conformance-onnx.md]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from convertkit.errors import ConvertKitError
from convertkit.workers.process import Worker

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import suite  # noqa: E402 - the folder of this script, which is not a package

STATUSES = ("right", "refused", "wrong", "error", "crash")
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case; ``worst`` is the largest relative error, where it ran."""

    name: str
    op: str
    status: str
    reason: str
    worst: float = 0.0


SERVICES = {"tflite": "service:Conformance", "coreml": "coreml_service:CoreMLConformance"}
"""Who runs a case, by target."""


def run(cases: Sequence[suite.Eligible], target: str = "tflite") -> Iterator[Result]:
    """Run ``cases`` one after the other, each in a fork of one warm worker process."""
    environment = {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryDirectory() as folder,
        Worker(SERVICES[target], timeout_s=_TIMEOUT_S, env=environment) as worker,
    ):
        tolerances = suite.write(tuple(cases), Path(folder))
        for case in cases:
            params = {"folder": folder, "name": case.name, **tolerances[case.name]}
            try:
                found = worker.call("case", params, {}, isolated=True).value
            except ConvertKitError as failure:
                status = "crash" if "crashed" in str(failure) or "killed" in str(failure) else "error"
                yield Result(case.name, case.op, status, str(failure))
                continue
            yield Result(case.name, case.op, found["status"], found["reason"], found.get("worst", 0.0))


def page(results: Sequence[Result]) -> str:
    """The board in Markdown: totals, a row for each operator, every case that is not right."""
    totals = Counter(result.status for result in results)
    share = 100 * totals["right"] / len(results)
    lines = [
        "# ONNX operator conformance of the TFLite target",
        "",
        "Written by `make conformance`. The cases are the ONNX backend node tests that a static model holds, with",
        "parameters as initializers (`tests/conformance/eligible.json`); each runs in LiteRT with XNNPACK on the",
        "suite's own data and on three more seeded feeds, compared with the suite's outputs and with ONNX Runtime",
        "(ONNX's reference evaluator where that does not load it). Right means: names, order, shapes, element types",
        "and values, within the suite's own tolerance or 1e-5 of the output's largest value; integers exactly.",
        "",
        f"**{totals['right']} of {len(results)} right ({share:.1f} %)**, "
        + ", ".join(f"{totals[status]} {status}" for status in STATUSES[1:])
        + ".",
        "",
        "| operator | cases | " + " | ".join(STATUSES) + " | largest relative error |",
        "|---|---|" + "---|" * len(STATUSES) + "---|",
    ]
    by_op: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_op[result.op].append(result)
    for op in sorted(by_op):
        counts = Counter(result.status for result in by_op[op])
        worst = max((result.worst for result in by_op[op] if result.status == "right"), default=0.0)
        cells = " | ".join(str(counts[status] or "") for status in STATUSES)
        lines.append(f"| {op} | {len(by_op[op])} | {cells} | {f'{worst:.0e}' if worst else '0'} |")
    lines += ["", "## Not right", "", "| case | status | reason |", "|---|---|---|"]
    lines += [
        f"| {result.name} | {result.status} | {_cell(result.reason)} |"
        for result in results
        if result.status != "right"
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:300]


def main() -> None:
    """Run the board and print the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=tuple(SERVICES), default="tflite")
    parser.add_argument("--op", action="append", help="only cases of this operator")
    parser.add_argument("--case", action="append", help="only this case")
    parser.add_argument("--out", type=Path, help="write the page here")
    parser.add_argument("--json", type=Path, help="write every result here, a line each")
    options = parser.parse_args()
    cases = suite.eligible()
    if options.op:
        cases = tuple(case for case in cases if case.op in options.op)
    if options.case:
        cases = tuple(case for case in cases if case.name in options.case)
    if not cases:
        sys.exit("ONNX's suite has no such case")
    results = []
    for result in run(cases, options.target):
        results.append(result)
        if options.op or options.case:
            print(f"{result.status:8} {result.name}  {result.reason[:600]}")
        elif sys.stderr.isatty():
            print(f"\r{len(results)}/{len(cases)}", end="", file=sys.stderr)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(page(results))
    if options.json:
        fields = ("name", "op", "status", "reason", "worst")
        lines = [json.dumps({field: getattr(result, field) for field in fields}) for result in results]
        options.json.write_text("\n".join(lines) + "\n")
    print(dict(Counter(result.status for result in results)))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
