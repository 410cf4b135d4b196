"""Golden vectors as Polygraphy reads them: ``--load-inputs`` and ``--load-outputs`` of ``polygraphy run``.

Inputs are a list of calls, outputs its ``RunResults``; an array is an ``.npy`` file in base64.  Source: the encoders in
polygraphy/json/serde.py and polygraphy/comparator/struct.py of Polygraphy 0.53.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact, Dim, TensorSpec
from convertkit.parity.golden import Vector, answered, golden_feeds
from convertkit.stage import FeedSource, Outputs, Runner
from convertkit.targets.tensorrt.shapes import Range

MOST_BYTES = 4 << 20
"""Of all vectors; the first is there whatever it takes."""
SHARE = 1e-2
"""Of an output's greatest value: products in TF32 keep 10 bits of each factor, and layers add errors up."""
SHARES = {"float16": 3e-2, "bfloat16": 4e-2}
"""The same where a model computes in such a type, whose sums may be rounded to it, too.  Source of the first: 1.9 % was
measured on a GPU (``docs/measurements/gpu.md``); bfloat16 has three bits fewer."""
TIMES = 3
"""Of what rounding changes.  In ONNX Runtime on a GPU right results were up to 1.4 times as far away
(``docs/measurements/gpu.md``); TensorRT fuses more and was not run."""
STEPS = 2
"""Of an output's integers: by so much other engines' kernels were measured to differ that compute the same integers."""
_CLASS = "polygraphy_class"


def vectors(
    artifact: Artifact, runner: Runner, calibration: FeedSource | None, seed: int, ranges: Sequence[Range] = ()
) -> tuple[Vector, ...]:
    """What ``runner`` computes for samples or drawn inputs; none where NumPy's files lack the type of an array."""
    if any(_lacks(spec) for spec in (*artifact.inputs, *artifact.outputs)):
        return ()
    found = list[Vector]()
    for feed, got in _answered(artifact, calibration, seed, ranges, runner):
        vector = encoded(artifact, feed, got)
        if found and sum(kept.size_bytes for kept in (*found, vector)) > MOST_BYTES:
            break
        found.append(vector)
    return tuple(found)


def encoded(artifact: Artifact, feed: Mapping[str, Array], got: Outputs) -> Vector:
    """A call as the file has its arrays."""
    inputs = {spec.name: spec.encode(np.asarray(feed[spec.name])) for spec in artifact.inputs}
    return Vector(inputs, {spec.name: spec.encode(np.asarray(got[spec.name])) for spec in artifact.outputs})


def _answered(
    artifact: Artifact, calibration: FeedSource | None, seed: int, ranges: Sequence[Range], runner: Runner
) -> Iterator[tuple[Mapping[str, Array], Outputs]]:
    """Inputs of sizes that the engine takes, with outputs; where none are, drawn ones of the usual sizes."""
    given = list(golden_feeds(artifact, calibration, seed))
    if fitting := [feed for feed in given if _fit(artifact, feed, ranges)]:
        samples = None if calibration is None else fitting
        yield from answered(artifact, samples, seed, runner.run)
        return
    usual = {each.name: each.usual for each in ranges}
    inputs = tuple(replace(spec, shape=tuple(_sized(dim, usual) for dim in spec.shape)) for spec in artifact.inputs)
    yield from answered(replace(artifact, inputs=inputs), None, seed, runner.run)


def _sized(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    return sizes.get(dim, dim) if isinstance(dim, str) else dim


def _fit(artifact: Artifact, feed: Mapping[str, Array], ranges: Sequence[Range]) -> bool:
    limits = {each.name: (each.least, each.most) for each in ranges}
    sides = [zip(spec.shape, feed[spec.name].shape, strict=True) for spec in artifact.inputs]
    bounded = [(limits[dim], size) for pairs in sides for dim, size in pairs if isinstance(dim, str) and dim in limits]
    return all(least <= size <= most for (least, most), size in bounded)


def _lacks(spec: TensorSpec) -> bool:
    return spec.dtype in ("bfloat16", "string") or spec.dtype.startswith(("float8", "int4", "uint4"))


def share(precisions: Collection[str]) -> float:
    """Of an output's greatest value, what an engine with these types may differ by."""
    return max([SHARE, *(SHARES[name] for name in precisions if name in SHARES)])


def allowed(spec: TensorSpec, found: Iterable[Vector], change: float = 0.0, share: float = SHARE) -> float:
    """By how much an engine may differ: ``share`` of the greatest value or ``TIMES`` times ``change``, and steps.

    ``change`` is by how much rounding changes the output (``rounding.py``).  Other than floats are equal; infinite
    where rounding decides them, as it does the places of an ArgMax or TopK of what is nearly equal.
    """
    if "float" not in spec.dtype:
        return math.inf if change else 0.0
    greatest = max(float(np.abs(np.nan_to_num(each.outputs[spec.name])).max(initial=0)) for each in found)
    return float(f"{max(share * greatest, TIMES * change) + STEPS * (spec.lsb or 0.0):.1e}")


def as_json(atol: Mapping[str, float]) -> dict[str, float | None]:
    """Tolerances as JSON has them: None for an output that is not compared."""
    return {name: most if math.isfinite(most) else None for name, most in atol.items()}


def write_vectors(found: Sequence[Vector], runner: str, folder: Path) -> None:
    """``inputs.json`` and ``outputs.json`` in a new ``folder``; ``runner`` names what computed the outputs."""
    calls = [{name: _array(value) for name, value in each.inputs.items()} for each in found]
    results = [_iteration(each.outputs, runner) for each in found]
    folder.mkdir()
    for name, content in (("inputs", calls), ("outputs", {"lst": [[runner, results]], _CLASS: "RunResults"})):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _iteration(outputs: Mapping[str, Array], runner: str) -> dict[str, object]:
    values = {name: {"values": _array(value), _CLASS: "LazyArray"} for name, value in outputs.items()}
    return {"outputs": values, "runtime": None, "runner_name": runner, _CLASS: "IterationResult"}


def _array(value: Array) -> dict[str, str]:
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=False)
    return {"array": base64.b64encode(stream.getvalue()).decode(), _CLASS: "ndarray"}
