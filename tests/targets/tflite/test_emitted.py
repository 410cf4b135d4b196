"""Which operators of TFLite come of ONNX's: one kernel, or a fused one, where there is one.

Numbers alone do not tell: a slow decomposition computes the same.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.targets.tflite.compiled import compiled, numbers

SHAPES = {"m": (2, 4), "x": (2, 3, 4), "i": (1, 4, 6, 6)}
FLOATS = {
    "zero": 0.0, "one": 1.0, "six": 6.0, "minus": -1.0, "two": 2.0, "half": 0.5, "root": np.sqrt(2), "slope": 0.3,
    "slopes": [[[0.3, 0.1, -2.0, 0.0]]], "scale": np.ones(4),
    "w": numbers(4, 5), "wt": numbers(5, 4), "bias": numbers(5), "k": numbers(3, 4, 3, 3),
    "kb": numbers(3), "var": np.ones(3), "dw": numbers(4, 1, 3, 3), "kt": numbers(4, 3, 2, 2), "by": [1, 1, 2, 2],
}  # fmt: skip
WHOLES = {"last": [-1], "axis": 1, "places": [1, 0], "start": [0, 1, 0], "stop": [9, 3, 9], "pads": [0, 1, 0, 0, 1, 0],
          "shape": [2, 12], "times": [1, 2, 1], "best": [2]}  # fmt: skip
EXPECT = {
    "y = Relu (x)": "RELU",
    "y = LeakyRelu <alpha = 0.2> (x)": "LEAKY_RELU",
    "y = PRelu (x, slope)": "LEAKY_RELU",
    "y = PRelu (x, slopes)": "PRELU",
    "y = Elu (x)": "ELU",
    "y = HardSwish (x)": "HARD_SWISH",
    "y = Gelu (x)": "GELU",
    'y = Gelu <approximate = "tanh"> (x)': "GELU",
    "a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)": "GELU",
    "y = Sigmoid (x)": "LOGISTIC",
    "y = Tanh (x)": "TANH",
    "y = Softmax (x)": "SOFTMAX",
    "y = Softmax <axis = 1> (x)": "TRANSPOSE SOFTMAX TRANSPOSE",
    "y = LogSoftmax (x)": "LOG_SOFTMAX",
    "y = Clip (x, zero, six)": "RELU6",
    "y = Clip (x, minus, one)": "RELU_N1_TO_1",
    "y = Clip (x, zero)": "RELU",
    "y = Exp (x)": "EXP",
    "y = Pow (x, two)": "SQUARE",
    "y = Abs (x)": "ABS",
    "y = Floor (x)": "FLOOR",
    "y = Round (x)": "ROUND",
    "y = Sin (x)": "SIN",
    "y = Div (x, six)": "DIV",
    "y = Max (x, one)": "MAXIMUM",
    "y = MatMul (x, w)": "FULLY_CONNECTED",
    "a = MatMul (x, w) y = Add (a, bias)": "FULLY_CONNECTED",
    "a = MatMul (x, w) b = Add (a, bias) y = Relu (b)": "FULLY_CONNECTED",
    "y = Gemm <transB = 1> (m, wt, bias)": "FULLY_CONNECTED",
    "t = Transpose <perm = [0,2,1]> (x) y = MatMul (x, t)": "BATCH_MATMUL",
    "y = Conv <pads = [1,1,1,1]> (i, k)": "CONV_2D",
    "c = Conv (i, k, kb) y = Relu (c)": "CONV_2D",
    "c = Conv (i, k, kb) y = Clip (c, zero, six)": "CONV_2D",
    "c = Conv (i, k, kb) b = BatchNormalization (c, kb, kb, kb, var) y = Relu (b)": "CONV_2D",
    "y = Conv <group = 4> (i, dw)": "DEPTHWISE_CONV_2D",
    "y = ConvTranspose (i, kt)": "TRANSPOSE_CONV",
    "y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (i)": "MAX_POOL_2D",
    "y = AveragePool <kernel_shape = [2,2], strides = [2,2]> (i)": "AVERAGE_POOL_2D",
    "y = GlobalAveragePool (i)": "MEAN",
    'y = Resize <mode = "linear"> (i, , by)': "RESIZE_BILINEAR",
    'y = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (i, , by)':
        "RESIZE_NEAREST_NEIGHBOR",
    "y = DepthToSpace <blocksize = 2> (i)": "DEPTH_TO_SPACE",
    "y = SpaceToDepth <blocksize = 2> (i)": "SPACE_TO_DEPTH",
    "y = ReduceMean <keepdims = 0> (x, last)": "MEAN",
    "y = ReduceSum (x, last)": "SUM",
    "y = ReduceMax (x, last)": "REDUCE_MAX",
    "y = CumSum (x, axis)": "CUMSUM",
    "y = Gather (x, places)": "GATHER",
    "y = Concat <axis = 1> (x, x)": "CONCATENATION",
    "y = Slice (x, start, stop)": "SLICE",
    "y = Pad (x, pads)": "PAD",
    "y = Transpose <perm = [0,2,1]> (x)": "TRANSPOSE",
    "y = Reshape (x, shape)": "RESHAPE",
    "y, z = Split <axis = 2, num_outputs = 2> (x)": "SPLIT",
    "y = Tile (x, times)": "TILE",
    "y, z = TopK (x, best)": "TOPK_V2",
    "a = Less (x, zero) y = Where (a, zero, x)": "LESS SELECT_V2",
    "y = LayerNormalization (x, scale)": "SLICE SUB MEAN SUB MUL MEAN ADD RSQRT MUL",
}  # fmt: skip
"""The operators that come of each body, in their order."""


def model(body: str) -> onnx.ModelProto:
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    (name,) = words & SHAPES.keys()
    sizes = ",".join(map(str, SHAPES[name]))
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[{sizes}] {name}) => (float y) {{ {body} }}'
    )
    proto.graph.output[0].CopyFrom(helper.make_empty_tensor_value_info("y"))
    for table, kind in ((FLOATS, np.float32), (WHOLES, np.int64)):
        stored = [numpy_helper.from_array(np.asarray(table[word], kind), word) for word in sorted(words & table.keys())]
        proto.graph.initializer.extend(stored)
    return proto


@pytest.mark.parametrize("body", EXPECT)
def test_the_kernel_that_there_is(body: str) -> None:
    proto = model(body)
    case = compiled(proto)
    (main,) = case.compiled.program.subgraphs
    assert [operation.code for operation in main.operations] == EXPECT[body].split()
    name = proto.graph.input[0].name
    case.agree({name: numbers(*SHAPES[name])})
