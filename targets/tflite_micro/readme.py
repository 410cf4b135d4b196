"""The package's README: what lies in it, what it was verified with, how it is built."""

from __future__ import annotations

from dataclasses import dataclass

from convertkit.targets.tflite_micro import sources
from convertkit.targets.tflite_micro.footprint import Arena
from convertkit.targets.tflite_micro.operators import kernels


@dataclass(frozen=True, slots=True)
class Facts:
    """What the text tells: the operators, the arena, sizes in bytes, how many vectors there are, the runtime's name."""

    codes: tuple[str, ...]
    arena: Arena
    model_bytes: int
    vectors: int
    golden_bytes: int
    runtime: str


def readme(facts: Facts, skeleton: str) -> str:
    """Markdown; ``skeleton`` is what builds the test."""
    operators = "\n".join(f"- {code} (`{kernels()[code].add}`)" for code in facts.codes)
    files = ", ".join(f"`{name}`" for name in sources.skeleton(skeleton))
    return f"""# Model for TensorFlow Lite Micro

| file | what it is |
|---|---|
| `model.cc`, `model.h` | the model as an array, its interface, the size of its arena |
| `resolver.h` | the operators that it uses, and no other |
| `main.cc`, `golden.cc`, `golden.h` | a test that runs on the device and returns 0 where all golden vectors pass |
| {files} | what builds the test |
| `model.tflite` | the same model as a file, for tools |

## Memory
The model takes {facts.model_bytes:,} bytes of flash, the {facts.vectors} golden vectors take {facts.golden_bytes:,}.
The tensor arena takes {facts.arena.size:,} bytes of RAM: values and scratch memory {facts.arena.head:,}, structures of
the runtime {facts.arena.tail:,}. That was measured with reference kernels where pointers have 64 bits; with 32 bits the
structures are smaller. Optimised kernels (CMSIS-NN, ESP-NN) may ask for scratch memory of their own: the test prints
what is in use.

## Operators
{operators}

## Verified with
{facts.runtime}, which ran the array of `model.cc` in an arena of `kTensorArenaSize` bytes. `report.html` tells what it
was compared with. The golden vectors are its results: integers on the device may differ from them by 1, floats by
1e-5 of the greatest one.

## Build the test
    {sources.BUILD[skeleton]}

In a firmware project, compile `model.cc`, include `model.h` and `resolver.h`, and copy from `main.cc` what sets up the
interpreter. Where `main` is the platform's own, define `CONVERTKIT_NO_MAIN` and call `RunGoldenVectors()`.
"""
