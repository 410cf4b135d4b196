"""Operators that work on permuted tensors as well: which inputs, and what changes in the node."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.targets.tflite.passes.layout.axis_rules import Gather, LastAxes, PerAxisInput
from convertkit.targets.tflite.passes.layout.elementwise_rules import AlongAxis, ArgReduce, Elementwise, Reduce, Scaled
from convertkit.targets.tflite.passes.layout.plan import LayoutRule
from convertkit.targets.tflite.passes.layout.sizes import Sizes
from convertkit.targets.tflite.passes.layout.view_rules import Reshape, Slice, Squeeze, Transpose, Unsqueeze

_ELEMENTWISE = """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
Ceil Celu Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf
IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu
Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor"""
_FIRST_ONLY = "Cast Clip Dropout"
_REDUCES = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare"""

LAYOUT_RULES: Mapping[tuple[str, str], LayoutRule] = {
    **{("", name): Elementwise() for name in _ELEMENTWISE.split()},
    **{("", name): Elementwise((0,)) for name in _FIRST_ONLY.split()},
    **{("", name): Reduce() for name in _REDUCES.split()},
    ("convertkit.tflite", "Gelu"): Elementwise(),
    ("convertkit.tflite", "Quantize"): Elementwise((0,)),
    ("convertkit.tflite", "Dequantize"): Elementwise((0,)),
    ("", "QuantizeLinear"): Scaled(),
    ("", "DequantizeLinear"): Scaled(),
    ("", "Softmax"): AlongAxis(prefers_last=True),
    ("", "LogSoftmax"): AlongAxis(prefers_last=True),
    ("", "Concat"): AlongAxis(),
    ("", "Split"): AlongAxis(default=0, data=(0,)),
    ("", "ArgMax"): ArgReduce(),
    ("", "ArgMin"): ArgReduce(),
    ("", "Squeeze"): Squeeze(),
    ("", "Unsqueeze"): Unsqueeze(),
    ("", "Reshape"): Reshape(),
    ("", "Flatten"): Reshape(),
    ("", "Transpose"): Transpose(),
    ("", "Slice"): Slice(),
    ("", "Pad"): PerAxisInput(),
    ("", "Tile"): PerAxisInput(),
    ("", "MatMul"): LastAxes(),
    ("convertkit.tflite", "Dense"): LastAxes(),
    ("", "LayerNormalization"): LastAxes(),
    ("", "Gather"): Gather(),
    ("", "Shape"): Sizes(),
    ("", "Size"): Sizes(),
}
