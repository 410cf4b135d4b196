"""Every function of jax.numpy, jax.lax, jax.nn and jax.scipy.special that takes one or two arrays, through the route.

    python bench/jax_functions.py run FOLDER [--kinds float32,int32 …] [--only WORD …] [--seconds 400]
    python bench/jax_functions.py page FOLDER                                docs/measurements/jax-functions.md

A row of FOLDER/rows.jsonl for each function and type that JAX compiles; those there are skipped.  Nothing is
verified on the way: what is wrong here is what verification has to find.  A sample is right where integers are equal,
and floats are within 2e-5 of the largest number (2e-3 for float16 and bfloat16).
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime as ort
from jax import export
from page_rows import counted, latest, not_right, run_or_page

from convertkit.converters.stablehlo.importer import to_onnx
from convertkit.errors import ConvertKitError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "jax-functions.md"
KINDS = ("float32", "int32", "uint8", "int8", "bool", "float16", "int16", "uint32")
RUNTIMES = ("onnxruntime", "tflite")
NEAR = {"float16": 2e-3}
FAULTS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, NotImplementedError)
PLACES = {"jnp": jnp, "lax": jax.lax, "nn": jax.nn, "special": jax.scipy.special, "linalg": jnp.linalg, "fft": jnp.fft}
LEFT = frozenset(
    {"save", "savez", "load", "fromfile", "empty", "empty_like", "array_repr", "array_str", "printoptions"}
)


def drawn(kind: str, seed: int) -> np.ndarray:
    """A square, as products want one; both signs where there are signs."""
    rng = np.random.default_rng(seed)
    if kind == "bool":
        return rng.random((4, 4)) > 0.4
    if kind.startswith("float"):
        return (rng.standard_normal((4, 4)) * 1.5).astype(kind)
    return rng.integers(0 if kind.startswith("u") else -6, 7, (4, 4)).astype(kind)


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Names and functions, each once."""
    seen = set[int]()
    for place, module in PLACES.items():
        for name in sorted(dir(module)):
            found = getattr(module, name)
            odd = name.startswith("_") or name in LEFT or inspect.isclass(found) or inspect.ismodule(found)
            if odd or not callable(found) or id(found) in seen:
                continue
            seen.add(id(found))
            yield f"{place}.{name}", found


def compiled(function: Callable[..., Any], kind: str) -> tuple[Any, list[np.ndarray], list[np.ndarray]] | None:
    """The exported function of one array, else of two, its inputs and outputs; None where JAX does not take them."""
    for count in (1, 2):
        arrays = [drawn(kind, seed) for seed in range(count)]
        try:
            made = export.export(jax.jit(lambda *a: jax.tree.leaves(function(*a))))(*arrays)
            outs = [np.asarray(each) for each in jax.jit(lambda *a: jax.tree.leaves(function(*a)))(*arrays)]
        except Exception:  # noqa: BLE001  whatever JAX raises for arrays that a function does not take
            continue
        if outs and not any(each.dtype.kind == "c" for each in outs) and made.module_kept_var_idx:
            return made, [arrays[place] for place in made.module_kept_var_idx], outs
    return None


def differs(got: list[np.ndarray], outs: list[np.ndarray], kind: str) -> str:
    """What is wrong with results; empty where nothing is."""
    for have, want in zip(got, outs, strict=True):
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"{have.dtype} {list(have.shape)}, JAX gives {want.dtype} {list(want.shape)}"
        if want.dtype.kind not in "fV":
            if not np.array_equal(have, want):
                return "other integers"
            continue
        wide, true = have.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(true)
        if not np.array_equal(wide[~finite], true[~finite], equal_nan=True) or not np.isfinite(wide[finite]).all():
            return "other places are not finite"
        error, scale = np.abs(wide - true)[finite].max(initial=0.0), np.abs(true[finite]).max(initial=0.0)
        if error > NEAR.get(kind, 2e-5) * scale:
            return f"{error:.2g} off, largest {scale:.2g}"
    return ""


def results(made: Any, feed: list[np.ndarray], outs: list[np.ndarray], kind: str) -> Iterator[tuple[str, str, str]]:
    """Runtime, verdict and reason, the second runtime only where the first is right."""
    runtime = RUNTIMES[0]
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "model.onnx"
        try:
            save_model(canonicalize(to_onnx(made.mlir_module())), path, "function", ())
            session = ort.InferenceSession(str(path))
            names, ends = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]
            given = dict(zip(names, feed, strict=True))
            wrong = differs(session.run(None, given), outs, kind)
            yield runtime, "wrong" if wrong else "right", wrong
            if wrong:
                return
            runtime = RUNTIMES[1]
            compile_model(load_model(path), Options(input_layout="nchw")).write(path.with_suffix(".tflite"))
            from ai_edge_litert.interpreter import Interpreter

            answer = Interpreter(str(path.with_suffix(".tflite")), num_threads=1).get_signature_runner()(**given)
            wrong = differs([answer[name] for name in ends], outs, kind)
            yield runtime, "wrong" if wrong else "right", wrong
        except ConvertKitError as error:
            yield runtime, "refused", str(error).splitlines()[0]
        except (*FAULTS, ort.capi.onnxruntime_pybind11_state.Fail) as error:
            yield runtime, "fault", f"{type(error).__name__}: {error}".replace(work, "")[:300]


def run(folder: Path, kinds: list[str], only: list[str], seconds: float) -> None:
    """A row for each function and type that has none."""
    folder.mkdir(exist_ok=True, parents=True)
    rows, began = folder / "rows.jsonl", time.perf_counter()
    done = {row["name"] for row in latest(rows)}
    for kind in kinds:
        for name, function in functions():
            title = f"{name}({kind})"
            if title in done or (only and not any(word in title for word in only)):
                continue
            if time.perf_counter() - began > seconds:
                return
            found = compiled(function, kind)
            row: dict[str, Any] = {"name": title}
            for runtime, verdict, reason in results(*found, kind) if found else ():
                row[runtime] = [verdict, reason]
            with rows.open("a") as file:
                file.write(json.dumps(row) + "\n")


def page(folder: Path) -> None:
    """Counts by type, and all that is not right."""
    rows = sorted((row for row in latest(folder / "rows.jsonl") if len(row) > 1), key=lambda row: str(row["name"]))
    lines = [
        "# JAX, function by function",
        "",
        f"Generated by `python bench/jax_functions.py` with JAX {jax.__version__}: each function of `jax.numpy`,",
        "`jax.lax`, `jax.nn`, `jax.scipy.special`, `jnp.linalg` and `jnp.fft` that takes one or two arrays of",
        "a type, on 4 × 4 numbers. Each went through the route, the canonical form and the compiler, unverified.",
        "TFLite is tried where ONNX Runtime is right. *Left* are functions that have not been tried yet.",
        "A histogram of integers has edges that one rounding of XLA decides; ONNX Runtime's bins are those of NumPy.",
        "",
        "| type | runtime | right | refused | wrong | fault | left |",
        "|---|---|---|---|---|---|---|",
    ]
    every, names = len(list(functions())), [row["name"] for row in latest(folder / "rows.jsonl")]
    for kind in KINDS:
        left = every - sum(name.endswith(f"({kind})") for name in names)
        for runtime in RUNTIMES:
            told = counted([row for row in rows if row["name"].endswith(f"({kind})")], runtime)
            lines += [f"| {kind} | {runtime} | {told} | {left} |"] if told else []
    lines += ["", "What is not right:", "", *not_right(rows, RUNTIMES, "function")]
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    run_or_page(__doc__, KINDS, run, page)
