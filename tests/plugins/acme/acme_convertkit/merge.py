"""An ONNX → ONNX pass: two dense layers in a row are one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Artifact
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.stage import BuildContext, Stage, Tolerance


class MergeDense:
    """Takes part where the recipe asks for it: ``passes = ["acme-merge"]``."""

    name = "acme-merge"
    order = 50

    def stage(self, context: BuildContext) -> Stage | None:
        return MergeStage() if self.name in context.options.passes else None


class MergeStage:
    """``x @ a @ b`` becomes ``x @ (a @ b)``."""

    name = "acme-merge"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "onnx"
    tolerance = Tolerance("the product of two matrices, rounded once more", relative=1e-5)
    options: Mapping[str, object] = {}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model = load_model(source.path)
        for node in list(model.graph):
            merge(model.graph, node)
        return save_model(model, workdir / "merged.onnx", f"{self.name} {self.version}")


def merge(graph: ir.Graph, second: ir.Node) -> None:
    """Fold the MatMul before ``second`` into it, where there is one that nothing else uses."""
    first = second.inputs[0].producer() if second.op_type == "MatMul" and second.inputs[0] else None
    if first is None or first.op_type != "MatMul" or len(first.outputs[0].uses()) != 1:
        return
    pair = [node.inputs[1].const_value if node.inputs[1] else None for node in (first, second)]
    if pair[0] is None or pair[1] is None:
        return
    product = ir.tensor(np.asarray(pair[0].numpy() @ pair[1].numpy(), np.float32), name=f"{second.name}_merged")
    value = ir.Value(name=product.name, const_value=product, shape=product.shape, type=ir.TensorType(product.dtype))
    graph.register_initializer(value)
    second.replace_input_with(0, first.inputs[0])
    second.replace_input_with(1, value)
    graph.remove(first, safe=True)


merge_dense = MergeDense()
