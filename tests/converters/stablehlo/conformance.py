"""Run the StableHLO testdata through the whole command, and write the board.

    python tests/converters/stablehlo/conformance.py [--write docs/measurements/conformance-stablehlo.md] [PATTERN ...]

Each program (``programs.py``) becomes a ``.mlir`` file that is exported for ONNX Runtime: read, run by JAX, converted,
verified on generated inputs, delivered.  What is delivered then runs on the file's own inputs and is compared with
its own expectations.  A worker process does all of it, JAX included, since a process for each file would take an
hour; where it crashes, that file counts as wrong and a new worker takes the next one.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DTYPES = re.compile(
    r"(bfloat16|float16|float32|float64|complex64|complex128|uint8|uint16|uint32|uint64|int8|int16|int32|int64|bool)"
)


def operator_and_dtype(name: str) -> tuple[str, str]:
    """``scatter_add_bfloat16_1_2.mlir`` → (``scatter_add``, ``bfloat16``); the first dtype counts."""
    found = DTYPES.search(name)
    operator = name[: found.start()].rstrip("_") if found else re.sub(r"_?\.mlir$", "", name)
    dtypes = DTYPES.findall(name)
    complex_ = next((each for each in dtypes if each.startswith("complex")), None)
    return operator, complex_ or (dtypes[0] if dtypes else "other")


# --- the worker ----------------------------------------------------------------------------------


def serve() -> None:
    """Answer paths from stdin with one JSON line each: ``[outcome, detail]``."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        replies.write(json.dumps(outcome(Path(line.strip()))) + "\n")
        replies.flush()


def outcome(path: Path) -> tuple[str, str]:
    """``right``, ``wrong`` or ``refused``, and why."""
    from convertkit.errors import ConvertKitError
    from tests.converters.stablehlo.programs import program_of

    program = program_of(path.read_text())
    with tempfile.TemporaryDirectory(prefix="stablehlo-") as folder:
        try:
            results = delivered(program, Path(folder))
        except ConvertKitError as error:
            return "refused", " ".join(str(error).split("\n  ")[0].split())
        except Exception as error:  # noqa: BLE001 - whatever escapes is a defect of ours, and counts
            return "wrong", f"internal error {type(error).__name__}: {str(error)[:200]}"
    return verdict(results, program.expected)


def delivered(program, folder: Path):
    """Export the program, and run what is delivered on the program's own inputs."""
    import numpy as np

    from convertkit.job import export_all
    from convertkit.recipe import ExportOptions

    source = folder / "program.mlir"
    source.write_text(program.text)
    with jax_in_this_process():
        (result,) = export_all(ExportOptions(source=str(source), output=str(folder / "out")))
    feed = {
        spec.name: array.astype(np.float32) if array.dtype.name == "bfloat16" else array
        for spec, array in zip(result.artifact.inputs, program.inputs, strict=True)
    }
    return list(result.run(feed).values())


@contextmanager
def jax_in_this_process() -> Iterator[None]:
    """The service that JAX runs in, called directly instead of through the pipes of a process of its own."""
    from convertkit.converters.jax import source
    from convertkit.converters.jax.service import JaxService

    class Direct:
        def __init__(self, service, **options) -> None:
            self._service = JaxService()

        def __exit__(self, *error) -> None:
            return

        def call(self, method, params=None, arrays=None, *, isolated=False):
            return getattr(self._service, method)(dict(params or {}), dict(arrays or {}))

        def begin(self, *call, **options):
            reply = self.call(*call, **options)
            return lambda: reply

    usual, source.Worker = source.Worker, Direct
    try:
        yield
    finally:
        source.Worker = usual


def verdict(results, expected) -> tuple[str, str]:
    """Right where every check of the file finds what it expects."""
    from tests.converters.stablehlo.programs import difference

    for index, (got, want) in enumerate(zip(results, expected, strict=True)):
        fault = difference(got, want)
        if fault:
            return "wrong", f"check {index}: {fault}"
    return ("right", "") if expected else ("refused", "no check in the file")


# --- the parent ----------------------------------------------------------------------------------


class Worker:
    """A process that exports files; replaced when it dies."""

    def __init__(self) -> None:
        self._process = None

    def ask(self, path):
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.converters.stablehlo.conformance", "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=Path(__file__).resolve().parents[3],
                env={**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
            )
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            return tuple(json.loads(line))
        code = self._process.wait()
        self._process = None
        return ("wrong", f"the worker died with exit code {code}")

    def close(self):
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()


def run(paths):
    """Outcome by file name."""
    worker = Worker()
    try:
        return {path.name: worker.ask(path) for path in paths}
    finally:
        worker.close()


def summary(results):
    """Shares right by file and by operator (each operator counts the same), for real and complex dtypes."""
    lines = []
    for title, wanted in (("real", False), ("complex", True)):
        chosen = {
            name: result
            for name, result in results.items()
            if operator_and_dtype(name)[1].startswith("complex") == wanted
        }
        if not chosen:
            continue
        by_operator = defaultdict(list)
        for name, (state, _) in chosen.items():
            by_operator[operator_and_dtype(name)[0]].append(state == "right")
        counts = Counter(state for state, _ in chosen.values())
        weighted = sum(sum(each) / len(each) for each in by_operator.values()) / len(by_operator)
        states = ", ".join(f"{counts[state]} {state}" for state in ("right", "refused", "wrong"))
        lines.append((title, len(chosen), counts["right"] / len(chosen), weighted, states))
    return lines


def board(results, seconds) -> str:
    """The board as Markdown: totals, operators by dtype, and every file that is not right with its reason."""
    text = ["# StableHLO conformance", "", "Written by `make conformance-stablehlo`; do not edit.", ""]
    text += [
        f"{len(results)} programs of the openxla testdata, each exported for ONNX Runtime without sample inputs, "
        f"verified, delivered, and run on its own inputs, in {seconds:.0f} s.",
        "",
    ]
    text += ["| dtypes | files | right by file | right by operator | outcomes |", "|---|---|---|---|---|"]
    text += [
        f"| {title} | {count} | {share:.1%} | {weighted:.1%} | {states} |"
        for title, count, share, weighted, states in summary(results)
    ]
    text += [
        "",
        "Tolerances (relative and absolute together): float32 1e-4, float64 1e-6, float16 1e-3, bfloat16 1e-2; "
        "integers and bool exact.",
        "",
    ]
    cells = defaultdict(lambda: defaultdict(list))
    for name, (state, _) in results.items():
        operator, dtype = operator_and_dtype(name)
        cells[operator][dtype].append(state == "right")
    columns = sorted({dtype for row in cells.values() for dtype in row})
    text += [
        "Right of all, per operator and dtype:",
        "",
        "| operator | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for operator, row in sorted(cells.items()):
        text.append(
            f"| {operator} | " + " | ".join(f"{sum(row[c])}/{len(row[c])}" if c in row else "" for c in columns) + " |"
        )
    rest = {name: result for name, result in sorted(results.items()) if result[0] != "right"}
    text += ["", "Not right:", "", "| file | outcome | reason |", "|---|---|---|"]
    text += [f"| {name} | {state} | {reason.replace('|', '/')} |" for name, (state, reason) in rest.items()]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    folder = Path(os.environ["CONVERTKIT_CASES"]) / "stablehlo-testdata"
    paths = [
        path
        for path in sorted(folder.glob("*.mlir"))
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in arguments.patterns)
    ]
    began = time.monotonic()
    results = run(paths)
    seconds = time.monotonic() - began
    for line in summary(results):
        print("{} {} files, by file {:.1%}, by operator {:.1%}: {}".format(*line), file=sys.stderr)
    print(f"{seconds:.0f} s", file=sys.stderr)
    if arguments.write:
        arguments.write.write_text(board(results, seconds))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=0))


if __name__ == "__main__":
    main()
