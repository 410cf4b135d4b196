"""The float model's answers to held-out samples, which every quantized copy of it is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.calibrate.split import split
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.search.bottleneck import reconstructions
from convertkit.quantization.search.measured import is_real, readings
from convertkit.quantization.search.quality import Output, Quality, measure
from convertkit.stage import Feed, FeedSource

_BUDGET = 2.5e10
"""Multiply-adds that the answers to all samples may cost."""
_SAMPLES = (8, 64)
"""The fewest and the most that judge stored weights."""
_EXPLAINED = 0.5
"""A reconstruction leaves at most this share of the input's variance."""


class Reference:
    """A float model, samples, and what it makes of them; copies of it may have other operators between its nodes."""

    def __init__(self, model: ir.Model, feeds: Sequence[Feed], state: Mapping[str, Array]) -> None:
        self._feeds, self._state = feeds, state
        self._readings = readings(model.graph)
        self._reconstructs = reconstructions(model.graph)
        self.outputs = tuple(self._with_input(output) for output in self.answers(model.clone()))

    @property
    def samples(self) -> int:
        return len(self._feeds)

    def quality(self, copy: ir.Model) -> Quality:
        """What a quantized copy, which is changed, keeps of the float model's answers."""
        return measure(self.outputs, self.answers(copy))

    def answers(self, copy: ir.Model) -> tuple[Output, ...]:
        """What a copy of the model, which is changed, makes of the samples."""
        nodes = {node.name: node for node in copy.graph}
        values = [nodes[each.node].inputs[each.place] if each.node else None for each in self._readings]
        inner = [value for value in values if value is not None and not value.is_graph_output()]
        copy.graph.outputs.extend(dict.fromkeys(inner))
        before = [_name(value) or each.name for value, each in zip(values, self._readings, strict=True)]
        leaving = [each.name if each.leaves else name for name, each in zip(before, self._readings, strict=True)]
        answers = list(run_all(open_session(copy), list(dict.fromkeys((*leaving, *before))), self._feeds, self._state))
        return tuple(
            Output(each.name, [answer[whole] for answer in answers], [answer[name] for answer in answers])
            for each, whole, name in zip(self._readings, leaving, before, strict=True)
        )

    def _with_input(self, output: Output) -> Output:
        """The output with what it reconstructs: an input behind a bottleneck, most of whose variance it explains."""
        name = self._reconstructs.get(output.name)
        if name is None:
            return output
        given = [feed[name] for feed in self._feeds]
        if any(one.shape != other.shape for one, other in zip(given, output.values, strict=True)):
            return output
        left = np.mean([np.square(y - x).mean() for y, x in zip(output.values, given, strict=True)])
        spread = float(np.var(np.concatenate([array.ravel() for array in given])))
        return replace(output, reconstructed=given) if left < _EXPLAINED * spread else output


def reference_of(model: ir.Model, calibration: FeedSource | None, state: Mapping[str, Array]) -> Reference | None:
    """The answers of a model whose weights alone will change; None where there is no data, or no float to lose."""
    if calibration is None or not any(map(is_real, model.graph.outputs)):
        return None
    held_out = split(calibration)[1]
    return Reference(model.clone(), held_out[: affordable_samples(model, *_SAMPLES)], state)


def affordable_samples(model: ir.Model, least: int, most: int) -> int:
    """How many samples a model may be run on, by its multiply-adds: no clock decides."""
    once = sum(map(multiply_adds, model.graph))
    return int(np.clip(_BUDGET / max(once, 1.0), least, most))


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all constants, which are nearly all of a file."""
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def _name(value: ir.Value | None) -> str:
    return "" if value is None else str(value.name)
