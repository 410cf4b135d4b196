"""A table of ONNX Runtime's costs, fitted to what chains and single operators were found to take.

Over several sizes ``call + work * rate + elements * element`` is fitted (see :class:`convertkit.profile.OpCost`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from convertkit.targets.forms.fitting import nonnegative
from convertkit.targets.onnxruntime.measured.chains import LEAST_NS, Found, Row
from convertkit.targets.onnxruntime.measured.others import CHAINS

MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
BORDERS = "QuantizeLinear"
NO_LAYOUT = frozenset({"Sigmoid", "LeakyRelu", "Add", "Mul", "MatMul"})
"""Chains of these have nothing but conversions at their ends."""

Table = dict[str, dict[str, float]]


def fit(features: npt.NDArray[np.float64], times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Factors, none below 0, with the least error.

    Errors are relative to the root of the time: large operators decide about a model, small ones about small models.
    """
    return nonnegative(features / np.sqrt(times)[:, None], np.sqrt(times))


def placed(rows: Sequence[Row], found: Sequence[Found]) -> Table:
    """The rows of operators that may be integers, and of what converts between integers and float where that shows."""
    times: dict[str, list[tuple[Row, float, float]]] = {}
    borders: list[tuple[float, float]] = []
    for row, (real, whole, ends) in zip(rows, found, strict=True):
        times.setdefault(row.kind, []).append((row, real, whole))
        if row.kind in NO_LAYOUT and not row.second and ends > 0:  # a difference below says nothing
            borders.append((float(np.prod(row.shape)), max(ends / 2, LEAST_NS)))
    made = {}
    for kind, listed in times.items():
        # Elements tell a matrix operator's rescaling from its products; elsewhere they are the work.
        features = np.array([(1.0, row.work, row.elements) for row, _, _ in listed])
        used = features if listed[0][0].op in MATRIX else features[:, :2]
        made[kind] = _factors(*(fit(used, np.array([each[place] for each in listed])) for place in (1, 2)))
    if not borders:
        return made
    conversion = fit(np.array([(1.0, size) for size, _ in borders]), np.array([cost for _, cost in borders]))
    return {**made, BORDERS: _factors(conversion, conversion)}


def beside(made: Mapping[str, Mapping[str, float]], known: Mapping[str, Mapping[str, float]]) -> Table:
    """The ``known`` rows that are not in ``made``, at the median pace of those that are, by float32."""
    paces = [made[kind]["float32"] / row["float32"] for kind, row in known.items() if made.get(kind, {}).get("float32")]
    pace = float(np.median(paces))
    return {
        kind: {name: value * pace for name, value in row.items()} for kind, row in known.items() if kind not in made
    }


def others(found: Mapping[tuple[str, str], Sequence[tuple[float, float]]]) -> Table:
    """The rows of other operators, of elements and nanoseconds by operator and type."""
    rows: Table = {}
    for (name, kind), listed in found.items():
        work, times = np.array(listed).T
        call, rate = fit(np.stack([np.ones_like(work), work], 1), times)
        rows.setdefault(name, {}).update({kind: float(rate), f"{kind}_call": float(call)})
    return rows


def call(chains: Sequence[float]) -> dict[str, float]:
    """What a call and a node take whatever they compute, of chains of :data:`CHAINS` nodes on a few numbers."""
    alone, node = nonnegative(np.array([(1.0, float(length)) for length in CHAINS]), np.array(chains))
    return {"call": float(alone), "node": float(node)}


def _factors(real: npt.NDArray[np.float64], whole: npt.NDArray[np.float64]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for name, factors in (("float32", real), ("int8", whole)):
        each, rate, element = (*factors, 0.0)[:3]
        named = {name: rate, f"{name}_call": each, f"{name}_element": element}
        parts |= {key: float(value) for key, value in named.items() if value}
    return parts
