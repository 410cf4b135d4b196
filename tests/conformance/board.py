"""The conformance board: every eligible case through a compiler and what runs its artifact, as a page of docs/.

python tests/conformance/board.py [--target coreml] [--op OP …] [--out docs/measurements/conformance-onnx.md]

A long run may be cut in pieces: with ``--json FILE --resume --limit-s SECONDS`` it goes on where FILE ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
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
    """What became of one case; ``worst`` is the largest relative error, where it ran.

    ``barrier`` is what the target's format cannot hold at all and the refused case has, if anything.
    """

    name: str
    op: str
    status: str
    reason: str
    worst: float = 0.0
    barrier: str = ""


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
            worst, barrier = found.get("worst", 0.0), found.get("barrier", "")
            yield Result(case.name, case.op, found["status"], found["reason"], worst, barrier)


_HEAD = {
    "tflite": """# ONNX operator conformance of the TFLite target

Written by `make conformance`. The cases are the ONNX backend node tests that a static model holds, with
parameters as initializers (`tests/conformance/eligible.json`); each runs in LiteRT with XNNPACK on the
suite's own data and on three more seeded feeds, compared with the suite's outputs and with ONNX Runtime
(ONNX's reference evaluator where that does not load it). Right means: names, order, shapes, element types
and values, within the suite's own tolerance or 1e-5 of the output's largest value; integers exactly.
""",
    "coreml": """# ONNX operator conformance of the Core ML target

Written by `make conformance-coreml`. The cases are the ONNX backend node tests that a static model holds, with
parameters as initializers (`tests/conformance/eligible.json`). Each becomes a float32 package for iOS 18. The
package is read back from its bytes and evaluated, not run on Apple hardware, on the suite's own data and on three
more seeded inputs. It is compared with the suite's outputs and with ONNX Runtime (ONNX's reference evaluator where
that does not load it). Right means: order, shapes and values, within the suite's own tolerance or 1e-5 of the
output's largest value. Integers and booleans are int32 in the package, and equal as numbers; a scalar is one element.
""",
}


def page(results: Sequence[Result], target: str = "tflite") -> str:
    """The board in Markdown: totals, a row for each operator, every case that is not right."""
    totals = Counter(result.status for result in results)
    share = 100 * totals["right"] / len(results)
    lines = [
        _HEAD[target],
        f"**{totals['right']} of {len(results)} right ({share:.1f} %)**, "
        + ", ".join(f"{totals[status]} {status}" for status in STATUSES[1:])
        + ".",
        "",
        *_barriers(results),
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


def _barriers(results: Sequence[Result]) -> list[str]:
    """What the target's format cannot hold at all, counted apart; nothing where a target says nothing of it."""
    counts = Counter(result.barrier for result in results if result.barrier)
    if not counts:
        return []
    held = len(results) - counts.total()
    right = sum(result.status == "right" for result in results)
    return [
        f"The format cannot hold {counts.total()} of the refused cases. Of the {held} others "
        f"**{right} are right ({100 * right / held:.1f} %)**.",
        "",
        "| what the format cannot hold | refused cases |",
        "|---|---|",
        *(f"| {barrier} | {count} |" for barrier, count in counts.most_common()),
        "",
    ]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:300]


def main() -> None:
    """Run the board and print the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=tuple(SERVICES), default="tflite")
    parser.add_argument("--op", action="append", help="only cases of this operator")
    parser.add_argument("--case", action="append", help="only this case")
    parser.add_argument("--out", type=Path, help="write the page here")
    parser.add_argument("--json", type=Path, help="write every result here, a line each, as they come")
    parser.add_argument("--resume", action="store_true", help="keep what --json has, and run the other cases only")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no case after so many seconds")
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--resume goes on where the file of --json ends: give --json")
    cases = tuple(
        case
        for case in suite.eligible()
        if case.op in (options.op or (case.op,)) and case.name in (options.case or (case.name,))
    )
    if not cases:
        sys.exit("ONNX's suite has no such case")
    known = _known(options.json) if options.resume else {}
    fresh = _run_on(cases, known, options)
    results = [found for case in cases if (found := (known | fresh).get(case.name))]
    print(dict(Counter(result.status for result in results)))
    if len(results) < len(cases):
        sys.exit(f"{len(cases) - len(results)} cases are left: --resume runs them")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(page(results, options.target))


def _run_on(
    cases: Sequence[suite.Eligible], known: dict[str, Result], options: argparse.Namespace
) -> dict[str, Result]:
    """Results of the cases that are not ``known``, each written as it comes, until the time is over."""
    end = time.monotonic() + options.limit_s
    left = tuple(case for case in cases if case.name not in known)
    fresh: dict[str, Result] = {}
    if options.json and not options.resume:
        options.json.write_text("")
    for result in run(left, options.target) if left else ():
        fresh[result.name] = result
        if options.json:
            with options.json.open("a") as stream:
                stream.write(json.dumps(asdict(result)) + "\n")
        if options.op or options.case:
            print(f"{result.status:8} {result.name}  {result.reason[:600]}", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{len(known) + len(fresh)}/{len(cases)}", end="", file=sys.stderr)
        if time.monotonic() > end:
            break
    return fresh


def _known(path: Path) -> dict[str, Result]:
    """What an earlier run wrote; nothing where there was none."""
    if not path.exists():
        return {}
    return {row["name"]: Result(**row) for row in map(json.loads, path.read_text().splitlines())}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
