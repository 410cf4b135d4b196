"""Golden vectors: inputs with the outputs that TensorFlow Lite Micro gives for them here, for a test on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.parity.golden import golden_feeds
from convertkit.stage import FeedSource
from convertkit.targets.tflite_micro.c_array import ALIGNMENT_BYTES, rows
from convertkit.targets.tflite_micro.runtime import MicroInterpreter

MOST_BYTES = 1 << 16
"""Of flash for all vectors; the first is there whatever it takes."""
STEPS = 1
"""By which an integer may differ: optimised kernels for a processor may round in another way than reference kernels."""
RELATIVE = 1e-5
"""Of the greatest output: what is allowed to every float32 artifact, the same arithmetic in another order."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Arrays in the file's order, as the model's own interface has them."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]

    @property
    def size_bytes(self) -> int:
        return sum(each.nbytes for each in (*self.inputs, *self.outputs))


def encoded_inputs(
    artifact: Artifact, names: Sequence[str], calibration: FeedSource | None, seed: int
) -> tuple[tuple[Array, ...], ...]:
    """Inputs for the vectors, in the order of ``names``: samples of the user's, else generated ones."""
    specs = {spec.name: spec for spec in artifact.inputs}
    feeds = golden_feeds(artifact, calibration, seed)
    return tuple(tuple(specs[name].encode(feed[name]) for name in names) for feed in feeds)


def vectors(interpreter: MicroInterpreter, inputs: Sequence[tuple[Array, ...]], outputs: int) -> tuple[Vector, ...]:
    """What the runtime computes for ``inputs``; fewer of them where all would take too much flash."""
    found: list[Vector] = []
    for each in inputs:
        interpreter.run(each)
        vector = Vector(each, tuple(np.array(interpreter.output(place)) for place in range(outputs)))
        if found and sum(kept.size_bytes for kept in (*found, vector)) > MOST_BYTES:
            break
        found.append(vector)
    return tuple(found)


def golden_header(found: Sequence[Vector], namespace: str) -> str:
    """``golden.h``: how many vectors there are, and tables of their arrays."""
    first = found[0]
    return f"""#ifndef CONVERTKIT_GOLDEN_H_
#define CONVERTKIT_GOLDEN_H_

namespace {namespace} {{

constexpr int kGoldenCount = {len(found)};
constexpr int kGoldenInputs = {len(first.inputs)};
constexpr int kGoldenOutputs = {len(first.outputs)};

// Integers may differ by this much, as optimised kernels round in their own way.
constexpr int kGoldenSteps = {STEPS};
// Floats may differ by this share of the greatest one.
constexpr double kGoldenRelative = {RELATIVE!r};

extern const unsigned char* const kGoldenInput[kGoldenCount][kGoldenInputs];
extern const unsigned char* const kGoldenOutput[kGoldenCount][kGoldenOutputs];

}}  // namespace {namespace}

#endif  // CONVERTKIT_GOLDEN_H_
"""


def golden_source(found: Sequence[Vector], namespace: str) -> str:
    """``golden.cc``: every array as bytes, little-endian."""
    arrays = [_array(f"kInput{at}_{place}", each) for at, vector in enumerate(found) for place, each in _ins(vector)]
    arrays += [_array(f"kOutput{at}_{place}", each) for at, vector in enumerate(found) for place, each in _outs(vector)]
    inputs = ",\n".join(_row("kInput", at, len(vector.inputs)) for at, vector in enumerate(found))
    outputs = ",\n".join(_row("kOutput", at, len(vector.outputs)) for at, vector in enumerate(found))
    return (
        '#include "golden.h"\n\n'
        f"namespace {namespace} {{\n\nnamespace {{\n\n" + "\n".join(arrays) + "\n}  // namespace\n\n"
        f"const unsigned char* const kGoldenInput[kGoldenCount][kGoldenInputs] = {{\n{inputs}\n}};\n"
        f"const unsigned char* const kGoldenOutput[kGoldenCount][kGoldenOutputs] = {{\n{outputs}\n}};\n\n"
        f"}}  // namespace {namespace}\n"
    )


def _ins(vector: Vector) -> Iterator[tuple[int, Array]]:
    yield from enumerate(vector.inputs)


def _outs(vector: Vector) -> Iterator[tuple[int, Array]]:
    yield from enumerate(vector.outputs)


def _row(name: str, at: int, count: int) -> str:
    return "    {" + ", ".join(f"{name}{at}_{place}" for place in range(count)) + "}"


def _array(name: str, value: Array) -> str:
    little = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"))
    return f"alignas({ALIGNMENT_BYTES}) const unsigned char {name}[] = {{\n{rows(little.tobytes())}\n}};\n"
