"""What stands in for operators that torch's ONNX exporter lacks or writes wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from ai_edge_litert.interpreter import Interpreter
from torch import nn

from convertkit.converters.pytorch.operators.averages import average_pool_2d, average_pool_3d, has_divisor
from convertkit.converters.pytorch.operators.bags import embedding_bag, even_bags
from convertkit.converters.pytorch.operators.fused import FUSED
from convertkit.converters.pytorch.operators.indices import widen_indices
from convertkit.converters.pytorch.operators.missing_ops import substitutes
from convertkit.converters.pytorch.operators.resized import has_factors
from convertkit.converters.pytorch.operators.strided import squeezed
from convertkit.converters.pytorch.routes.exporting import write_program
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options

pytestmark = pytest.mark.filterwarnings("ignore")


PADDING = [None, 0, -1]


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_size_are_rows_put_together(mode: str, padding: int | None) -> None:
    layer = bags(mode, padding)
    ids = torch.arange(15).reshape(3, 5) % 9
    program = torch.export.export(layer, (ids,), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    table = substitutes(program)
    assert list(table.values()) == [even_bags]
    taken = program.run_decompositions(table)
    assert not any("embedding_bag" in str(node.target) for node in taken.graph.nodes)
    for batch in (ids, ids[:2], ids.repeat(2, 1), ids % 2 * 8, ids * 0, ids * 0 + 8):
        torch.testing.assert_close(taken.module()(batch), layer(batch))


def test_a_row_of_padding_may_be_counted_from_the_last() -> None:
    given = (torch.randn(9, 4), torch.tensor([0, 8, 1]), torch.tensor([0, 2]), False, 0, False, None, False, -1)
    torch.testing.assert_close(embedding_bag(*given)[0], torch.ops.aten.embedding_bag.padding_idx(*given)[0])


def bags(mode: str, padding: int | None) -> nn.Module:
    """A row of padding is not of zeros where weights were loaded into the layer."""
    layer = nn.EmbeddingBag(9, 4, mode=mode, padding_idx=padding).eval().requires_grad_(False)
    layer.weight.copy_(torch.randn(9, 4))
    return layer


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_any_size_are_told_apart_by_where_they_begin(mode: str, padding: int | None) -> None:
    layer = bags(mode, padding)
    example = (torch.tensor([0, 8, 0, 1, 2, 8, 3]), torch.tensor([0, 2, 2, 6]))
    program = torch.export.export(layer, example, strict=False)
    table = substitutes(program)
    assert list(table.values()) == [embedding_bag]
    taken = program.run_decompositions(table).module()
    for offsets in ([0, 2, 2, 6], [0, 0, 0, 0], [0, 1, 6, 7]):
        places = torch.tensor(offsets)
        torch.testing.assert_close(taken(example[0], places), layer(example[0], places))


def test_axes_larger_than_one_are_not_squeezed(tmp_path: Path) -> None:
    class Squeezed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.squeeze(x * 2, (0, -1, 2)) + torch.squeeze(x, (0, 1))[..., 0, 0] + torch.squeeze(x.sum(), (0,))

    x = torch.randn(4, 3, 1, 1)
    program = torch.export.export(Squeezed(), (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},), strict=False)
    assert list(substitutes(program).values()) == [squeezed]
    write_program(program, ["x"], ["y"], str(tmp_path / "model.onnx"))
    session = ort.InferenceSession(tmp_path / "model.onnx")
    for batch in (x, x[:2]):
        (got,) = session.run(None, {"x": batch.numpy()})
        torch.testing.assert_close(torch.from_numpy(got), Squeezed()(batch))


def test_bags_that_say_where_the_last_ends_are_left_alone() -> None:
    layer = nn.EmbeddingBag(9, 4, include_last_offset=True).eval().requires_grad_(False)
    program = torch.export.export(layer, (torch.arange(6), torch.tensor([0, 2])), strict=False)
    assert substitutes(program) == {}


@pytest.mark.parametrize("function", [torch.atan2, torch.hypot])
def test_nan_infinities_and_signed_zeros_are_as_in_torch_in_litert_too(function: Any, tmp_path: Path) -> None:
    """LiteRT's maximum and minimum drop NaN, so the greater of two is chosen by comparison."""

    class Of(nn.Module):
        def forward(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            found = function(y, x)
            assert isinstance(found, torch.Tensor)
            return found

    nan, inf = float("nan"), float("inf")
    y = torch.tensor([nan, 1.0, nan, inf, -inf, -0.0, 0.0, -2.0])
    x = torch.tensor([1.0, nan, 0.0, 2.0, -inf, -3.0, -0.0, 0.5])
    program = torch.export.export(Of(), (y, x), strict=False)
    write_program(program, ["y", "x"], ["out"], str(tmp_path / "model.onnx"))
    path = tmp_path / "model.tflite"
    compile_model(canonicalize(load_model(tmp_path / "model.onnx")), Options()).write(path)
    answer = Interpreter(str(path), num_threads=1).get_signature_runner()(y=y.numpy(), x=x.numpy())["out"]
    torch.testing.assert_close(torch.from_numpy(answer), function(y, x), equal_nan=True)


def test_complex_numbers_are_chosen_by_an_index() -> None:
    class Chosen(nn.Module):
        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(torch.view_as_complex(x)[places])

    example = (torch.rand(5, 3, 2), torch.tensor([[0, 4], [2, 2]]))
    program = torch.export.export(Chosen(), example, strict=False)
    taken = program.run_decompositions(substitutes(program))
    indexed = [node for node in taken.graph.nodes if "index.Tensor" in str(node.target)]
    assert [node.args[0].meta["val"].dtype for node in indexed] == [torch.float32]
    torch.testing.assert_close(taken.module()(*example), Chosen()(*example))


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


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_few_rows_are_differences(p: float) -> None:
    class Near(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cdist(x, y, p)

    example = (torch.rand(2, 12, 3), torch.rand(2, 7, 3))
    dims = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})
    program = torch.export.export(Near(), example, dynamic_shapes=dims, strict=False)
    taken = program.run_decompositions(substitutes(program))
    assert not any("cdist" in str(node.target) for node in taken.graph.nodes)
    for batch in (example, tuple(each.repeat(3, 1, 1) for each in example)):
        torch.testing.assert_close(taken.module()(*batch), Near()(*batch))


def test_distances_of_a_dynamic_number_of_rows_are_differences() -> None:
    class ToPrototypes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cdist(x, torch.arange(21.0).view(7, 3))

    example = (torch.rand(4, 3),)
    program = torch.export.export(ToPrototypes(), example, dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    taken = program.run_decompositions(substitutes(program))
    assert not any("cdist" in str(node.target) for node in taken.graph.nodes)
    for x in (example[0], torch.rand(20, 3)):
        torch.testing.assert_close(taken.module()(x), ToPrototypes()(x), rtol=1e-5, atol=1e-5)


def test_distances_of_many_rows_stay_products() -> None:
    class Near(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cdist(x, x)

    assert substitutes(torch.export.export(Near(), (torch.rand(2, 26, 3),), strict=False)) == {}


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scattering_keeps_to_what_is_there(reduce: str, include_self: bool) -> None:
    """ONNX has no mean and leaves nothing out; pooling the nodes of graphs does both."""

    class Pooled(nn.Module):
        def forward(self, base: torch.Tensor, places: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return base.scatter_reduce(0, places[:, None].expand_as(x), x, reduce, include_self=include_self)

    base, x = torch.randn(4, 3), torch.randn(7, 3) - 3
    program = torch.export.export(Pooled(), (base, torch.arange(7) % 3, x), strict=False)
    table = substitutes(program)
    assert len(table) == (reduce == "mean" or not include_self)
    taken = program.run_decompositions(table)
    left = [node for node in taken.graph.nodes if "scatter_reduce" in str(node.target)]
    assert all(node.args[4] != "mean" and node.kwargs.get("include_self", True) for node in left)
    for places in (torch.tensor([0, 0, 1, 3, 3, 3, 0]), torch.zeros(7, dtype=torch.int64)):
        torch.testing.assert_close(taken.module()(base, places, x), Pooled()(base, places, x))


def test_a_script_that_nests_sequences_is_told_the_flag() -> None:
    with pytest.raises(Unsupported, match="the data decide") as caught:
        FUSED["aten::_nested_tensor_from_mask_left_aligned"](torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=torch.bool))
    assert "enable_nested_tensor=False" in caught.value.ways_out[0]


@pytest.mark.parametrize(
    ("rank", "options"),
    [
        (2, {"kernel_size": 3, "divisor_override": 2}),
        (2, {"kernel_size": (3, 2), "stride": 2, "padding": 1, "ceil_mode": True, "divisor_override": 7}),
        (2, {"kernel_size": 2, "stride": 3, "ceil_mode": True, "divisor_override": 3}),
        (2, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "divisor_override": 4}),
        (3, {"kernel_size": 3, "stride": 2, "padding": 1, "divisor_override": 5}),
        (2, {"kernel_size": (2,), "divisor_override": 3}),
        (3, {"kernel_size": (2,), "stride": (3,), "padding": (1,), "divisor_override": 3}),
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_averages_are_divided_by_what_the_model_says(rank: int, options: dict[str, Any], batched: bool) -> None:
    pool = nn.AvgPool2d(**options) if rank == 2 else nn.AvgPool3d(**options)
    x = torch.rand(*((2, 3) if batched else (3,)), *(9, 8, 6)[:rank])
    taken = torch.export.export(pool, (x,), strict=False)
    assert list(substitutes(taken).values()) == [average_pool_2d if rank == 2 else average_pool_3d]
    taken = taken.run_decompositions(substitutes(taken))
    (call,) = (node for node in taken.graph.nodes if "avg_pool" in str(node.target))
    assert not has_divisor(call)
    torch.testing.assert_close(taken.module()(x), pool(x))


def test_averages_of_their_own_size_are_left_alone() -> None:
    program = torch.export.export(nn.AvgPool2d(3, 2, 1, ceil_mode=True), (torch.rand(1, 2, 9, 8),), strict=False)
    assert substitutes(program) == {}


@pytest.mark.parametrize(("mode", "rank"), [("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)])
@pytest.mark.parametrize("factor", [0.6, 1.7])
def test_aligned_corners_are_given_a_size_for_a_factor(mode: str, rank: int, factor: float) -> None:
    resize = nn.Upsample(scale_factor=factor, mode=mode, align_corners=True)
    x = torch.rand(2, 3, *(9, 4, 7)[:rank])
    program = torch.export.export(resize, (x,), strict=False)
    taken = program.run_decompositions(substitutes(program))
    (call,) = (node for node in taken.graph.nodes if "upsample" in str(node.target))
    assert not has_factors(call)
    torch.testing.assert_close(taken.module()(x), resize(x))


ALIASED = {
    "divide": lambda x: torch.divide(x, torch.arange(1, 5)),
    "multiply": lambda x: torch.multiply(torch.arange(1, 5), x),
    "subtract": lambda x: torch.subtract(torch.arange(1, 5), x, alpha=2),
    "greater": lambda x: torch.greater(x, torch.arange(-2, 2)),
    "less_equal": lambda x: torch.less_equal(x, torch.arange(-2, 2)),
    "not_equal": lambda x: torch.not_equal(x, torch.arange(-2, 2)),
    "hstack of vectors": lambda x: torch.hstack([x[0], x[1, :2]]),
    "hstack": lambda x: torch.hstack([x, x[:, 1:]]),
    "vstack": lambda x: torch.vstack([x, x[0]]),
}


@pytest.mark.parametrize("name", ALIASED)
def test_second_names_take_operands_of_two_types(name: str, tmp_path: Path) -> None:
    class Aliased(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ALIASED[name](x)

    x = torch.tensor([[0.5, -1.5, 2.5, 1.0], [-2.0, -1.0, 0.25, 3.0], [0.0, 7.0, -0.5, 2.0]])
    with torch.no_grad():
        write_program(torch.export.export(Aliased(), (x,), strict=False), ["x"], ["y"], str(tmp_path / "model.onnx"))
    (got,) = ort.InferenceSession(str(tmp_path / "model.onnx")).run(None, {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), Aliased()(x))


def test_what_is_real_and_negative_has_the_angle_pi(tmp_path: Path) -> None:
    class Angle(nn.Module):
        def forward(self, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
            return torch.angle(torch.complex(real, imaginary))

    parts = torch.tensor([[-2.0, 2, -2, -0.0, 0.0, 3, -3], [0.0, 0.0, -0.0, -0.0, -0.0, 4, -4]]).unbind(0)
    with torch.no_grad():
        program = torch.export.export(Angle(), parts, strict=False)
        write_program(program, ["x", "y"], ["z"], str(tmp_path / "model.onnx"))
    session = ort.InferenceSession(str(tmp_path / "model.onnx"))
    (got,) = session.run(None, {"x": parts[0].numpy(), "y": parts[1].numpy()})
    torch.testing.assert_close(torch.from_numpy(got), Angle()(*parts))


def test_a_dynamic_size_where_onnx_has_a_number_is_told(tmp_path: Path) -> None:
    """A kernel of its own for each sample, by groups: ConvTranspose has ``group`` as an attribute."""

    class Enlarged(nn.Module):
        def forward(self, x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
            samples = x.shape[0]
            rows = x.reshape(1, samples * 3, 8, 8)
            return nn.functional.conv_transpose2d(rows, kernel.reshape(samples * 3, 4, 3, 3), groups=samples)

    batch = torch.export.Dim("n", min=2)
    example = (torch.randn(4, 3, 8, 8), torch.randn(4, 3, 4, 3, 3))
    program = torch.export.export(Enlarged(), example, dynamic_shapes=({0: batch}, {0: batch}), strict=False)
    with pytest.raises(Unsupported, match="an argument of it is a dynamic size") as caught:
        write_program(program, ["x", "kernel"], ["y"], str(tmp_path / "model.onnx"))
    assert caught.value.ways_out == ("torch.export.export with that size fixed: not in dynamic_shapes",)
