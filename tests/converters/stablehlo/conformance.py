"""Run the StableHLO testdata through the importer and ONNX Runtime, and write the board.

    python tests/converters/stablehlo/conformance.py [--write docs/conformance-stablehlo.md] [PATTERN ...]

Each file of ``$CONVERTKIT_CASES/stablehlo-testdata`` is a program with inputs and expected outputs
inside.  The inputs become graph inputs, so that nothing can be folded away, the converted model runs
in ONNX Runtime (CPU, graph optimisations off), and what ``check.expect_*`` received is compared with
the file's own expectation.  A worker process does the work; where it crashes, that file counts as
wrong and a new worker takes the next one.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

TOLERANCE = {"float32": 1e-4, "float64": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}
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
    """``right``, ``wrong``, ``refused`` or ``failed`` (ONNX Runtime does not run it), and why."""
    from convertkit.errors import ConvertKitError

    try:
        model, feeds, expected = converted(path.read_text())
    except ConvertKitError as error:
        return "refused", " ".join(str(error).split("\n  ")[0].split())
    except Exception as error:  # noqa: BLE001 - whatever escapes is a defect of ours, and counts
        return "wrong", f"internal error {type(error).__name__}: {str(error)[:200]}"
    try:
        results = executed(model, feeds)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's own classes have no public base
        return "failed", str(error).split("\n")[0][:300]
    for index, (got, want) in enumerate(zip(results, expected, strict=True)):
        fault = difference(got, want)
        if fault:
            return "wrong", f"check {index}: {fault}"
    return ("right", "") if expected else ("refused", "no check in the file")


def converted(text):
    """The model with one output per check, its feeds, and what the checks expect."""
    from jaxlib.mlir import ir as mlir

    from convertkit.converters.stablehlo.importer import Names, convert_function
    from convertkit.converters.stablehlo.module import context, functions, prepare, read_module

    with context() as ctx, mlir.Location.unknown(ctx):
        module = read_module(ctx, text)
        main = functions(module)["main"]
        feeds = inputs_to_arguments(module, main, "inputs")
        checks = take_checks(main)
        expected = constants_of(module, "expected") if "expected" in functions(module) else []
        wanted = expectations(main, checks, expected)
        prepare(module)
        names = Names([f"x{i}" for i in range(len(feeds))])
        model = convert_function(module, functions(module)["main"], names)
        return model, dict(zip(names.inputs, feeds, strict=True)), wanted


def constants_of(module, name):
    """What a function without arguments returns, evaluated by the importer and ONNX Runtime."""
    from convertkit.converters.stablehlo.importer import Names, convert_function
    from convertkit.converters.stablehlo.module import functions, prepare

    prepared = module.operation.clone()
    prepare(prepared)
    model = convert_function(prepared, functions(prepared)[name], Names())
    return executed(model, {})


def inputs_to_arguments(module, main, name):
    """Turn ``call @inputs`` into arguments of main; returns the arrays to feed."""
    from jaxlib.mlir import ir as mlir

    from convertkit.converters.stablehlo.module import functions

    block = main.regions[0].blocks[0]
    calls = [
        op for op in block.operations if op.operation.name == "func.call" and "@" + name in str(op.attributes["callee"])
    ]
    if not calls or name not in functions(module):
        return []
    arrays = constants_of(module, name)
    types = []
    for result in calls[0].operation.results:
        argument = block.add_argument(result.type, mlir.Location.unknown(module.context))
        result.replace_all_uses_with(argument)
        types.append(result.type)
    calls[0].operation.erase()
    old = mlir.FunctionType(mlir.TypeAttr(main.attributes["function_type"]).value)
    main.attributes["function_type"] = mlir.TypeAttr.get(mlir.FunctionType.get([*old.inputs, *types], old.results))
    for attribute in ("arg_attrs",):
        if attribute in main.attributes:
            del main.attributes[attribute]
    return arrays


def take_checks(main):
    """Remove the checks from main and make their first operands its results."""
    from jaxlib.mlir import ir as mlir

    block = main.regions[0].blocks[0]
    checks = [
        op.operation
        for op in block.operations
        if op.operation.name == "stablehlo.custom_call" and "check." in str(op.attributes["call_target_name"])
    ]
    operands = [(check.operands[0], check.operands[1]) for check in checks]
    for check in checks:
        check.erase()
    last = list(block.operations)[-1]
    with mlir.InsertionPoint(last):
        mlir.Operation.create("func.return", operands=[got for got, _ in operands])
    last.operation.erase()
    old = mlir.FunctionType(mlir.TypeAttr(main.attributes["function_type"]).value)
    main.attributes["function_type"] = mlir.TypeAttr.get(
        mlir.FunctionType.get(old.inputs, [got.type for got, _ in operands])
    )
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
    return operands


def expectations(main, checks, expected):
    """The expected arrays: results of ``call @expected`` in the order the checks use them."""
    import numpy as np

    from convertkit.converters.stablehlo.mlir import constant_of

    wanted = []
    for _, value in checks:
        owner = value.owner
        if owner.name == "func.call":
            wanted.append(expected[list(owner.results).index(value)])
        else:
            constant = constant_of(owner.opview)
            parts = [constant.re, constant.im] if hasattr(constant, "re") else [constant]
            arrays = [np.asarray(part.const) for part in parts]
            wanted.append(np.stack(arrays, -1) if len(arrays) == 2 else arrays[0])
    return wanted


def executed(model, feeds):
    """Outputs of the model in ONNX Runtime, bfloat16 included."""
    import ml_dtypes
    import numpy as np
    import onnx
    import onnx_ir as ir
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    data = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    values = {}
    for name, array in feeds.items():
        if array.dtype == ml_dtypes.bfloat16:
            raw = np.array(array, order="C").view(np.uint16)
            values[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, onnx.TensorProto.BFLOAT16)
        else:
            values[name] = ort.OrtValue.ortvalue_from_numpy(array)
    names = [output.name for output in session.get_outputs()]
    results = []
    for result in session.run_with_ort_values(names, values):
        if result.element_type() == onnx.TensorProto.BFLOAT16:
            results.append(bfloat16_of(result))
        else:
            results.append(result.numpy())
    return results


def bfloat16_of(value):
    """A bfloat16 OrtValue as a NumPy array; the bindings cannot hand it over, DLPack can."""
    import ctypes

    import ml_dtypes
    import numpy as np

    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    raw = (ctypes.c_uint16 * count).from_address(value.data_ptr()) if count else []
    return np.array(raw, np.uint16).view(ml_dtypes.bfloat16).reshape(shape)


def difference(got, want):
    """Empty where the arrays agree, else what differs."""
    import numpy as np

    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    tolerance = TOLERANCE.get(got.dtype.name)
    if tolerance is None:
        wrong = got != want
        return f"{wrong.sum()} of {wrong.size} differ" if wrong.any() else ""
    a, e = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = (a == e) | (np.isnan(a) & np.isnan(e)) | (np.abs(a - e) <= tolerance + tolerance * np.abs(e))
    if close.all():
        return ""
    worst = np.argwhere(~close)[0]
    return f"{(~close).sum()} of {close.size} differ, first {a[tuple(worst)]!r} instead of {e[tuple(worst)]!r}"


# --- the parent ----------------------------------------------------------------------------------


class Worker:
    """A process that converts and runs files; replaced when it dies."""

    def __init__(self) -> None:
        self._process = None

    def ask(self, path):
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
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
        states = ", ".join(f"{counts[state]} {state}" for state in ("right", "refused", "failed", "wrong"))
        lines.append((title, len(chosen), counts["right"] / len(chosen), weighted, states))
    return lines


def board(results, seconds) -> str:
    """The board as Markdown: totals, operators by dtype, and every file that is not right with its reason."""
    text = ["# StableHLO conformance", "", "Written by `make conformance-stablehlo`; do not edit.", ""]
    text += [
        f"{len(results)} programs of the openxla testdata, converted and run in ONNX Runtime (CPU) "
        f"in {seconds:.0f} s, one thread.",
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
