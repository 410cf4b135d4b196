"""What stands in for operators that torch's ONNX exporter lacks or writes wrongly."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from torch import nn

from convertkit.converters.pytorch.indices import widen_indices
from convertkit.converters.pytorch.lacking import embedding_bag, substitutes

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_size_are_rows_put_together(mode: str) -> None:
    layer = nn.EmbeddingBag(9, 4, mode=mode).eval().requires_grad_(False)
    ids = torch.arange(15).reshape(3, 5) % 9
    program = torch.export.export(layer, (ids,), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    table = substitutes(program)
    assert list(table.values()) == [embedding_bag]
    taken = program.run_decompositions(table)
    assert not any("embedding_bag" in str(node.target) for node in taken.graph.nodes)
    for batch in (ids, ids[:2], ids.repeat(2, 1)):
        torch.testing.assert_close(taken.module()(batch), layer(batch))


def test_bags_of_other_sizes_are_left_alone() -> None:
    layer = nn.EmbeddingBag(9, 4).eval().requires_grad_(False)
    program = torch.export.export(layer, (torch.arange(6), torch.tensor([0, 2])), strict=False)
    assert substitutes(program) == {}


def test_int32_indices_are_widened_where_only_int64_is_taken() -> None:
    kinds = {"x": ir.DataType.FLOAT, "i": ir.DataType.INT32, "u": ir.DataType.FLOAT}
    x, i, u = (ir.Value(name=name, type=ir.TensorType(kind)) for name, kind in kinds.items())
    axes = ir.Value(name="axes", type=ir.TensorType(ir.DataType.INT64))
    lifted = ir.node("Unsqueeze", [i, axes])
    scatter = ir.node("ScatterND", [x, lifted.outputs[0], u], name="scatter")
    gather = ir.node("Gather", [x, i])
    graph = ir.Graph(
        [x, i, u, axes],
        [scatter.outputs[0], gather.outputs[0]],
        nodes=[lifted, scatter, gather],
        opset_imports={"": 18},
    )
    widen_indices(ir.Model(graph, ir_version=8))
    assert [node.op_type for node in graph] == ["Unsqueeze", "Cast", "ScatterND", "Gather"]
    cast = scatter.inputs[1].producer()
    assert cast.attributes["to"].as_int() == ir.DataType.INT64
