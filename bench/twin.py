"""How far ONNX Runtime's float32 lies from the float64 twin, in units of the twin's spread.

python bench/twin.py [--graphs N] [MODEL.onnx …]     (models get seeded inputs)
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import ConvertKitError
from convertkit.onnx.index_bounds import with_index_bounds
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.specs import interface
from convertkit.onnx.twin import Twin
from convertkit.parity.feeds import proof_feeds
from convertkit.stage import Feed
from tests.targets.tflite.random_graphs import feeds_for
from tests.targets.tflite.random_steps import graphs

QUANTILES = (0.5, 0.99, 0.999, 1.0)


def artifact(path: Path) -> Artifact:
    """The file with its interface."""
    inputs, outputs = interface(load_model(path))
    return Artifact(path, "onnx", inputs, outputs, sha256_of(path))


def ratios(made: Artifact, feed: Feed) -> Iterator[tuple[np.ndarray, float]]:
    """Of each float output that float32 does not compute exactly: error / spread elementwise, and of both maxima."""
    with OnnxRunner(made) as runner, Twin(made) as twin:
        found, truth = runner.run(feed), twin.run(feed)
    for name, value in truth.values.items():
        if value.dtype.kind != "f":
            continue
        known = np.isfinite(value) & np.isfinite(found[name]) & np.isfinite(truth.spread[name])
        error = np.abs(found[name].astype(np.float64) - value)[known]
        spread = truth.spread[name][known]
        if error.max(initial=0.0) or spread.max(initial=0.0):
            yield error / np.maximum(spread, 1e-300), float(error.max() / max(spread.max(), 1e-300))


def told(title: str, elements: list[np.ndarray], outputs: list[float], seconds: float) -> str:
    """One line of the table."""
    each = np.quantile(np.concatenate(elements), QUANTILES)
    largest = np.quantile(outputs, QUANTILES)
    cells = (f"{number:.2g}" for number in (*each, *largest))
    return f"| {title} | {len(outputs)} | {' | '.join(cells)} | {seconds:.1f} |"


def of_model(path: Path) -> str:
    """A model on its first proof input."""
    made = artifact(path)
    feed = proof_feeds(with_index_bounds(made, made.inputs), None, 0)[0]
    begun = time.perf_counter()
    found = list(ratios(made, feed))
    elements, outputs = zip(*found, strict=True)
    return told(path.stem, list(elements), list(outputs), time.perf_counter() - begun)


def of_graphs(count: int) -> str:
    """Random graphs of the property tests, all together."""
    elements, outputs, path = [], [], Path(tempfile.mkdtemp()) / "graph.onnx"

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(graphs())
    def collect(model: onnx.ModelProto) -> None:
        onnx.save(model, path)
        try:
            for each, largest in ratios(artifact(path), feeds_for(model)[0]):
                elements.append(each)
                outputs.append(largest)
        except ConvertKitError as refusal:
            print(refusal)

    begun = time.perf_counter()
    collect()
    return told(f"{count} random graphs", elements, outputs, time.perf_counter() - begun)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--graphs", type=int, default=0)
    options = parser.parse_args()
    names = [f"{100 * quantile:g} %" for quantile in QUANTILES]
    print("| model | outputs | " + " | ".join([*names, *(f"maxima, {name}" for name in names)]) + " | seconds |")
    print("|---" * (3 + 2 * len(QUANTILES)) + "|")
    for path in options.models:
        print(of_model(path), flush=True)
    if options.graphs:
        print(of_graphs(options.graphs))


if __name__ == "__main__":
    main()
