"""Golden vectors of a packaged model: what an app gives and what it gets, as its typed API has them."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.parity.golden import Vector, answered
from convertkit.stage import FeedSource, Runner
from convertkit.targets.mobile.ports import Port, Ports

MOST_BYTES = 4 << 20
"""Of a test's files for all vectors; the first is there whatever it takes."""
RELATIVE = 1e-5
"""Of the greatest output: what is allowed to every float32 artifact, the same arithmetic in another order."""
STEPS = 1
"""By which a quantized output may differ: kernels for another processor may round in another way."""
ON_THE_FLY = 1e-2
"""Of the greatest output, where the runtime quantizes activations as it goes: one of 127 steps may fall otherwise."""


def vector_files(vector: Vector) -> dict[str, bytes]:
    """Each array's elements, little-endian, by a name of its own."""
    named = {**{f"in_{k}": v for k, v in vector.inputs.items()}, **{f"out_{k}": v for k, v in vector.outputs.items()}}
    return {f"{name}.bin": little(value) for name, value in named.items()}


def wav(samples: Array, rate: int) -> bytes:
    """A WAV file, mono, with PCM of 16 bits."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(little(samples.astype(np.int16)))
    return made.getvalue()


def little(value: Array) -> bytes:
    """The elements in order, little-endian, bools as bytes."""
    return np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes()


def vectors(
    artifact: Artifact, ports: Ports, runner: Runner, calibration: FeedSource | None, seed: int
) -> tuple[Vector, ...]:
    """What the packaged model computes for samples or drawn inputs; fewer where all would take too much room.

    Arrays by the ports' variables, state left out: each vector begins at the start of a sequence.
    """
    found = list[Vector]()
    for feed, outputs in answered(artifact, calibration, seed, runner.run):
        vector = Vector(
            {port.variable: port.given(feed[port.name]) for port in ports.given},
            {port.variable: port.given(np.asarray(outputs[port.name])) for port in ports.returned},
        )
        if found and sum(kept.size_bytes for kept in (*found, vector)) > MOST_BYTES:
            break
        found.append(vector)
    return tuple(found)


def allowed(port: Port, found: Sequence[Vector], precision: str, share: float | None = None) -> float:
    """By how much a real output may differ from the golden one: its steps, or a share of the greatest value.

    ``share`` is given for a runtime whose devices round in other types than the machine that exports.
    """
    greatest = max(float(np.abs(np.nan_to_num(each.outputs[port.variable])).max(initial=0.0)) for each in found)
    if share is None:
        share = ON_THE_FLY if precision in ("w8", "w4") else RELATIVE
    step = port.spec.lsb if port.spec.lsb is not None else port.scale
    return share * greatest + (0.0 if step is None else STEPS * step)
