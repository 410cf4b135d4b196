"""How a target wants a model quantized: rules as data, read by one placement engine.

A target declares a :class:`QuantProfile`; ``convertkit.quantization`` writes the
QuantizeLinear/DequantizeLinear pairs that it asks for, and the target lowers exactly those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class FixedOutput:
    """Output parameters that a kernel prescribes: ``real = (integer - zero_point) * scale``."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class OpRule:
    """How one ONNX operator may be quantized on a target.

    ``same_scale``: all quantized inputs and outputs share parameters.  ``fixed_output``: the kernel
    prescribes the output's parameters.  ``weight_axis``: the channel axis of a constant weight in
    ONNX layout (``{input index: axis}``), per channel unless ``per_tensor``.  ``bias``: index of an
    int32/int64 bias input with scale ``input × weight``.  ``cost``: integer time / float time on
    the target's reference machine; above 1 the operator stays float unless integers are insisted on.
    """

    weight_axis: dict[int, int] = field(default_factory=dict)
    bias: int | None = None
    per_tensor: bool = False
    same_scale: bool = False
    fixed_output: FixedOutput | None = None
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class QuantProfile:
    """What a target's integer kernels take.

    ``activation`` is the NumPy dtype of activations, ``symmetric`` whether their zero point must
    be 0; ``weight`` is always symmetric with zero point 0, in ``weight_range`` (inclusive).
    ``operators`` holds the rules by ONNX operator; an operator that is not listed stays float.
    """

    name: str
    activation: Literal["int8", "uint8", "int16"]
    symmetric: bool
    operators: dict[str, OpRule]
    weight: Literal["int8"] = "int8"
    weight_range: tuple[int, int] = (-127, 127)
    bias: Literal["int32", "int64", "float32"] = "int32"
