"""Golden vectors: inputs with the outputs that TensorFlow Lite Micro gives for them here, for a test on the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.parity.golden import answered
from convertkit.stage import FeedSource
from convertkit.targets.tflite_micro.c_array import ALIGNMENT_BYTES, rows
from convertkit.targets.tflite_micro.file import FileGraph
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


def vectors(
    interpreter: MicroInterpreter, artifact: Artifact, main: FileGraph, calibration: FeedSource | None, seed: int
) -> tuple[Vector, ...]:
    """What the runtime computes for samples or generated inputs; fewer where all would take too much flash."""
    specs = {spec.name: spec for spec in artifact.inputs}
    names = [main.tensors[index].name for index in main.inputs]

    def run(feed: Mapping[str, Array]) -> Vector:
        given = tuple(specs[name].encode(feed[name]) for name in names)
        interpreter.run(given)
        return Vector(given, tuple(np.array(interpreter.output(place)) for place in range(len(main.outputs))))

    found: list[Vector] = []
    for _, vector in answered(artifact, calibration, seed, run):
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
