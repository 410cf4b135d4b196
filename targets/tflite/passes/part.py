"""What a pass works on."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Part:
    """One graph of a model: the main one, or the body of an If, Loop or Scan."""

    graph: ir.Graph
