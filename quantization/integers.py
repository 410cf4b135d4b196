"""From a float model and calibration feeds to the QDQ model, step by step."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.profile import QuantProfile
from convertkit.progress import Progress
from convertkit.quantization.histogram import Statistics
from convertkit.quantization.islands import choose_integer
from convertkit.quantization.observe import observe
from convertkit.quantization.opset import INT16_OPSET, at_least
from convertkit.quantization.place import Placement, place
from convertkit.quantization.prepare import drop_unused, prepare
from convertkit.quantization.ranges import Range, span
from convertkit.quantization.units import Unit, find_units, quantizable_values
from convertkit.quantization.write import write
from convertkit.recipe import ExportOptions
from convertkit.stage import FeedSource


class Integers:
    """One quantization; ``diagnosis`` tells afterwards what was decided and why."""

    def __init__(
        self,
        model: ir.Model,
        profile: QuantProfile,
        options: ExportOptions,
        feeds: FeedSource,
        state: Mapping[str, Array],
        progress: Progress,
    ) -> None:
        self._model = at_least(model, INT16_OPSET) if profile.activation == "int16" else model
        self._profile, self._options, self._feeds = profile, options, feeds
        self._state, self._progress = state, progress
        self._statistics: Mapping[str, Statistics] = {}

    def quantized(self) -> ir.Model:
        """The QDQ model."""
        prepare(self._model)
        units = find_units(self._model.graph, self._profile)
        self._statistics = self._observed(units)
        integer = choose_integer(units, self._profile, insist=self._options.full_integer)
        self._refuse_float(units, integer)
        placement = self._placed(units, integer)
        write(self._model, units, placement, self._profile)
        drop_unused(self._model.graph)
        return self._model

    def diagnosis(self) -> Mapping[str, object]:
        """What the report shows."""
        return {}

    def _observed(self, units: tuple[Unit, ...]) -> Mapping[str, Statistics]:
        names = [str(value.name) for value in quantizable_values(units)]
        feeds = self._progress.track(self._feeds, len(self._feeds), "calibrating")
        return observe(self._model, names, feeds, self._state)

    def _placed(self, units: tuple[Unit, ...], integer: frozenset[Unit]) -> Placement:
        return place(units, integer, self._profile, self._statistics, self._pick)

    def _pick(self, names: tuple[str, ...], statistics: Statistics) -> Range:
        method = self._options.calib_method
        chosen = "mse" if method == "auto" else method
        return span(statistics, chosen, self._profile.activation, self._profile.symmetric)

    def _refuse_float(self, units: tuple[Unit, ...], integer: frozenset[Unit]) -> None:
        if not self._options.full_integer:
            return
        for unit in units:
            if unit not in integer and any(value.dtype == ir.DataType.FLOAT for value in unit.node.outputs):
                subject = f"{unit.name} ({unit.node.op_type})"
                raise Unsupported(
                    f"{self._profile.name} has no integer kernel for it",
                    subject=subject,
                    location=unit.node.metadata_props.get("pkg.torch.onnx.stack_trace", ""),
                    ways_out=("--int8 without --full-integer",),
                )
