"""ONNX → ONNX where numerics change on purpose: calibration, integers, mixed precision, pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convertkit.stage import BuildContext, Stage


class QuantizePass:
    """Builds the quantizing stage where ``--int8``, ``--fp8`` or another precision asks for it."""

    name = "quantize"
    order = 500

    def stage(self, context: BuildContext) -> Stage | None:
        """The stage, or None for float32."""
        if context.options.precision == "float32":
            return None
        from convertkit.quantization.stage import build

        stage = build(context)
        return stage if context.options.precision in ("fp16", "bf16", "fp8") else recovered(stage, context)


class PrunePass:
    """Builds the pruning stage where ``--prune``, ``--prune-channels`` or ``--target-latency`` asks for it."""

    name = "prune"
    order = 100

    def stage(self, context: BuildContext) -> Stage | None:
        """The stage, or None where nothing is to be pruned."""
        if not context.options.pruned:
            return None
        from convertkit.quantization.pruning.zeros import build

        stage = build(context)
        return None if stage is None else recovered(stage, context)


class LowRankPass:
    """Builds the stage for ``--low-rank``: behind pruning, in front of integers."""

    name = "low-rank"
    order = 200

    def stage(self, context: BuildContext) -> Stage | None:
        """The stage, or None where nothing is to be factorised."""
        if context.options.low_rank is None:
            return None
        from convertkit.quantization.pruning.low_rank import build

        return recovered(build(context), context)


def recovered(stage: Stage, context: BuildContext) -> Stage:
    """The stage, with training behind it where ``--recover`` asks for that; several stages share its minutes."""
    options = context.options
    if options.recover is None or context.calibration is None:
        return stage
    from convertkit.quantization.recovery.stage import Recovered

    trained = options.pruned, options.low_rank is not None, options.precision not in ("float32", "fp16", "bf16")
    minutes = options.recover / sum(trained)
    judged = options if stage.name.startswith("quantize") else None
    return Recovered(stage, minutes, context.calibration, options.seed, progress=context.progress, judged=judged)


prune = PrunePass()
low_rank = LowRankPass()
quantize = QuantizePass()
