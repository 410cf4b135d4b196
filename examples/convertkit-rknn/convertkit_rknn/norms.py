"""Normalisations with the attributes that RKNN-Toolkit2 asks for.

before:  LayerNormalization (x, scale, bias)
after:   LayerNormalization<axis = -1, epsilon = 1e-05> (x, scale, bias)

RKNN-Toolkit2 2.5.0 ends with a KeyError where a default is not stated.  They are those of ONNX's operator reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir as ir

_DEFAULTS: Mapping[str, ir.Attr] = MappingProxyType(
    {"axis": ir.AttrInt64("axis", -1), "epsilon": ir.AttrFloat32("epsilon", 1e-5)}
)


def state_defaults(model: ir.Model) -> None:
    """Of layer norms, in place."""
    for node in model.graph:
        if node.op_type == "LayerNormalization":
            for name, value in _DEFAULTS.items():
                node.attributes.setdefault(name, value)
