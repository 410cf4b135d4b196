"""Functions of tf.math, tf.nn, tf.image, tf.signal, tf.linalg and of tf itself as SavedModels, through the routes.

    python bench/tensorflow_functions.py run FOLDER [--kinds float32,int32 …] [--only WORD …] [--seconds 400]
    python bench/tensorflow_functions.py page FOLDER                  docs/measurements/tensorflow-functions.md

A row of FOLDER/rows.jsonl for each function and type that TensorFlow takes; those there are skipped.  Each is converted
with a dynamic first dimension where it traces with one, else with fixed sizes; nothing is verified but what the routes
do themselves.  It is judged on noise, zeros, ones, large and tiny numbers, equal and negative ones, and on another
batch: integers are equal, floats within 2e-5 of the largest number, or 16 times the function's own error.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import onnxruntime as ort
import tensorflow as tf
from page_rows import counted, latest, not_right, run_or_page
from tensorflow_cases import ROWS, Case, cases
from tensorflow_numbers import numbers

from convertkit.converters.tensorflow import source as opening
from convertkit.converters.tensorflow.service import TensorFlowService
from convertkit.errors import ConvertKitError
from convertkit.onnx.complaints import complaint
from convertkit.onnx.load import load_model
from convertkit.onnx.onnxruntime_compat import ERRORS
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime.stage import DeliverOnnx
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "tensorflow-functions.md"
KINDS = ("float32", "int32", "bool", "float16", "int64", "float64", "uint8", "int8")
RUNTIMES = ("onnxruntime", "tflite")
NEAR, OWN = {"float16": 2e-3, "float64": 2e-5}, 16.0
FAULTS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, NotImplementedError)
PLACES = {
    "math": tf.math, "nn": tf.nn, "bitwise": tf.bitwise, "linalg": tf.linalg, "signal": tf.signal, "image": tf.image,
    "tf": tf,
}  # fmt: skip
DRAWS = (
    "random",
    "dropout",
    "shuffle",
    "candidate_sampler",
    "unravel_index",
    "print",
    "py_function",
    "io",
    "timestamp",
)
FLOAT_DRAWS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "noise": lambda rng, s: rng.standard_normal(s) * 1.5,
    "pixels": lambda rng, s: rng.random(s),
    "zeros": lambda rng, s: np.zeros(s),
    "ones": lambda rng, s: np.ones(s),
    "equal": lambda rng, s: np.full(s, 2.5),
    "negative": lambda rng, s: -np.abs(rng.standard_normal(s)),
    "halves": lambda rng, s: rng.integers(-6, 7, s) / 2,
    "large": lambda rng, s: rng.standard_normal(s) * 1e3,
    "tiny": lambda rng, s: rng.standard_normal(s) * 1e-4,
}


class Here:
    """The worker's service in this process, which has imported TensorFlow once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._service = TensorFlowService()

    def call(self, method: str, params: Any = None, arrays: Any = None) -> Any:
        """What the service answers."""
        return getattr(self._service, method)(params or {}, arrays or {})

    def __exit__(self, *_: object) -> None:
        """There is no process to end."""


def drawn(case: Case, kind: str, how: str, batch: int | None = None) -> list[np.ndarray]:
    """Inputs of a case; indices are drawn in each of them, and are at an end for all but noise."""
    rng, arrays = np.random.default_rng(5), []
    for place, full in enumerate(case.shapes):
        shape = (batch, *full[1:]) if batch else full
        bound = (case.below or {}).get(place)
        if bound is not None:
            ends = {"zeros": np.zeros(shape), "ones": np.full(shape, bound - 1), "equal": np.full(shape, bound // 2)}
            arrays.append(np.asarray(ends.get(how, rng.integers(0, bound, shape)), np.int32))
            continue
        if kind == "bool":
            odds = {"zeros": 0.0, "ones": 1.0}.get(how, 0.6)
            arrays.append(rng.random(shape) < odds)
        elif kind.startswith("float"):
            arrays.append(FLOAT_DRAWS[how](rng, shape).astype(kind))
        else:
            wide = FLOAT_DRAWS[how](rng, shape) * (3 if how != "large" else 1 if kind.endswith(("32", "64")) else 0.03)
            arrays.append((np.abs(wide) if kind.startswith("u") else wide).astype(kind))
    return arrays


def functions() -> Iterator[tuple[str, Case]]:
    """All that is tried: the written cases, then what takes one or two arrays and nothing else."""
    yield from (*cases(), *numbers())
    seen = set[int]()
    for place, module in PLACES.items():
        for name in sorted(dir(module)):
            found = getattr(module, name)
            odd = name.startswith("_") or any(word in name for word in DRAWS)
            if odd or inspect.isclass(found) or inspect.ismodule(found) or not callable(found) or id(found) in seen:
                continue
            seen.add(id(found))
            shape = {"image": (2, 6, 5, 3), "linalg": (3, 4, 4)}.get(place, ROWS)
            yield f"{place}.{name}", Case(found, (shape,), KINDS)
            yield f"{place}.{name}, two", Case(found, (shape, shape), KINDS)


def flat(results: Any) -> dict[str, Any]:
    """Results by name, as far as they are dense tensors."""
    found = [each for each in tf.nest.flatten(results) if tf.is_tensor(each) or isinstance(each, tf.Variable)]
    if any(each.dtype.is_complex or each.dtype in (tf.string, tf.variant, tf.resource) for each in found):
        raise TypeError("a result that is not a real number")
    return {f"y{place}": tf.identity(each) for place, each in enumerate(found)}


def traced(case: Case, kind: str) -> tuple[Any, bool] | None:
    """A module with the function, and whether its first dimension is dynamic; None where TensorFlow refuses."""
    dtypes = ["int32" if place in (case.below or {}) else kind for place in range(len(case.shapes))]
    names = [f"x{place}" for place in range(len(case.shapes))]
    arrays = drawn(case, kind, "noise")
    for free in (True, False):
        shapes = [(None, *shape[1:]) if free else shape for shape in case.shapes]
        specs = [tf.TensorSpec(*each) for each in zip(shapes, dtypes, names, strict=True)]
        module = tf.Module()
        try:
            module.call = tf.function(lambda *x: flat(case.call(*x)), input_signature=specs, autograph=False)
            if not module.call(*arrays):
                return None
            for batch in (1, 2) if free else ():  # what routes are tried with
                module.call(*drawn(case, kind, "noise", batch))
            made = module.call.get_concrete_function()
        except Exception:  # noqa: BLE001  whatever TensorFlow raises for what a function does not take
            continue
        operators = {op.type for op in made.graph.get_operations()}
        if not {op for op in operators if op not in ("Placeholder", "Identity", "Const", "NoOp")}:
            return None
        return module, free
    return None


def differs(got: Sequence[np.ndarray], want: Sequence[np.ndarray], wide: Sequence[np.ndarray] | None, kind: str) -> str:
    """What is wrong with results; empty where nothing is.  ``wide`` is what the function gives for float64."""
    for place, (have, single) in enumerate(zip(got, want, strict=True)):
        if have.shape != single.shape or have.dtype != single.dtype:
            return f"{have.dtype} {list(have.shape)}, TensorFlow gives {single.dtype} {list(single.shape)}"
        if single.dtype.kind != "f":
            if not np.array_equal(have, single):
                return "other integers"
            continue
        true = single.astype(np.float64)
        finer = wide[place] if wide else true
        finite = np.isfinite(true) & np.isfinite(finer)
        if not np.array_equal(have[~np.isfinite(true)], single[~np.isfinite(true)], equal_nan=True):
            return "other places are not finite"
        if not np.isfinite(have[finite]).all():
            return "not finite where TensorFlow is"
        error = np.abs(have.astype(np.float64) - finer)[finite].max(initial=0.0)
        own = np.abs(true - finer)[finite].max(initial=0.0)
        scale = np.abs(finer[finite]).max(initial=0.0)
        if error > NEAR.get(kind, 2e-5) * scale + OWN * own:
            return f"{error:.2g} off, TensorFlow {own:.2g}, largest {scale:.2g}"
    return ""


def samples(case: Case, module: Any, free: bool, kind: str) -> Iterator[tuple[str, list[np.ndarray], list[Any], Any]]:
    """Kinds of inputs with what TensorFlow gives, in float64 too where it takes that."""
    asked = [(how, None) for how in FLOAT_DRAWS] + ([("noise", 1), ("noise", 5)] if free else [])
    for how, batch in asked:
        arrays, wide = drawn(case, kind, how, batch), None
        try:
            want = module.call(*arrays)
        except tf.errors.OpError:
            continue
        if kind in ("float32", "float16"):
            try:
                finer = flat(case.call(*[tf.constant(x, tf.float64) if x.dtype == kind else x for x in arrays]))
                wide = [finer[name].numpy().astype(np.float64) for name in sorted(want)]
                if [each.shape for each in wide] != [tuple(want[name].shape) for name in sorted(want)]:
                    wide = None
            except Exception:  # noqa: BLE001  whatever TensorFlow raises where it wants float32
                wide = None
        yield f"{how} of {batch}" if batch else how, arrays, [want[name].numpy() for name in sorted(want)], wide


def results(case: Case, module: Any, free: bool, kind: str) -> Iterator[tuple[str, str, str]]:
    """Runtime, verdict and reason, the second runtime only where the first is right."""
    runtime = RUNTIMES[0]
    with tempfile.TemporaryDirectory() as work:
        folder, made = Path(work) / "model", Path(work) / "made"
        (made / "delivered").mkdir(parents=True)
        try:
            tf.saved_model.save(module, str(folder), signatures={"serving_default": module.call})
            opened = opening.open_saved_model(folder, ExportOptions(str(folder), ("onnxruntime",), "out"), made)
            artifact = opened.stage().run(opened.artifact, made)
            fixed = free and not any(isinstance(size, str) for each in artifact.inputs for size in each.shape)
            given = list(samples(case, module, free and not fixed, kind))
            if fixed:  # the bridge's batch is one
                given = [(how, *_of_one(case, module, kind, how)) for how in FLOAT_DRAWS if _takes_one(case)]
            delivered = DeliverOnnx(None).run(artifact, made / "delivered")
            session = ort.InferenceSession(str(delivered.path))
            ends = [each.name for each in session.get_outputs()]
            yield (runtime, *_judged(lambda feed: dict(zip(ends, session.run(None, feed), strict=True)), given, kind))
            runtime, path = RUNTIMES[1], Path(work) / "model.tflite"
            compile_model(load_model(artifact.path), Options(input_layout="nchw")).write(path)
            from ai_edge_litert.interpreter import Interpreter

            signature = Interpreter(str(path), num_threads=1).get_signature_runner()
            yield (runtime, *_judged(lambda feed: signature(**feed), given, kind))
        except ConvertKitError as error:
            yield runtime, "refused", str(error).splitlines()[0].replace(work, "")
        except ERRORS as error:
            yield runtime, "fault", f"{type(error).__name__}: {complaint(error)}"
        except FAULTS as error:
            yield runtime, "fault", f"{type(error).__name__}: {error}".replace(work, "")[:300]


def _takes_one(case: Case) -> bool:
    return all(len(shape) for shape in case.shapes)


def _of_one(case: Case, module: Any, kind: str, how: str) -> tuple[list[np.ndarray], list[Any], Any]:
    arrays = drawn(case, kind, how, 1)
    try:
        want = module.call(*arrays)
    except tf.errors.OpError:
        return arrays, [], None
    return arrays, [want[name].numpy() for name in sorted(want)], None


def _judged(
    call: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]], given: Sequence[Any], kind: str
) -> tuple[str, str]:
    """Verdict and reason of a runtime."""
    wrong = []
    for how, arrays, want, wide in given:
        if not want:
            continue
        try:
            found = call({f"x{place}": array for place, array in enumerate(arrays)})
        except Exception as error:  # noqa: BLE001  whatever a runtime raises
            wrong.append(f"{how}: {type(error).__name__}: {str(error)[:200]}")
            continue
        said = differs([found[f"y{place}"] for place in range(len(want))], want, wide, kind)
        wrong += [f"{how}: {said}"] if said else []
    return ("wrong", "; ".join(wrong)) if wrong else ("right", "")


def run(folder: Path, kinds: list[str], only: list[str], seconds: float) -> None:
    """A row for each function and type that has none."""
    folder.mkdir(exist_ok=True, parents=True)
    rows, began = folder / "rows.jsonl", time.perf_counter()
    done = {row["name"] for row in latest(rows)}
    tf.config.threading.set_inter_op_parallelism_threads(1)  # as the service, and before anything runs
    opening.Worker = Here  # type: ignore[assignment,misc]  # TensorFlow is imported once
    for kind in kinds:
        for name, case in functions():
            title = f"{name}({kind})"
            if title in done or kind not in case.kinds or (only and not any(word in title for word in only)):
                continue
            if time.perf_counter() - began > seconds:
                return
            found, row = traced(case, kind), dict[str, Any](name=title)
            for runtime, verdict, reason in results(case, *found, kind) if found else ():
                row[runtime] = [verdict, reason]
            with rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
            if any(verdict != "right" for verdict, _ in (row[each] for each in RUNTIMES if each in row)):
                print(json.dumps(row)[:500], flush=True)


def page(folder: Path) -> None:
    """Counts by type, and all that is not right."""
    rows = sorted((row for row in latest(folder / "rows.jsonl") if len(row) > 1), key=lambda row: str(row["name"]))
    lines = [
        "# TensorFlow, function by function",
        "",
        f"Generated by `python bench/tensorflow_functions.py` with TensorFlow {tf.__version__}: functions of",
        "`tf.math`, `tf.nn`, `tf.image`, `tf.signal`, `tf.linalg`, `tf.bitwise` and `tf` that take one or two",
        "arrays, and those of `bench/tensorflow_cases.py`, as SavedModels with a dynamic first dimension where",
        "they trace with one. Each went through the routes and the compiler, unverified beyond what the routes do",
        "themselves, and was judged on noise, pixels, zeros, ones, equal, negative, half-integer, large and tiny",
        "numbers and other batches. A run keeps the rows that are there: float64 and what was right in float32 were",
        "not run again after the last changes, but for the places of float64 values.",
        "",
        "| type | runtime | right | refused | wrong | fault |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for runtime in RUNTIMES:
            told = counted([row for row in rows if row["name"].endswith(f"({kind})")], runtime)
            lines += [f"| {kind} | {runtime} | {told} |"] if told else []
    lines += ["", "What is not right:", "", *not_right(rows, RUNTIMES, "function")]
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    run_or_page(__doc__, KINDS, run, page)
