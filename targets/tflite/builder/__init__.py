"""Typed builder of TFLite graphs: one method per operator, which sets shapes, types and options."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.targets.tflite.builder.arithmetic import Arithmetic
from convertkit.targets.tflite.builder.moves import Moves
from convertkit.targets.tflite.builder.reduce import Reductions
from convertkit.targets.tflite.builder.spatial import Spatial
from convertkit.targets.tflite.kernels import accepted_dtypes
from convertkit.targets.tflite.tensor import DType, Tensor


class Builder(Arithmetic, Moves, Spatial, Reductions):
    """Appends operators to one subgraph; what handlers work with."""

    def dtypes(self, code: str) -> tuple[DType, ...]:
        """Element types that the runtime's kernel of ``code`` accepts without quantization parameters."""
        return accepted_dtypes(code)

    def if_(
        self,
        condition: Tensor,
        then_subgraph: int,
        else_subgraph: int,
        inputs: Sequence[Tensor],
        like: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        """Run one of two subgraphs on ``inputs``; results are shaped ``like`` theirs."""
        options = {"then_subgraph_index": then_subgraph, "else_subgraph_index": else_subgraph}
        return self.emit_many("IF", (condition, *inputs), [(t.shape, t.dtype) for t in like], options)

    def while_(
        self, condition_subgraph: int, body_subgraph: int, state: Sequence[Tensor], like: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Apply the body to ``state`` while the condition holds; results are shaped ``like`` the body's."""
        options = {"cond_subgraph_index": condition_subgraph, "body_subgraph_index": body_subgraph}
        return self.emit_many("WHILE", tuple(state), [(t.shape, t.dtype) for t in like], options)
