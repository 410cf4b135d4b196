"""Elementwise operators."""

from __future__ import annotations

import numpy as np

from convertkit.targets.tflite.builder.conversions import are_bytes_equal
from convertkit.targets.tflite.builder.core import NONE, BuilderCore, numpy_dtype
from convertkit.targets.tflite.tensor import DType, QuantParams, Tensor, broadcast_shape

_FUSABLE = {"fused_activation_function": NONE}


class Arithmetic(BuilderCore):
    """Unary, binary, comparing, logical and choosing operators; binary ones broadcast as NumPy does."""

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("ADD", x, y, fusable=True)

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("SUB", x, y, fusable=True)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("MUL", x, y, fusable=True)

    def div(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("DIV", x, y, fusable=True)

    def pow(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("POW", x, y)

    def atan2(self, y: Tensor, x: Tensor) -> Tensor:
        return self._binary("ATAN2", y, x)

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("MAXIMUM", x, y)

    def minimum(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("MINIMUM", x, y)

    def floor_div(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("FLOOR_DIV", x, y)

    def floor_mod(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("FLOOR_MOD", x, y)

    def squared_difference(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("SQUARED_DIFFERENCE", x, y)

    def right_shift(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("RIGHT_SHIFT", x, y)

    def bitwise_xor(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("BITWISE_XOR", x, y)

    def logical_and(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("LOGICAL_AND", x, y)

    def logical_or(self, x: Tensor, y: Tensor) -> Tensor:
        return self._binary("LOGICAL_OR", x, y)

    def prelu(self, x: Tensor, slope: Tensor) -> Tensor:
        return self._binary("PRELU", x, slope)

    def equal(self, x: Tensor, y: Tensor) -> Tensor:
        return self._compare("EQUAL", x, y)

    def not_equal(self, x: Tensor, y: Tensor) -> Tensor:
        return self._compare("NOT_EQUAL", x, y)

    def less(self, x: Tensor, y: Tensor) -> Tensor:
        return self._compare("LESS", x, y)

    def less_equal(self, x: Tensor, y: Tensor) -> Tensor:
        return self._compare("LESS_EQUAL", x, y)

    def greater(self, x: Tensor, y: Tensor) -> Tensor:
        return self._compare("GREATER", x, y)

    def greater_equal(self, x: Tensor, y: Tensor) -> Tensor:
        return self._compare("GREATER_EQUAL", x, y)

    def abs(self, x: Tensor) -> Tensor:
        return self._unary("ABS", x)

    def neg(self, x: Tensor) -> Tensor:
        return self._unary("NEG", x)

    def sign(self, x: Tensor) -> Tensor:
        return self._unary("SIGN", x)

    def exp(self, x: Tensor) -> Tensor:
        return self._unary("EXP", x)

    def log(self, x: Tensor) -> Tensor:
        return self._unary("LOG", x)

    def sqrt(self, x: Tensor) -> Tensor:
        return self._unary("SQRT", x)

    def rsqrt(self, x: Tensor) -> Tensor:
        return self._unary("RSQRT", x)

    def square(self, x: Tensor) -> Tensor:
        return self._unary("SQUARE", x)

    def sin(self, x: Tensor) -> Tensor:
        return self._unary("SIN", x)

    def cos(self, x: Tensor) -> Tensor:
        return self._unary("COS", x)

    def floor(self, x: Tensor) -> Tensor:
        return self._unary("FLOOR", x)

    def ceil(self, x: Tensor) -> Tensor:
        return self._unary("CEIL", x)

    def round(self, x: Tensor) -> Tensor:
        """Halves go to even."""
        return self._unary("ROUND", x)

    def relu(self, x: Tensor) -> Tensor:
        return self._unary("RELU", x)

    def relu6(self, x: Tensor) -> Tensor:
        return self._unary("RELU6", x)

    def relu_n1_to_1(self, x: Tensor) -> Tensor:
        return self._unary("RELU_N1_TO_1", x)

    def logistic(self, x: Tensor) -> Tensor:
        return self._unary("LOGISTIC", x)

    def tanh(self, x: Tensor) -> Tensor:
        return self._unary("TANH", x)

    def elu(self, x: Tensor) -> Tensor:
        return self._unary("ELU", x)

    def hard_swish(self, x: Tensor) -> Tensor:
        return self._unary("HARD_SWISH", x)

    def gelu(self, x: Tensor, *, approximate: bool) -> Tensor:
        options = {"approximate": approximate}
        return self.emit("GELU", (x,), x.shape, x.dtype, options, self.result_of(x))

    def leaky_relu(self, x: Tensor, *, alpha: float) -> Tensor:
        return self.emit("LEAKY_RELU", (x,), x.shape, x.dtype, {"alpha": alpha}, self.result_of(x))

    def logical_not(self, x: Tensor) -> Tensor:
        return self._unary("LOGICAL_NOT", x)

    def zeros_like(self, x: Tensor) -> Tensor:
        return self._unary("ZEROS_LIKE", x)

    def select(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """``x`` where ``condition`` else ``y``, broadcasting (SELECT_V2)."""
        shape = broadcast_shape(condition.shape, x.shape, y.shape)
        return self.emit("SELECT_V2", (condition, x, y), shape, x.dtype, None, self.result_of(x, y))

    def cast(self, x: Tensor, dtype: DType) -> Tensor:
        """Convert elements; constants are converted now, and a cast to the same type vanishes."""
        if x.dtype == dtype and not x.is_quantized:
            return x
        if x.constant is not None and (x.dtype, dtype) == ("float16", "float32") and x.size > 1:
            return self.dequantize(x)  # widened when the model is loaded; the file keeps half the bytes
        if x.constant is not None and dtype not in ("string", "int4"):
            return self.constant(np.asarray(x.constant).astype(numpy_dtype(dtype)))
        return self.emit("CAST", (x,), x.shape, dtype)

    def bitcast(self, x: Tensor, dtype: DType) -> Tensor:
        """The same bits as another type of the same size."""
        return self.emit("BITCAST", (x,), x.shape, dtype)

    def quantize(self, x: Tensor, dtype: DType, quantization: QuantParams) -> Tensor:
        """Float to integers, or integers to integers of another scale.

        Bytes become others by way of floats where the direct kernel would give other ones, unless the file is made
        for runtimes that may have no floats.
        """
        given = x.quantization
        if given is not None and x.dtype == dtype == "int8" and not self.program.portable:
            x = x if are_bytes_equal(given, quantization) else self.dequantize(x)
        return self.emit("QUANTIZE", (x,), x.shape, dtype, None, quantization)

    def _unary(self, code: str, x: Tensor) -> Tensor:
        return self.emit(code, (x,), x.shape, x.dtype, None, self.result_of(x))

    def _binary(self, code: str, x: Tensor, y: Tensor, *, fusable: bool = False) -> Tensor:
        options = _FUSABLE if fusable else None
        if code in ("ADD", "SUB") and x.dtype == "int16" and x.is_quantized:
            # The schema's default promises scales that are powers of two.
            options = {**_FUSABLE, "pot_scale_int16": False}
        return self.emit(code, (x, y), broadcast_shape(x.shape, y.shape), x.dtype, options, self.result_of(x, y))

    def _compare(self, code: str, x: Tensor, y: Tensor) -> Tensor:
        return self.emit(code, (x, y), broadcast_shape(x.shape, y.shape), "bool")
