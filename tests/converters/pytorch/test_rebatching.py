"""Programs that torch.export wrote with one batch as a number take any, where that can be proven."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import convertkit
from convertkit.converters.pytorch.load.rebatching import Fixed, rebatched
from convertkit.errors import SourceError, UsageError
from convertkit.onnx.origin import location

pytestmark = pytest.mark.filterwarnings("ignore")


class TimeFirst(nn.Module):
    """Views that put the batch second, beside heads and behind time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.attention = nn.LSTM(4, 6), nn.MultiheadAttention(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x.transpose(0, 1))
        return self.attention(y, y, y)[0].transpose(0, 1)


class Started(nn.Module):
    """Start values made for the batch, their axis the second."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 6, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.gru(x, torch.zeros(4, x.shape[0], 6))


class Token(nn.Module):
    """A parameter expanded to the batch and put before it, and a size that is a multiple of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.layer = nn.Parameter(torch.randn(1, 1, 4)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.layer(x.reshape(x.shape[0] * x.shape[1], 4)).view(x.shape[0], -1)


class Picked(nn.Module):
    """Rows by number and place."""

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        return x[torch.arange(x.shape[0]), place]


class Repeated(nn.Module):
    """Queries repeated for every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(self.queries.repeat(x.shape[0], 1, 1), x.transpose(1, 2))


class Split(nn.Module):
    """Queries, keys and values out of one product, in heads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.layer(x).chunk(3, -1)
        q, k, v = (part.view(x.shape[0], x.shape[1], 2, 2).transpose(1, 2) for part in parts)
        return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(x.shape)


class Shared(nn.Module):
    """What a sample gives depends on the others."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, 0)


class OnlyOne(nn.Module):
    """A constant for one sample beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("beside", torch.randn(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.beside], 1)


def _examples(name: str, batch: int) -> tuple[Tensor, ...]:
    x = torch.rand(batch, 5, 4, generator=torch.Generator().manual_seed(batch))
    return (x, torch.arange(batch) % 5) if name == "Picked" else (x,)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("module", [TimeFirst, Started, Token, Picked, Repeated, Split], ids=lambda each: each.__name__)
def test_sizes_follow_the_batch_again(module: type[nn.Module], batch: int) -> None:
    eager = module().eval().requires_grad_(False)
    found = rebatched(torch.export.export(eager, _examples(module.__name__, batch)))
    made, own = found.module, found.batch
    assert own == batch
    for size in (1, 2, 7):
        inputs = _examples(module.__name__, size)
        got, expected = made(*inputs), eager(*inputs)
        torch.testing.assert_close(got, expected)


class Folded(nn.Module):
    """Heads behind the batch, the batch behind time, and all of them as many."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(x, x, x, key_padding_mask=mask)


def test_a_batch_folded_behind_time_is_found_where_all_sizes_are_alike() -> None:
    eager = Folded().eval().requires_grad_(False)
    made = rebatched(torch.export.export(eager, (torch.rand(2, 2, 8), torch.zeros(2, 2, dtype=torch.bool)))).module
    for size in (1, 3):
        inputs = torch.rand(size, 2, 8), torch.zeros(size, 2, dtype=torch.bool)
        torch.testing.assert_close(made(*inputs), eager(*inputs))


class Branched(nn.Module):
    """A branch that the data decide, whose arms are graphs of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, self.up, self.down, (x,))


def test_graphs_inside_a_graph_are_passed_through() -> None:
    eager = Branched().eval().requires_grad_(False)
    made = rebatched(torch.export.export(eager, (torch.rand(2, 4),))).module
    for sign in (1, -1):
        x = sign * torch.rand(5, 4)
        torch.testing.assert_close(made(x), eager(x))


def test_a_recurrent_state_of_another_batch_is_an_error_and_no_memory_of_others() -> None:
    made = rebatched(torch.export.export(Given().eval(), (torch.rand(2, 5, 4), torch.zeros(1, 2, 6)))).module
    with pytest.raises(ValueError, match="a state of 2 samples for 3"):
        made(torch.rand(3, 5, 4), torch.zeros(1, 2, 6))


class Given(nn.Module):
    """Start values come from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 6, batch_first=True)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.gru(x, h)[0]


def test_the_operator_that_holds_the_batch_is_named() -> None:
    with pytest.raises(Fixed, match=r"aten.cat.*test_rebatching.py:\d+, in forward"):
        rebatched(torch.export.export(OnlyOne(), (torch.rand(1, 4),)))


def _saved(module: nn.Module, example: tuple[Tensor, ...], folder: Path) -> Path:
    torch.export.save(torch.export.export(module.eval().requires_grad_(False), example), folder / "model.pt2")
    return folder / "model.pt2"


class Masked(nn.Module):
    """Columns that a mask selects, put where a mask is: as many as data makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False, True]))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, :, self.mask] = x[:, :, self.mask] * 3
        return y


def test_a_size_that_depends_on_data_keeps_the_batch() -> None:
    program = torch.export.export(Masked(), (torch.rand(1, 3, 3),), strict=False)
    with pytest.raises(Fixed, match=r"in forward\) does not take another one: a size of it depends on data"):
        rebatched(program)


def test_a_program_without_free_sizes_is_delivered_with_a_free_batch(tmp_path: Path) -> None:
    source = _saved(Token(), (torch.rand(1, 5, 4),), tmp_path)
    result = convertkit.export(source, "onnxruntime", output=tmp_path / "out")
    assert [spec.shape for spec in result.artifact.inputs] == [("N", 5, 4)]
    advice = "the batch is dynamic, as dimension N; --static N=1 fixes it"
    assert advice in result.report["notes"]
    fixed = convertkit.export(source, "onnxruntime", output=tmp_path / "fixed", static={"N": 2})
    assert advice not in fixed.report["notes"]
    lines = {location(node).partition(":")[0] for node in ir.load(result.artifact.path).graph}
    assert "test_rebatching.py" in lines
    assert not any(line.startswith("<") for line in lines), "lines of generated code say nothing to a user"
    assert [each["route"] for each in result.report["steps"][0]["options"]["attempts"]] == ["torch.export"]


def test_samples_that_depend_on_each_other_keep_the_batch(tmp_path: Path) -> None:
    source = _saved(Shared(), (torch.rand(2, 3),), tmp_path)
    result = convertkit.export(source, "onnxruntime", output=tmp_path / "out")
    assert [spec.shape for spec in result.artifact.inputs] == [(2, 3)]
    assert "the batch is fixed at 2" in " ".join(result.report["notes"])
    assert "depends on the others in its batch" in " ".join(result.report["notes"])
    with pytest.raises(SourceError, match="exported with the batch 2, takes no other"):
        convertkit.export(source, "onnxruntime", input=["x:N,3"], output=tmp_path / "named")


def test_a_result_that_loses_its_batch_with_one_sample_keeps_it(tmp_path: Path) -> None:
    class Scored(nn.Module):
        """``squeeze()`` drops the batch of one sample, beside the axes that it is meant for."""

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x * 2, (x.unsqueeze(1) @ x.unsqueeze(2)).squeeze()

    saved = _saved(Scored(), (torch.randn(1, 4),), tmp_path)
    result = convertkit.export(saved, "onnxruntime", output=tmp_path / "out")
    assert [spec.shape for spec in result.artifact.inputs] == [(1, 4)]
    assert "for a sample" in " ".join(result.report["notes"])


def test_other_sizes_than_the_batch_are_refused(tmp_path: Path) -> None:
    source = _saved(Token(), (torch.rand(1, 5, 4),), tmp_path)
    with pytest.raises(UsageError, match="exported with 5 at axis 1; only its batch can be another one"):
        convertkit.export(source, "onnxruntime", input=["x:N,9,4"], output=tmp_path / "out")


class Places(nn.Module):
    """An input of places, as long as the batch is large: it does not follow."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.places = nn.Embedding(9, 8), nn.Embedding(16, 8)

    def forward(self, ids: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        return (self.rows(ids) + self.places(places)) * mask[..., None]


class Bags(nn.Module):
    """Bags of one size, which begin at every so many ids."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(50, 6, mode="mean")

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return torch.cat([x, self.bags(ids)], 1)


class Bare(nn.Module):
    """Attention without heads, as many steps as samples."""

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x * 2, x + 1)


class Queries(nn.Module):
    """Queries that it holds ask a sequence of which some is hidden; as many heads as samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.queries = nn.Parameter(torch.randn(5, 1, 16))
        self.layers = nn.Transformer(16, 2, 1, 1, 32, 0.0)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        queries = self.queries.repeat(1, x.shape[0], 1)
        mixed = self.layers(x.permute(1, 0, 2), queries, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
        return mixed.transpose(0, 1)


_HIDDEN = torch.tensor([[False, False, True], [True, True, True]])
_IDS = torch.arange(16).reshape(4, 4) % 9


@pytest.mark.parametrize(
    ("module", "example", "flags", "shapes"),
    [
        (Places, (_IDS, torch.ones(4, 4), torch.arange(4)), ["ids::int64[0,9)", "places::int64[0,16)"], "N4 N4 4"),
        (Bags, (torch.rand(2, 1), torch.arange(10).reshape(2, 5)), ["ids::int64[0,50)"], "N1 N5"),
        (Bags, (torch.rand(1, 1), torch.arange(5).reshape(1, 5)), ["ids::int64[0,50)"], "N1 N5"),
        (Bare, (torch.rand(3, 3, 4),), [], "N34"),
        (Queries, (torch.rand(2, 3, 16), _HIDDEN), [], "N316 N3"),
    ],
    ids=["places", "bags", "one bag", "bare", "queries"],
)
def test_a_batch_that_is_a_length_elsewhere_is_free(
    tmp_path: Path, module: type[nn.Module], example: tuple[Tensor, ...], flags: list[str], shapes: str
) -> None:
    eager = module()
    source = _saved(eager, example, tmp_path)
    result = convertkit.export(source, "onnxruntime", input=flags, output=tmp_path / "out")
    assert " ".join("".join(map(str, spec.shape)) for spec in result.artifact.inputs) == shapes
    larger = [torch.cat([x, x, x]) if "N" in map(str, spec.shape) else x for x, spec in _with_specs(example, result)]
    got = result.run({spec.name: x.numpy() for x, spec in _with_specs(larger, result)})
    torch.testing.assert_close(torch.from_numpy(got["output"]), eager(*larger))


def _with_specs(example, result):
    return list(zip(example, result.artifact.inputs, strict=True))
