"""ONNX → ONNX where numerics change on purpose: calibration, integers, mixed precision, pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convertkit.stage import BuildContext, Stage


class QuantizePass:
    """Builds the quantizing stage where ``--int8``, ``--int16x8``, ``--w8``, ``--w4`` or ``--fp16`` asks for it."""

    name = "quantize"
    order = 500

    def stage(self, context: BuildContext) -> Stage | None:
        """The stage, or None for float32."""
        if context.options.precision == "float32":
            return None
        from convertkit.quantization.stage import build

        return build(context)


class PrunePass:
    """Builds the pruning stage where ``--prune`` asks for it."""

    name = "prune"
    order = 100

    def stage(self, context: BuildContext) -> Stage | None:
        """The stage, or None where nothing is to be pruned."""
        if context.options.prune is None and context.options.prune_channels is None:
            return None
        from convertkit.quantization.pruning.zeros import build

        return build(context)


prune = PrunePass()
quantize = QuantizePass()
