"""The ONNX backend node tests as files: static models, their data, and three more feeds each.

The cases are regenerated from the installed onnx package.  What a case feeds as a graph input but an
exporter would store as a parameter (weights, axes, pads; `parameters` in eligible.json) becomes an
initializer.  A case becomes `<name>.onnx` and `<name>.npz` (`in:X`, `out:Y`, `feed0:X` …).
"""

from __future__ import annotations

import json
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

HERE = Path(__file__).parent
EXTRA_FEEDS = 3

# Positions in these inputs must stay as they are: repeated ones make the result undefined.
_DISTINCT = frozenset({"Scatter", "ScatterElements", "ScatterND", "MaxUnpool", "TensorScatter"})
# Rows are shuffled whole, so that boxes stay boxes.
_ROWWISE = {"NonMaxSuppression": {"boxes": 1, "scores": 2}, "RoiAlign": {"rois": 0}}


@dataclass(frozen=True, slots=True)
class Eligible:
    """One line of eligible.json: a case that a static model can hold."""

    name: str
    op: str
    parameters: tuple[str, ...]


def eligible() -> tuple[Eligible, ...]:
    """All eligible cases, in the order of the file."""
    rows = json.loads((HERE / "eligible.json").read_text())["cases"]
    return tuple(Eligible(row["name"], row["op"], tuple(row["parameters"])) for row in rows)


def sample(every: int = 9) -> tuple[Eligible, ...]:
    """A fixed sample: the first case of each operator and each ``every``-th of the rest."""
    seen: set[str] = set()
    chosen = []
    for index, case in enumerate(eligible()):
        if case.op not in seen or index % every == 0:
            chosen.append(case)
        seen.add(case.op)
    return tuple(chosen)


def write(cases: tuple[Eligible, ...], folder: Path) -> dict[str, dict[str, float]]:
    """Write the files of ``cases`` and return each case's own ``rtol`` and ``atol``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        tests = {test.name: test for test in collect_testcases(None)}
    tolerances = {}
    for case in cases:
        test = tests[case.name]
        assert test.model is not None
        assert test.data_sets
        inputs, outputs = test.data_sets[0]
        _write_case(case, test.model, list(inputs), list(outputs), folder)
        tolerances[case.name] = {"rtol": test.rtol, "atol": test.atol}
    return tolerances


def _write_case(case: Eligible, source: onnx.ModelProto, inputs: list, outputs: list, folder: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(source)
    values = dict(zip((value.name for value in model.graph.input), map(_array, inputs), strict=True))
    expected = dict(zip((value.name for value in model.graph.output), map(_array, outputs), strict=True))
    for name in case.parameters:
        (place,) = [i for i, value in enumerate(model.graph.input) if value.name == name]
        del model.graph.input[place]
        model.graph.initializer.append(numpy_helper.from_array(values.pop(name), name))
    arrays = {f"in:{name}": value for name, value in values.items()}
    arrays |= {f"out:{name}": value for name, value in expected.items()}
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    for number in range(EXTRA_FEEDS):
        for name, value in values.items():
            arrays[f"feed{number}:{name}"] = _another(case.op, name, value, rng)
    onnx.save(model, folder / f"{case.name}.onnx")
    np.savez(folder / f"{case.name}.npz", **arrays)


def _array(value: object) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _another(op: str, name: str, value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other data of the same shape, within the range that the suite's own data shows to be valid."""
    if name in _ROWWISE.get(op, {}):
        return rng.permutation(value, axis=_ROWWISE[op][name])
    if value.dtype == bool:
        return rng.random(value.shape) < 0.5
    if value.dtype.kind in "iu":
        return value if op in _DISTINCT else rng.choice(value.reshape(-1), value.shape)
    if op == "OneHot":  # its float input is an index
        return rng.choice(value.reshape(-1), value.shape)
    drawn = rng.choice(value.reshape(-1), (2, *value.shape))
    if not np.isfinite(value).all():
        return drawn[0]
    share = rng.random(value.shape)
    mixed = (drawn[0] * share + drawn[1] * (1 - share)).astype(value.dtype)
    return np.clip(mixed, value.min(), value.max()).reshape(value.shape)
