"""Calibration beside the bare forward passes: ``python bench/calibration.py MODEL.onnx CALIB.npz [--samples 1000]``.

Samples of CALIB.npz are repeated up to ``--samples``.  Bare passes: ONNX Runtime's default session on the same model,
fed and asked for its outputs.  Wall seconds in turns, the best of ``--rounds`` each, on a quiet machine; peak RSS is
that of calibration, which runs first.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime as ort

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.plugins import target
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.calibrate.ranges import METHODS, Range, span
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.masks import measurable
from convertkit.quantization.prepare.prepare import prepare
from convertkit.recipe import ExportOptions
from convertkit.stage import Feed


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ranges_of(found: Mapping[str, Statistics], method: str) -> list[Range]:
    """The range of every tensor."""
    return [span(statistics, method, "int8", False) for statistics in found.values()]


def main() -> None:
    """Measure one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    arrays = dict(np.load(args.calibration))
    model = canonicalize(load_model(args.model))
    prepare(model)
    profile = target("tflite").profile(ExportOptions(source="bench", precision="int8"))
    names = measurable(find_units(model.graph, profile))

    def feeds() -> Iterator[Feed]:
        for index in range(args.samples):
            yield {name: array[[index % len(array)]] for name, array in arrays.items()}

    found: dict[str, Statistics] = {}
    observed = seconds(lambda: found.update(observe(model, names, feeds(), {})))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    session = ort.InferenceSession(args.model)
    bare = float("inf")
    for turn in range(args.rounds):
        bare = min(bare, seconds(lambda: [session.run(None, feed) for feed in feeds()] and None))
        if turn:
            observed = min(observed, seconds(lambda: observe(model, names, feeds(), {})))
    print(f"{args.samples} samples, {len(names)} tensors: peak RSS {peak:.0f} MB, bare passes {bare:.2f} s")
    for method in METHODS:
        picked = seconds(partial(ranges_of, found, method))
        print(f"{method:15} {(observed + picked) / bare:.2f} x the bare passes")


if __name__ == "__main__":
    main()
