"""Golden vectors as Polygraphy reads them: ``--load-inputs`` and ``--load-outputs`` of ``polygraphy run``.

Inputs are a list of calls, outputs its ``RunResults``; an array is an ``.npy`` file in base64.  Source: the encoders in
polygraphy/json/serde.py and polygraphy/comparator/struct.py of Polygraphy 0.53.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort

from convertkit.artifact import Array, Artifact, Dim, TensorSpec
from convertkit.onnx import bfloats
from convertkit.parity.golden import Vector, answered, golden_feeds
from convertkit.stage import FeedSource, Outputs, Runner
from convertkit.targets.tensorrt.shapes import Range

MOST_BYTES = 4 << 20
"""Of all vectors; the first is there whatever it takes."""
SHARE = 1e-2
"""Of an output's greatest value: products in TF32 or float16 keep 10 bits of each factor, and layers add errors up."""
BFLOAT_SHARE = 4 * SHARE
"""Where values are bfloat16, of two bits fewer."""
STEPS = 2
"""Of an output's integers: by so much other engines' kernels were measured to differ that compute the same integers."""
_QUIET = 4
_CLASS = "polygraphy_class"


def vectors(
    artifact: Artifact, runner: Runner, calibration: FeedSource | None, seed: int, ranges: Sequence[Range] = ()
) -> tuple[Vector, ...]:
    """What ``runner`` computes for samples or drawn inputs; none where NumPy's files lack the type of an array."""
    if any(_lacks(spec) for spec in (*artifact.inputs, *artifact.outputs)):
        return ()
    found = list[Vector]()
    for feed, got in _answered(artifact, calibration, seed, ranges, runner):
        inputs = {spec.name: spec.encode(np.asarray(feed[spec.name])) for spec in artifact.inputs}
        vector = Vector(inputs, {spec.name: spec.encode(np.asarray(got[spec.name])) for spec in artifact.outputs})
        if found and sum(kept.size_bytes for kept in (*found, vector)) > MOST_BYTES:
            break
        found.append(vector)
    return tuple(found)


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


def roundings(artifact: Artifact, found: Sequence[Vector]) -> Mapping[str, float]:
    """By how much each output differs at most from that of a model which does not round to bfloat16 inside.

    Nothing where there is no bfloat16.  An engine that fuses operators rounds less often, and at other places.
    """
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    whole = bfloats.session(artifact.path, options, rounds=False)
    if whole is None:
        return {}
    most = dict[str, float]()
    for each in found:
        values = whole.run(list(each.outputs), each.inputs)
        for (name, rounded), exact in zip(each.outputs.items(), values, strict=True):
            apart = np.abs(np.asarray(rounded, np.float64) - np.asarray(exact, np.float64))
            most[name] = max(most.get(name, 0.0), float(np.nan_to_num(apart).max(initial=0.0)))
    return most


def allowed(spec: TensorSpec, found: Iterable[Vector], rounding: float | None = None) -> float:
    """By how much an engine's output may differ: a share of the greatest value, and steps of its integers.

    Of a model of bfloat16, twice of what its ``rounding`` changes in the output, where that is more.
    """
    if "float" not in spec.dtype:
        return 0.0
    greatest = max(float(np.abs(np.nan_to_num(each.outputs[spec.name])).max(initial=0)) for each in found)
    least = SHARE * greatest if rounding is None else max(BFLOAT_SHARE * greatest, 2 * rounding)
    return float(f"{least + STEPS * (spec.lsb or 0.0):.1e}")


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
