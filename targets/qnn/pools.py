"""Averages whose number is rounded up (``ceil_mode``), as padding: the HTP computes another pool of them.

before:  AveragePool kernel 3, stride 2, ceil_mode 1 over 12 elements
after:   AveragePool kernel 3, stride 2, pads 0 and 1, which do not count
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.forms.pool_pads import pad_to_result
from convertkit.targets.forms.writing import refusal


def write_averages(model: ir.Model) -> None:
    """All of them, in place; ``Unsupported`` where padding counts and what is added to it would, too."""
    for node in model.graph:
        if node.op_type != "AveragePool" or node.domain or node.attributes.get_int("ceil_mode", 0) == 0:
            continue
        if not any(node.attributes.get_ints("pads", ())):
            node.attributes.pop("count_include_pad", None)
        if node.attributes.get_int("count_include_pad", 0) == 0:
            pad_to_result(node)
        if node.attributes.get_int("ceil_mode", 0) != 0:
            raise refusal(node, "ceil_mode beside padding that counts, of which the NPU computes another pool")
