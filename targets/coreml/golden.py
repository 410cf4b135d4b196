"""Golden vectors beside a package: inputs with what the evaluator gives for them, and an XCTest that compares there."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.parity.feeds import generated_feed
from convertkit.stage import Feed, FeedSource
from convertkit.state import initial_state
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.package.program import read_package
from convertkit.targets.coreml.runner import encoded

MOST_VECTORS = 3
MOST_BYTES = 1 << 22
"""Of all vectors; the first is there whatever it takes."""
_RELATIVE = {"float32": 1e-3, "float16": 5e-2, "int8": 1e-1}
"""Of the largest output: what the test allows.  Not measured on a device; float16 units round at other places."""


def write_golden(artifact: Artifact, calibration: FeedSource | None, seed: int, computes_in: str) -> None:
    """Write ``golden.json`` and ``GoldenTests.swift`` beside the package."""
    program = read_package(artifact.path)
    evaluator = Evaluator(program.block)
    states, vectors, size = initial_state(artifact), list[Mapping[str, object]](), 0
    for feed in _feeds(artifact.inputs, calibration, seed):
        inputs = encoded(artifact.inputs, program.block.inputs, {**states, **feed})
        outputs = evaluator.run(inputs)
        size += sum(each.nbytes for each in (*inputs.values(), *outputs.values()))
        if vectors and size > MOST_BYTES:
            break
        vectors.append({"inputs": _told(inputs), "outputs": _told(outputs)})
    golden = {"package": artifact.path.name, "relative": _RELATIVE[computes_in], "vectors": vectors}
    folder = artifact.path.parent
    (folder / "golden.json").write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    source = Path(__file__).with_name("swift") / "GoldenTests.swift"
    (folder / "GoldenTests.swift").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")


def _feeds(inputs: Sequence[TensorSpec], calibration: FeedSource | None, seed: int) -> Iterator[Feed]:
    """Samples of the user's, else generated ones; whole numbers that nobody has bounded are 0 and 1."""
    if calibration is not None:
        yield from islice(calibration, MOST_VECTORS)
        return
    drawn = [replace(spec, perm=()) for spec in inputs if not spec.is_state]
    bounded = all(spec.value_range or "float" in spec.dtype for spec in drawn)
    rng = np.random.default_rng(seed)
    for kind in range(MOST_VECTORS):
        yield generated_feed(drawn, {}, rng, kind if bounded else 0)


def _told(arrays: Mapping[str, Array]) -> Mapping[str, object]:
    """Numbers as little-endian bytes in base64."""
    return {
        name: {
            "shape": list(value.shape),
            "type": value.dtype.name,
            "data": base64.b64encode(value.astype(value.dtype.newbyteorder("<")).tobytes()).decode(),
        }
        for name, value in arrays.items()
    }
