"""MXNet's operators as ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from convertkit.converters.mxnet.lower.elements import ELEMENTS
from convertkit.converters.mxnet.lower.layers import LAYERS
from convertkit.converters.mxnet.lower.moves import MOVES
from convertkit.converters.mxnet.lower.recurrent import RECURRENT
from convertkit.converters.mxnet.lower.site import Site

LOWERINGS: Mapping[str, Callable[[Site], ir.Value | list[ir.Value]]] = {**ELEMENTS, **LAYERS, **MOVES, **RECURRENT}
"""By the operator's name."""
