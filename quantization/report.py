"""What a quantization tells about itself: JSON-able, for ``report.json`` and ``report.html``."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from convertkit.onnx.origin import location
from convertkit.quantization.calibrate.flat import shown_db
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.ranges import Affine
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.place.place import Placement
from convertkit.quantization.search.loop import Outcome
from convertkit.quantization.search.plan import Traits
from convertkit.quantization.weights.tune import Tuned

_BARS = 64
_WORST = 10
UNEVEN = "it joins parts of unlike ranges at the model's end, of which one scale would leave a few values"


def describe(
    units: tuple[Unit, ...],
    placement: Placement,
    statistics: Mapping[str, Statistics],
    outcome: Outcome,
    tuned: Mapping[str, Tuned],
    traits: Traits,
    uneven: Collection[str] = (),
) -> Mapping[str, object]:
    """The diagnosis of one quantization.

    ``tensors``: name, node and location, measured and quantized range, scale, zero point, dtype,
    method, SNR in dB, histogram (64 bars over the measured range).  The method ``grid`` rounds nothing that was seen,
    and has no SNR.  ``worst``: the ten names with the
    least SNR.  ``score``: what the search went by; ``curve``: points of the trade-off.  ``float``: nodes
    that stay float and why, ``uneven`` joins among them.  ``layers``: tuned weights, with the layer's SNR before and
    after.
    """
    makers = {str(value.name): unit for unit in units for value in unit.outputs}
    tensors = [
        _tensor(
            str(value.name), parameters, statistics.get(str(value.name)), makers.get(str(value.name)), outcome, traits
        )
        for value, parameters in placement.values.items()
    ]
    ranked = sorted((float(str(item["snr_db"])), str(item["name"])) for item in tensors if item["snr_db"] is not None)
    unassigned = {unit.name: "no integer kernel, or integers are slower here"
               for unit in units if unit.name not in outcome.plan.integer and unit.rule is not None}  # fmt: skip
    return {
        "method": outcome.plan.method,
        "score": _score(outcome.score.snr_db, outcome.score.worst_db, outcome.score.drop),
        "tensors": tensors,
        "worst": [name for _, name in ranked[:_WORST]],
        "curve": _curve(outcome),
        "float": {**unassigned, **dict.fromkeys(sorted(uneven), UNEVEN), **outcome.kept},
        "layers": layers(tuned),
        "bias_corrected": sorted(outcome.plan.shifts),
    }


def _curve(outcome: Outcome) -> list[dict[str, object]]:
    return [
        {
            "float_nodes": point.float_units,
            "cost_ns": point.cost_ns,
            **_score(point.score.snr_db, point.score.worst_db, point.score.drop),
        }
        for point in outcome.curve
    ]


def layers(tuned: Mapping[str, Tuned]) -> list[dict[str, object]]:
    """Tuned weights: how they were found, and the SNR of the layer's output before and after, in dB."""
    return [
        {"name": name, "way": each.way, "snr_db_before": each.nearest_db, "snr_db_after": each.best_db}
        for name, each in tuned.items()
    ]


def _score(snr: float, worst: float, drop: float) -> dict[str, object]:
    return {"snr_db": snr, "worst_output_db": worst, "expected_drop": drop}


def _tensor(
    name: str,
    parameters: Affine,
    statistics: Statistics | None,
    maker: Unit | None,
    outcome: Outcome,
    traits: Traits,
) -> dict[str, object]:
    seen = statistics is not None and statistics.samples > 0
    grid = traits.grids.get(name)
    exact = grid is not None and grid.fits(parameters.scale)
    level = None
    if statistics is not None and seen and not exact:
        level = shown_db(statistics.histogram, parameters, traits.flats.get(name))
    return {
        "name": name,
        "node": "" if maker is None else maker.name,
        "location": "" if maker is None else location(maker.node),
        "range": [statistics.low, statistics.high] if statistics is not None and seen else None,
        "quantized_range": list(parameters.range),
        "scale": parameters.scale,
        "zero_point": parameters.zero_point,
        "dtype": parameters.dtype,
        "method": "grid" if exact else outcome.plan.methods.get(name, outcome.plan.method),
        "snr_db": None if level is None or not np.isfinite(level) else level,
        "histogram": _bars(statistics) if statistics is not None and seen else [],
    }


def _bars(statistics: Statistics) -> list[int]:
    histogram = statistics.histogram
    places = np.flatnonzero(histogram.counts)
    low, high = min(statistics.low, 0.0), max(statistics.high, 0.0)
    if low == high:
        return [histogram.total]
    centres = np.append(histogram.centres[places], 0.0)
    counts = np.append(histogram.counts[places], histogram.zeros)
    bars = np.clip((centres - low) / (high - low) * _BARS, 0, _BARS - 1).astype(int)
    return [int(count) for count in np.bincount(bars, counts, _BARS)]
