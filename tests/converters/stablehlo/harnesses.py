"""JAX's own operator programs, which the openxla testdata was made of, run against JAX itself.

    python tests/converters/stablehlo/harnesses.py [--each N] [--seconds S] [--seed K] [PATTERN ...]

Of every group, N programs are drawn (all, without ``--each``) and run in ONNX Runtime on inputs that JAX
makes; the outcomes are those of ``conformance.py``.
"""

from __future__ import annotations

import argparse
import fnmatch
import random
import sys
import time
from collections import Counter, defaultdict

import jax
import numpy as np
from jax import export
from jax._src.internal_test_util import test_harnesses

from convertkit.converters.stablehlo.importer import Names, Parsed
from convertkit.errors import ConvertKitError
from tests.converters.stablehlo.programs import difference, executed

_OPEN = "isstable_False"
"""Sorts that leave open in which order elements of equal keys come."""


def harnesses(patterns=("*",), each=None, seed=0):
    """The programs that JAX runs on CPU, ``each`` of every group and dtype in an order that ``seed`` gives."""
    groups = defaultdict(list)
    for harness in test_harnesses.all_harnesses:
        runs = not any(limit.filter(device="cpu", dtype=harness.dtype) for limit in harness.jax_unimplemented)
        if (
            runs
            and _OPEN not in harness.fullname
            and any(fnmatch.fnmatch(harness.fullname, pattern) for pattern in patterns)
        ):
            groups[harness.group_name, np.dtype(harness.dtype).name].append(harness)
    rng = random.Random(seed)
    chosen = [
        harness for _, group in sorted(groups.items()) for harness in rng.sample(group, min(each or 10**6, len(group)))
    ]
    rng.shuffle(chosen)
    return chosen


def outcome(harness, seed=0):
    """``right``, ``wrong``, ``refused`` or ``failed``, and why."""
    arguments = [np.asarray(each) for each in harness.dyn_args_maker(np.random.RandomState(seed))]
    with jax.enable_x64(True):
        function = jax.jit(harness.dyn_fun)
        program = export.export(function, platforms=("cpu",))(*arguments)
        expected = [np.asarray(each) for each in jax.tree.leaves(program.call(*arguments))]
    kept = [arguments[place] for place in program.module_kept_var_idx]
    feeds = {f"x{place}": parts(value) for place, value in enumerate(kept)}
    try:
        model = Parsed(program.mlir_module_serialized).to_onnx(Names(list(feeds)))
    except ConvertKitError as error:
        return "refused", " ".join(str(error).split("\n  ")[0].split())
    except Exception as error:  # noqa: BLE001 - whatever escapes is a defect of ours, and counts
        return "wrong", f"internal error {type(error).__name__}: {str(error)[:200]}"
    try:
        results = executed(model, feeds)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's own classes have no public base
        return "failed", str(error).split("\n")[0][:300]
    for index, (got, want) in enumerate(zip(results, map(parts, expected), strict=True)):
        fault = difference(got, want)
        if fault:
            return "wrong", f"output {index}: {fault}"
    return "right", ""


def parts(array):
    """Complex numbers with real and imaginary part as a last axis."""
    return np.stack([array.real, array.imag], -1) if np.iscomplexobj(array) else array


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--each", type=int)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began, counts = time.monotonic(), Counter()
    for harness in harnesses(arguments.patterns, arguments.each, arguments.seed):
        if time.monotonic() - began > arguments.seconds:
            break
        try:
            state, why = outcome(harness)
        except Exception as error:  # noqa: BLE001 - JAX cannot run the program itself
            state, why = "not run by JAX", f"{type(error).__name__}: {str(error)[:120]}"
        counts[state] += 1
        if state != "right":
            print(state, harness.fullname, why, flush=True)
    print(dict(counts), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
