"""Operators that IREE 3.13 computes differently or does not import, in forms that it computes as ONNX says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.inverse_hyperbolics import write_asinh, write_atanh
from convertkit.targets.forms.lp_norms import write_lp_normalization
from convertkit.targets.forms.pads import write_reflected, write_wrapped
from convertkit.targets.forms.remainders import write_infinite_divisors
from convertkit.targets.forms.shifts import write_long_shifts
from convertkit.targets.forms.transforms import write_transform
from convertkit.targets.forms.unrolled_cells import write_cells
from convertkit.targets.forms.writing import write_each
from convertkit.targets.iree.largest import write_own_places
from convertkit.targets.iree.scatters import write_own_fills
from convertkit.targets.iree.windows import write_average, write_single_window

_BODIES = frozenset({
    "AffineGrid", "Attention", "ConvInteger", "LpPool", "NegativeLogLikelihoodLoss", "RMSNormalization",
    "RotaryEmbedding", "SoftmaxCrossEntropyLoss",
})  # fmt: skip
"""What the importer lacks, and ONNX or we give a body of operators that it has."""


def _pad(node: ir.Node) -> None:
    """Of many sizes, IREE does not compile a reflection."""
    write_wrapped(node)
    if node.graph is not None:
        write_reflected(node)


_FORMS: Mapping[str, Callable[[ir.Node], None]] = {
    "Asinh": write_asinh,
    "Atanh": write_atanh,
    "AveragePool": write_average,
    "Conv": write_single_window,
    "DFT": write_transform,
    "LpNormalization": write_lp_normalization,
    "MaxPool": write_single_window,
    "Pad": _pad,
}


def write_exact_forms(model: ir.Model) -> None:
    """Rewrite in place."""
    expand_functions(model, lambda node: node.op_type not in _BODIES)
    write_each(model, _FORMS)
    write_cells(model, "IREE", ("GRU", "RNN"))  # it imports LSTM
    write_own_fills(model)
    write_own_places(model)
    write_long_shifts(model)
    write_infinite_divisors(model)
