"""Averages of a size, windows, views by strides, volumes read at points, slices that are reduced: against torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from convertkit.converters.pytorch.operators.averages import adaptive_average_pool
from convertkit.converters.pytorch.operators.missing_ops import substitutes
from convertkit.converters.pytorch.operators.strided import as_strided
from convertkit.converters.pytorch.operators.windows import unfolded
from convertkit.converters.pytorch.routes.exporting import write_program
from convertkit.errors import Unsupported

pytestmark = pytest.mark.filterwarnings("ignore")
F = nn.functional
FACTORS = [0.5, 1.0, 3.0]
"""Of points: inside of the volume, beside it, and so far away that reflections turn around."""


class Read(nn.Module):
    def __init__(self, mode: str, padding: str, *, align: bool) -> None:
        super().__init__()
        self.mode, self.padding, self.align = mode, padding, align

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, self.mode, self.padding, self.align)


class Pooled(nn.Module):
    def __init__(self, size: int | tuple[int | None, ...]) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool3d(size)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x)


def as_onnx(module: nn.Module, example: tuple[Tensor, ...], folder: Path) -> Callable[..., Tensor]:
    """What the file gives, as a function of the inputs in their order."""
    program = torch.export.export(module, example, strict=False)
    names = [f"x{place}" for place in range(len(example))]
    write_program(program, names, ["y"], str(folder / "model.onnx"))
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return lambda *given: torch.from_numpy(
        session.run(None, dict(zip(names, map(Tensor.numpy, given), strict=True)))[0]
    )


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes_are_read_at_points(mode: str, padding: str, align: bool, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, x = Read(mode, padding, align=align), torch.randn(2, 3, 4, 5, 6)
    grid = torch.randn(2, 2, 3, 4, 3)
    run = as_onnx(module, (x, grid), tmp_path)
    for factor in FACTORS:
        torch.testing.assert_close(run(x, grid * factor), module(x, grid * factor), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("size", [1, 3, (2, 4, 3), (2, 5, 7), (None, 2, 1)])
def test_volumes_are_pooled_to_a_size(size: int | tuple[int | None, ...], tmp_path: Path) -> None:
    torch.manual_seed(4)
    module, x = Pooled(size), torch.randn(2, 3, 4, 5, 7)
    torch.testing.assert_close(as_onnx(module, (x,), tmp_path)(x), module(x), rtol=1e-5, atol=1e-6)


def test_volumes_without_a_batch_and_of_whole_cells() -> None:
    x = torch.randn(3, 4, 6, 8)
    for size in ((2, 3, 4), (3, 4, 5)):
        torch.testing.assert_close(adaptive_average_pool(x, size), F.adaptive_avg_pool3d(x, size))


@pytest.mark.parametrize("size", [(3, 4), (1, 5), (7, 2), (20, 30)])
def test_images_are_pooled_to_few_uneven_cells(size: tuple[int, int], tmp_path: Path) -> None:
    module, x = nn.Sequential(nn.AdaptiveAvgPool2d(size)), torch.randn(2, 3, 10, 7)
    program = torch.export.export(module, (x,), strict=False)
    graph = program.run_decompositions(substitutes(program)).graph
    assert any("slice" in str(node.target) for node in graph.nodes)
    torch.testing.assert_close(as_onnx(module, (x,), tmp_path)(x), module(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [(5, 7), (2, 1), (40, 30)])
def test_images_of_even_or_very_many_cells_are_left_alone(size: tuple[int, int]) -> None:
    assert not substitutes(torch.export.export(nn.AdaptiveAvgPool2d(size), (torch.randn(2, 3, 10, 7),), strict=False))


def test_rows_are_pooled_to_few_uneven_cells(tmp_path: Path) -> None:
    module, x = nn.AdaptiveAvgPool1d(4), torch.randn(2, 3, 10)
    torch.testing.assert_close(as_onnx(module, (x,), tmp_path)(x), module(x), rtol=1e-5, atol=1e-6)


WINDOWS = [
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (0, 3)},
    {"kernel_size": (2, 3), "dilation": (1, 2), "padding": (2, 1), "stride": (3, 2)},
    {"kernel_size": 4, "stride": 4, "padding": 1},
]


@pytest.mark.parametrize("how", WINDOWS)
def test_windows_are_slices_side_by_side(how: dict[str, int], tmp_path: Path) -> None:
    module, x = nn.Unfold(**how), torch.randn(2, 3, 10, 7)
    program = torch.export.export(module, (x,), strict=False)
    assert list(substitutes(program).values()) == ([] if "stride" in how else [unfolded])
    torch.testing.assert_close(as_onnx(module, (x,), tmp_path)(x), module(x), rtol=0, atol=0)
    torch.testing.assert_close(unfolded(x[0], *_stated(how)), module(x[0]), rtol=0, atol=0)


def _stated(how: dict[str, int]) -> list[tuple[int, int]]:
    defaults = {"kernel_size": 1, "dilation": 1, "padding": 0, "stride": 1}
    given = [how.get(name, default) for name, default in defaults.items()]
    return [each if isinstance(each, tuple) else (each, each) for each in given]


@pytest.mark.parametrize("size", [9, 3])
def test_windows_of_many_elements_or_unknown_places_are_left_alone(size: int) -> None:
    dims = ({2: torch.export.Dim("height", min=12, max=40)} if size == 3 else {},)
    program = torch.export.export(nn.Unfold(size), (torch.randn(2, 3, 20, 17),), dynamic_shapes=dims, strict=False)
    assert not substitutes(program)


_FREE_POOLS = {
    "mean": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "mean of rows": lambda x: F.adaptive_avg_pool2d(x, (2, None)),
    "mean of volumes": lambda x: F.adaptive_avg_pool3d(x, (1, 2, 3)),
    "maximum of all": lambda x: F.adaptive_max_pool2d(x, 1),
    "maximum": lambda x: F.adaptive_max_pool2d(x, (3, 4)),
    "maximum of lines": lambda x: F.adaptive_max_pool1d(x.flatten(0, 1), 5),
    "place": lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True)[1],
    "place of all": lambda x: F.adaptive_max_pool2d(x.round(), (1, 1), return_indices=True)[1],
}


class Applied(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", _FREE_POOLS)
def test_cells_follow_a_dynamic_size(name: str, tmp_path: Path) -> None:
    """Where the first example's cells are whole, too: torch's exporter writes windows of those sizes."""
    torch.manual_seed(7)
    module, x = Applied(_FREE_POOLS[name]), torch.randn(2, 3, 6, 8)
    dims = {axis: torch.export.Dim(f"size{axis}", min=2, max=99) for axis in (2, 3)}
    program = torch.export.export(module, (x,), dynamic_shapes=(dims,), strict=False)
    write_program(program, ["x"], ["y"], str(tmp_path / "model.onnx"))
    session = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for size in ((6, 8), (5, 31), (2, 3), (17, 7)):
        given = torch.randn(2, 3, *size)
        given[0, 0] = -torch.inf
        (found,) = session.run(None, {"x": given.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), module(given), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_slices_are_reduced_into_those_that_an_index_names(reduce: str, include_self: bool, tmp_path: Path) -> None:
    class Reduced(nn.Module):
        def forward(self, base: Tensor, x: Tensor) -> Tensor:
            return base.index_reduce(1, torch.tensor([0, 2, 2, 0, 2]), x, reduce, include_self=include_self)

    base, x = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    torch.testing.assert_close(as_onnx(Reduced(), (base, x), tmp_path)(base, x), Reduced()(base, x))


def test_a_number_is_reduced_into_another(tmp_path: Path) -> None:
    class Reduced(nn.Module):
        def forward(self, base: Tensor, x: Tensor) -> Tensor:
            return base.index_reduce(0, torch.tensor(0), x, "amax")

    base, x = torch.tensor(-0.5), torch.tensor(1.5)
    torch.testing.assert_close(as_onnx(Reduced(), (base, x), tmp_path)(base, x), Reduced()(base, x))


class Viewed(nn.Module):
    """Windows of two rows of five that overlap, of what ``prepare`` makes of an input [2, 3, 10]."""

    def __init__(self, prepare: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.prepare = prepare

    def forward(self, x: Tensor) -> Tensor:
        return self.prepare(x * 2).as_strided((3, 2, 5), (7, 3, 2), 4) + 1


PREPARED: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(0, 2),
    "turned": lambda x: x.permute(1, 2, 0),
    "a view of a transposed one": lambda x: x.transpose(0, 1).view(3, 2, 5, 2),
}


@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
def test_elements_are_counted_as_they_lie_in_memory(prepare: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    module, x = Viewed(prepare), torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(3))
    program = torch.export.export(module, (x,), strict=False)
    assert list(substitutes(program).values()) == [as_strided]
    torch.testing.assert_close(as_onnx(module, (x,), tmp_path)(x), module(x), rtol=0, atol=0)


def test_what_lies_in_row_major_order_is_left_alone() -> None:
    assert not substitutes(torch.export.export(Viewed(lambda x: x), (torch.randn(2, 3, 10),), strict=False))


SLICES: dict[str, Callable[[Tensor], Tensor]] = {
    "gaps": lambda x: x[:, :, :8],
    "before it": lambda x: x[1],
    "behind it": lambda x: x.transpose(1, 2)[:1, :, :2],
}


@pytest.mark.parametrize("prepare", SLICES.values(), ids=SLICES)
def test_memory_of_other_values_is_refused(prepare: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="as_strided"):
        as_onnx(Viewed(prepare), (torch.randn(2, 3, 10),), tmp_path)
