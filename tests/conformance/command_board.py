"""The ONNX node suite through the whole export, without calibration data, as a page of docs/.

python tests/conformance/command_board.py [--op OP …] [--case NAME …] [--out docs/measurements/conformance-command.md]

With ``--target openvino`` through that target alone.  Targets that have integers only get int8, calibrated on the data
of the case, and are held against the suite by their signal over noise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from convertkit.errors import ConvertKitError
from convertkit.workers.process import Worker

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import suite  # noqa: E402 - the folder of this script, which is not a package

STATUSES = ("right", "refused", "disputed", "told", "wrong", "error", "crash")
TITLES = {
    "tflite": "TFLite",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "iree": "IREE",
    "executorch": "ExecuTorch",
    "tvm": "TVM",
    "stablehlo": "StableHLO",
    "mnn": "MNN",
    "ncnn": "ncnn",
    "qnn": "Qualcomm HTP",
    "rknn": "RKNN",
    "ethos-u": "Ethos-U",
    "litert-npu": "LiteRT on an NPU",
}
INTEGERS = {
    "qnn": {"int8": True, "full_integer": True},
    "rknn": {"int8": True},
    "ethos-u": {"int8": True, "full_integer": True, "io_dtype": "int8"},
    "litert-npu": {"int8": True, "full_integer": True, "io_dtype": "int8"},
}
"""What targets without floats are asked for."""
FIRST = {"executorch": "executorch.exir"}
"""What is imported before anything of ours."""
TARGETS = ("tflite", "onnxruntime")
"""In this order: a case counts for the first that delivers it."""
_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case; ``target`` is the one that delivered it."""

    name: str
    op: str
    status: str
    target: str
    reason: str


def run(cases: Sequence[suite.Eligible], targets: Sequence[str] = TARGETS) -> Iterator[Outcome]:
    """Export ``cases`` one after the other, each in a fork of one warm worker process."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Worker(
            "command_service:Command", timeout_s=_TIMEOUT_S, env=environment(), framework=FIRST.get(targets[0])
        ) as worker,
    ):
        worker.call("prepare", {"targets": list(targets)})
        tolerances = suite.write(tuple(cases), Path(folder))
        for case in cases:
            params = {"folder": folder, "name": case.name, "targets": list(targets), **tolerances[case.name]}
            params |= {"op": case.op, "flags": INTEGERS.get(targets[0], {})}
            try:
                found = worker.call("case", params, {}, isolated=True).value
            except ConvertKitError as failure:
                status = "crash" if "crashed" in str(failure) or "killed" in str(failure) else "error"
                yield Outcome(case.name, case.op, status, "", str(failure))
                continue
            yield Outcome(case.name, case.op, found["status"], found["target"], found["reason"])


def environment() -> dict[str, str]:
    """Of the worker.  What an export sets is set from the start, so that its workers are forks of the templates."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    set_later = {"ORT_DISABLE_TELEMETRY": "1", "KMP_DUPLICATE_LIB_OK": "True"}
    return {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", **set_later}


_WHOLE = """# ONNX operator conformance of the whole export

Written by `make conformance-command`. Each case of
`tests/conformance/eligible.json` goes through `convertkit export` without calibration data: to TFLite, or
where that is refused to ONNX Runtime."""
_ALONE = """# ONNX operator conformance of the TITLE target

Written by `make HOW`. Each case of
`tests/conformance/eligible.json` goes through `convertkit export --target NAME` without calibration data: what the
runtime computes differently is refused by verification."""
_INTEGER = """# ONNX operator conformance of the TITLE target

Written by `make conformance-engine ENGINE=NAME`. Each case of
`tests/conformance/eligible.json` goes through `convertkit export --target NAME` in int8, calibrated on its own data.
What is delivered runs outside of the pipeline, on the suite's own data and on three more seeded inputs. *Right* keeps
at least 20 dB of the suite's outputs and of ONNX Runtime's, and integers exactly that do not stand for rounded reals.
*Told* keeps less of one of them, and the export's own report says so: it warns (LOW), or its SNR in sum, for the median
sample or at the 5th percentile is below 20 dB.
*Disputed* are cases on which ONNX Runtime differs from the suite, and what is delivered gives its result. Verification
refuses what is off by more than roundings."""
_HOW = """What is delivered runs outside of the pipeline, on the suite's own
data and on three more seeded inputs. It is compared with the suite's outputs and ONNX Runtime's, or with
those of ONNX's reference evaluator where ONNX Runtime does not load the case. *Disputed* are cases on which
ONNX Runtime itself differs from the suite, and what is delivered gives its result."""


def _head(targets: Sequence[str]) -> str:
    """Title, and how the cases were run."""
    if tuple(targets) == TARGETS:
        return f"{_WHOLE} {_HOW}"
    (name,) = targets
    if name in INTEGERS:
        return f"{_INTEGER.replace('TITLE', TITLES[name]).replace('NAME', name)}"
    how = f"conformance-{name}" if name == "openvino" else f"conformance-engine ENGINE={name}"
    return f"{_ALONE.replace('TITLE', TITLES[name]).replace('NAME', name).replace('HOW', how)}\n{_HOW}"


def page(outcomes: Sequence[Outcome], targets: Sequence[str] = TARGETS) -> str:
    """The board in Markdown: totals, a row for each operator, every case that is not right."""
    totals = Counter(outcome.status for outcome in outcomes)
    found = Counter(outcome.target for outcome in outcomes if outcome.status == "right")
    told = ", ".join(f"{count} as {target}" for target, count in found.most_common())
    share = 100 * totals["right"] / len(outcomes)
    whole = len(suite.eligible())
    lines = [
        _head(targets),
        "",
        *([f"Of the suite's {whole} cases {len(outcomes)} were run.", ""] if len(outcomes) < whole else []),
        f"**{totals['right']} of {len(outcomes)} delivered and right ({share:.1f} %)**: {told}; "
        + ", ".join(f"{totals[status]} {status}" for status in STATUSES[1:])
        + ".",
        "",
        "| " + " | ".join(["operator", "cases", *(TITLES[each] for each in targets), *STATUSES[1:]]) + " |",
        "|---|---|" + "---|" * len(targets) + "---|" * len(STATUSES[1:]),
    ]
    by_op: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_op[outcome.op].append(outcome)
    for op in sorted(by_op):
        counts = Counter(each.target if each.status == "right" else each.status for each in by_op[op])
        cells = " | ".join(str(counts[key] or "") for key in (*targets, *STATUSES[1:]))
        lines.append(f"| {op} | {len(by_op[op])} | {cells} |")
    lines += ["", "## Not right", "", "| case | status | reason |", "|---|---|---|"]
    lines += [f"| {each.name} | {each.status} | {_cell(each.reason)} |" for each in outcomes if each.status != "right"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:400]


def known(path: Path) -> dict[str, Outcome]:
    """Outcomes that a run before this one has written, by the case's name."""
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return {row["name"]: Outcome(**row) for row in rows}


def main() -> None:
    """Run the board and print the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", action="append", help="only cases of this operator")
    parser.add_argument("--case", action="append", help="only this case")
    parser.add_argument("--target", choices=tuple(TITLES), help="only through this target")
    parser.add_argument("--every", type=int, default=1, help="only each n-th case")
    parser.add_argument("--sample", action="store_true", help="only a quarter, in which every operator is")
    parser.add_argument("--out", type=Path, help="write the page here")
    parser.add_argument("--json", type=Path, help="write every outcome here, a line each")
    parser.add_argument("--resume", action="store_true", help="keep what --json has, and run the other cases only")
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--resume goes on where the file of --json ends: give --json")
    cases = (suite.sample() if options.sample else suite.eligible())[:: options.every]
    if options.op or options.case:
        cases = tuple(case for case in cases if case.op in (options.op or ()) or case.name in (options.case or ()))
    targets = (options.target,) if options.target else TARGETS
    found = known(options.json) if options.resume else {}
    if options.json and not options.resume:
        options.json.write_text("")
    left = [case for case in cases if case.name not in found]
    for outcome in run(left, targets) if left else ():
        found[outcome.name] = outcome
        if options.json:
            with options.json.open("a") as stream:
                stream.write(json.dumps(asdict(outcome)) + "\n")
        if options.op or options.case:
            print(f"{outcome.status:8} {outcome.target:12} {outcome.name}  {outcome.reason[:800]}", flush=True)
    outcomes = [found[case.name] for case in cases]
    if options.out:
        options.out.write_text(page(outcomes, targets))
    print(dict(Counter(outcome.status for outcome in outcomes)))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
