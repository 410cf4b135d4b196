"""Golden vectors beside a package: inputs with what the evaluator gives for them, and an XCTest that compares there."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Array, Artifact
from convertkit.parity.golden import answered
from convertkit.stage import FeedSource
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.package.program import read_package
from convertkit.targets.coreml.runner import encoded

MOST_BYTES = 1 << 22
"""Of all vectors; the first is there whatever it takes."""
_RELATIVE = {"float32": 1e-3, "float16": 5e-2, "int8": 1e-1}
"""Of the largest output: what the test allows.  Not measured on a device; float16 units round at other places."""


def write_golden(artifact: Artifact, calibration: FeedSource | None, seed: int, computes_in: str) -> None:
    """Write ``golden.json`` and ``GoldenTests.swift`` beside the package."""
    program = read_package(artifact.path)
    evaluator = Evaluator(program.block)
    plain = replace(artifact, inputs=tuple(replace(spec, perm=()) for spec in artifact.inputs))
    vectors, size = list[Mapping[str, object]](), 0

    def run(feed: Mapping[str, Array]) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
        inputs = encoded(artifact.inputs, program.block.inputs, feed)
        return inputs, evaluator.run(inputs)

    for _, (inputs, outputs) in answered(plain, calibration, seed, run):
        size += sum(each.nbytes for each in (*inputs.values(), *outputs.values()))
        if vectors and size > MOST_BYTES:
            break
        vectors.append({"inputs": _told(inputs), "outputs": _told(outputs)})
    golden = {"package": artifact.path.name, "relative": _RELATIVE[computes_in], "vectors": vectors}
    folder = artifact.path.parent
    (folder / "golden.json").write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    source = Path(__file__).with_name("swift") / "GoldenTests.swift"
    (folder / "GoldenTests.swift").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")


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
