"""Text that JAX before 0.4.24 printed, in today's spelling.

StableHLO 0.17 and 0.18 turned attributes that hold a list of sizes or axes from dense elements into dense arrays,
which its text reader no longer takes (bytecode is upgraded by StableHLO itself).
Source: StableHLO's ``VhloOps.td``, operators whose version 2 says "Use DenseI64ArrayAttr" or "Use DenseBoolArrayAttr".
"""

from __future__ import annotations

import re

_LISTS = (
    *("broadcast_dimensions", "broadcast_sizes", "permutation", "dimensions", "start_indices", "limit_indices"),
    *("strides", "slice_sizes", "edge_padding_low", "edge_padding_high", "interior_padding", "window_dimensions"),
    *("window_strides", "base_dilations", "window_dilations", "lhs_dilation", "rhs_dilation", "window_reversal"),
    *("fft_length", "known_expanding_dimensions", "known_nonexpanding_dimensions"),
)
_DENSE = re.compile(rf"\b({'|'.join(_LISTS)}) = dense<(\[[^\]<>]*\]|[\w-]*)> : tensor<(\d+)x(i64|i1)>")


def in_todays_spelling(text: str) -> str:
    """``strides = dense<1> : tensor<2xi64>`` becomes ``strides = array<i64: 1, 1>``; all else stays as it is."""
    return _DENSE.sub(_array, text)


def _array(found: re.Match[str]) -> str:
    name, elements, count, kind = found.groups()
    listed = elements.strip("[]") if elements.startswith("[") else ", ".join([elements] * int(count))
    return f"{name} = array<{kind}{': ' if int(count) else ''}{listed}>"
