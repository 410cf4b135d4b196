"""What the HTP's integer kernels take, by the simulator of QNN 2.51.

Activations are unsigned in the delivered graph (:mod:`convertkit.onnx.unsigned`), and ranges express what a Relu or a
Clip would; a Relu of a model that came quantized gets integers in front of it (:mod:`.pairs`).
"""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.profile import WEIGHTED, FixedOutput, OpRule, QuantProfile
from convertkit.recipe import ExportOptions
from convertkit.targets.qnn.written_out import write_out

_PLAIN = OpRule()
_FIRST = OpRule(data=(0,))
_MOVES = OpRule(data=(0,), same_scale=True)
_UNIT = OpRule(fixed_output=FixedOutput(1 / 256, -128))

_NORM = OpRule({1: 0}, bias=2, per_tensor=True, data=(0,))

_INT8: Mapping[str, OpRule] = {
    **WEIGHTED,
    "MatMul.dynamic": OpRule(data=(0, 1)),
    "Add": _PLAIN,
    "Sub": _PLAIN,
    "Mul": _PLAIN,
    "Div": _PLAIN,
    "Pow": _PLAIN,
    "Max": _PLAIN,
    "Min": _PLAIN,
    "Relu": _PLAIN,
    "Clip": _FIRST,
    "LeakyRelu": _PLAIN,
    "PRelu": OpRule({1: 0}, per_tensor=True, data=(0,)),
    "Elu": _PLAIN,
    "Gelu": _PLAIN,
    "HardSwish": _PLAIN,
    "HardSigmoid": _PLAIN,
    "Sigmoid": _UNIT,
    "Tanh": OpRule(fixed_output=FixedOutput(1 / 128, 0)),
    "Softmax": _UNIT,
    "LayerNormalization": _NORM,
    "InstanceNormalization": _NORM,
    "Abs": _PLAIN,
    "Neg": _PLAIN,
    "Sqrt": _PLAIN,
    "Exp": _PLAIN,
    "Log": _PLAIN,
    "LogSoftmax": _PLAIN,
    "Reciprocal": _PLAIN,
    "Softplus": _PLAIN,
    "Selu": _PLAIN,
    "ThresholdedRelu": _PLAIN,
    "Sign": _PLAIN,
    "Sin": _PLAIN,
    "Cos": _PLAIN,
    "Atan": _PLAIN,
    "LRN": _PLAIN,
    "LpNormalization": _PLAIN,
    "Mean": _PLAIN,
    "Sum": _PLAIN,
    "ReduceMean": _FIRST,
    "ReduceSum": _FIRST,
    "ReduceMax": _FIRST,
    "ReduceMin": _FIRST,
    "GlobalAveragePool": _FIRST,
    "AveragePool": _FIRST,
    "MaxPool": _MOVES,
    "GlobalMaxPool": _MOVES,
    "Concat": OpRule(same_scale=True),  # with several scales, results are up to 14 LSB off
    "Pad": _MOVES,
    "Identity": _MOVES,
    "Reshape": _MOVES,
    "Flatten": _MOVES,
    "Squeeze": _MOVES,
    "Unsqueeze": _MOVES,
    "Transpose": _MOVES,
    "Slice": _MOVES,
    "Split": _MOVES,
    "Gather": _MOVES,
    "Expand": _MOVES,
    "Tile": _MOVES,
    "Where": OpRule(data=(1, 2), same_scale=True),
    "Resize": _MOVES,
    "DepthToSpace": _MOVES,
    "SpaceToDepth": _MOVES,
}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    return QuantProfile("qnn int8", "int8", False, _INT8, tie_free=True, written_out=write_out)
