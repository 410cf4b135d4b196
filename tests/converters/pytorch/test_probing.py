"""What running a model tells, in this process and without an export: what is dynamic, what state, what neither."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import state_models
import torch
from torch import Tensor, nn

import convertkit
from convertkit.artifact import Array
from convertkit.converters.pytorch.describe.probing import Description, describe, further_sizes
from convertkit.converters.pytorch.load.load import load
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.state import Session, Slot
from convertkit.errors import SourceError, Unsupported, UsageError

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _torch_s_own_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading forbids pickles for the process that it happens in; undone here."""
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")


def _described(reference: str, *flags: Mapping[str, Any]) -> tuple[Description, dict[str, Array]]:
    description, state = describe(load(reference, "torch-factory", None), Path("model"), flags, seed=0)
    return description, state


def _shapes(description: Description) -> dict[str, tuple[int | str, ...]]:
    return {leaf.name: leaf.shape for leaf in description.leaves}


def _flag(name: str, *shape: int | str, dtype: str | None = None) -> Mapping[str, Any]:
    return {"name": name, "shape": shape, "dtype": dtype, "range": None}


@pytest.mark.parametrize(
    ("name", "shapes", "note"),
    [
        ("odd_models:OnlyOne", {"x": (1, 3, 4)}, "the batch is fixed at 1, as in the example"),
        ("test_probing:Strided", {"x": (2, 4, 6)}, "the batch is fixed at 2, as in the example"),
        ("odd_models:Rewriting", {"x": ("N", 4)}, "the batch is dynamic, as dimension N"),
        ("state_models:Broadcast", {"x": ("N", 4), "state.h": ("N", 3)}, "the batch is dynamic"),
        ("state_models:Ring", {"x": ("N", 2, 5), "state.past": ("N", 2, 3)}, "the batch is dynamic"),
        ("state_models:Renewed", {"x": ("N", 4), "state.h": ("N", 3)}, "from the inputs' sizes: batch = N"),
        ("state_models:Averaged", {"x": ("N", 4), "state.mean": (4,)}, "the batch is dynamic"),
        ("state_models:Individual", {"x": (2, 3), "state.h": (2, 3)}, "'h' starts with other values for each sample"),
        (
            "state_models:TimeFirst",
            {"x": (5, "N", 4), "state.h": (1, "N", 3), "state.c": (1, "N", 3)},
            "batch is dynamic",
        ),
        ("state_models:Stream", {"x": ("T", 4), "state.h": (3,)}, "the length is dynamic, as dimension T"),
        ("test_probing:Mixed", {"x": (2, 3, 4), "state.h": (2, 3, 4)}, "the batch is fixed at 2"),
        ("test_probing:Columns", {"x": (2, 3, 4), "state.h": (2, 3, 4)}, "the batch is fixed at 2"),
        ("test_probing:Ranked", {"x": (2, 3), "state.h": (2, 1)}, "'h' starts with other values for each sample"),
        ("test_probing:Settling", {"x": ("N", 4)}, "fixed at the value of the first call: ready = True"),
    ],
)
def test_what_is_free_and_what_is_state(name: str, shapes: dict[str, tuple[int | str, ...]], note: str) -> None:
    description, _ = _described(name)
    assert _shapes(description) == shapes
    assert note in " ".join(description.notes)


class Strided(state_models.Seeded):
    """Counts elements of two samples, which one alone does not have and several do."""

    example_inputs = (torch.zeros(2, 4, 6),)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x).as_strided((5, 6), (8, 1)) * 2


class Mixed(state_models.Seeded):
    """Neither axis in front is a batch or time: what a row gives depends on all rows and on all columns."""

    example_inputs = (torch.zeros(2, 3, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(2, 3, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.h = torch.softmax(x, 0) + torch.softmax(x, 1) + self.h * torch.ones(2, 3, 1)
        return self.h * 2


class Columns(state_models.Seeded):
    """Columns have nothing to do with each other, and rows are not time: each depends on all."""

    example_inputs = (torch.zeros(2, 3, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(2, 3, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.h = torch.softmax(x, 0) + self.h / 2
        return self.h * 2


class Ranked(state_models.Seeded):
    """Makes its state anew for every size of batch, for each sample another one."""

    example_inputs = (torch.zeros(2, 3),)

    def __init__(self) -> None:
        super().__init__()
        self.h = torch.arange(2.0)[:, None]

    def forward(self, x: Tensor) -> Tensor:
        if self.h.shape[0] != x.shape[0]:
            self.h = torch.arange(float(x.shape[0]))[:, None]
        self.h = self.h + 1
        return x * self.h


class Settling(state_models.Seeded):
    """Prepares itself once."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = False

    def forward(self, x: Tensor) -> Tensor:
        self.ready = True
        return x * 2


def test_state_is_left_as_it_was_found() -> None:
    subject = load("odd_models:Counting", "torch-factory", None)
    description, state = describe(subject, Path("model"), (), seed=0)
    assert {slot.name: slot.number for slot in description.slots} == {
        "position": True,
        "cache.0": False,
        "cache.1": False,
    }
    assert subject.module.position == 0
    assert all(not each.any() for each in subject.module.cache)
    assert state.keys() == {"state.position", "state.cache.0", "state.cache.1"}


@pytest.mark.parametrize(
    ("name", "flags", "error", "text"),
    [
        ("odd_models:Growing", (), Unsupported, "the state 'past' grows from call to call"),
        ("odd_models:Spectrum", (), Unsupported, "the output 'output' is complex"),
        ("test_probing:Turned", (), Unsupported, "the input 'z' is complex"),
        ("test_probing:Named", (), Unsupported, "the state 'last' changes its type from call to call: int, NoneType"),
        ("test_probing:Picky", (_flag("x", 2, 5),), SourceError, r"the model fails on x \[2, 5\] float32"),
        (
            "loud_models:OneWord",
            (_flag("ids", "N", 5, dtype="int64"),),
            SourceError,
            r"--input 'ids::int64\[LOW,HIGH\)'",
        ),
    ],
)
def test_what_cannot_be_lifted_or_run_is_named(
    name: str, flags: tuple[Mapping[str, Any], ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        _described(name, *flags)


class Turned(nn.Module):
    example_inputs = (torch.zeros(2, 3, dtype=torch.complex64),)

    def forward(self, z: Tensor) -> Tensor:
        return torch.view_as_real(z * 1j)


class Named(state_models.Seeded):
    def __init__(self) -> None:
        super().__init__()
        self.count, self.last = 0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.last = f"call {self.count}" if self.count else 1
        self.count += 1
        return x * self.count


class Picky(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.ones(4, 3)


def _scripted(module: nn.Module, folder: Path) -> Description:
    path = folder / "model.pt"
    torch.jit.script(module).save(path)
    flags = (_flag("x", 2, 8), _flag("rate"))
    return describe(load(str(path), "torchscript", None), path, flags, seed=0)[0]


def test_a_number_with_one_working_value_is_that(tmp_path: Path) -> None:
    description = _scripted(Rated(), tmp_path)
    assert description.leaves[1].value_range == (8.0, 9.0)
    assert "rate is 8, the only value that the model takes with these shapes" in description.notes


def test_of_several_working_values_the_user_chooses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'rate::int64\[8,9\)' or --input 'rate::int64\[16,17\)'"):
        _scripted(Chosen(), tmp_path)


class Rated(nn.Module):
    def forward(self, x: Tensor, rate: int) -> Tensor:
        if rate == 16:
            return x.view(2, 16)
        if rate == 8:
            return x.view(2, 8) * 2
        raise ValueError("no such rate")


class Chosen(nn.Module):
    def forward(self, x: Tensor, rate: int) -> Tensor:
        if rate == 16:
            return x * 2
        if rate == 8:
            return x
        raise ValueError("no such rate")


def test_integers_go_as_far_as_the_model_takes_them() -> None:
    description, _ = _described("loud_models:Typed")
    assert {leaf.name: leaf.value_range for leaf in description.leaves} == {"ids": None, "types": (0.0, 2.0)}
    assert [note.split()[0] for note in description.notes if "tried with 0 and 1" in note] == ["types"]


def test_roads_are_judged_at_other_batches_and_at_multiples_of_long_lengths() -> None:
    leaves = (Leaf("x", "x", ("N", "L", 3), "float32"),)
    assert further_sizes(leaves, {"N": 1, "L": 400}) == ({"N": 2, "L": 800}, {"N": 5, "L": 1200})
    assert further_sizes((Leaf("x", "x", (1, 3), "float32"),)) == ()


def test_a_module_is_evaluated_and_the_same_each_time() -> None:
    first, second = (load("test_probing:Drawn", "torch-factory", None) for _ in range(2))
    assert not first.module.training
    assert torch.equal(first.module.layer.weight, second.module.layer.weight)
    assert not hasattr(first.module.layer, "parametrizations")
    assert [parameter.keyword for parameter in first.parameters] == [False, False, True]
    assert [parameter.required for parameter in first.parameters] == [True, False, True]


class Drawn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))

    def forward(self, x: Tensor, mask: Tensor | None = None, *, scale: Tensor) -> Tensor:
        return self.layer(x) * scale


def test_a_sequence_begins_anew_with_another_batch_and_goes_on_with_the_same() -> None:
    subject = load("state_models:Broadcast", "torch-factory", None)
    description, _ = describe(subject, Path("model"), (), seed=0)
    session = Session(subject, description.slots)

    def first(batch: int) -> Array:
        with torch.no_grad():
            made = load("state_models:Broadcast", "torch-factory", None).module(torch.ones(batch, 4))
        return np.asarray(made)

    def called(batch: int) -> Array:
        return session.run(description.leaves, {"x": np.ones((batch, 4), np.float32)})["output"]

    np.testing.assert_array_equal(called(2), first(2))
    assert not np.array_equal(called(2), first(2)), "the state goes on"
    np.testing.assert_array_equal(called(3), first(3))
    np.testing.assert_array_equal(called(2), first(2))


def test_state_that_comes_in_takes_the_place_of_what_is_held() -> None:
    subject = load("state_models:Broadcast", "torch-factory", None)
    description, state = describe(subject, Path("model"), (), seed=0)
    x, session = np.ones((1, 4), np.float32), Session(subject, description.slots)
    first = session.run(description.leaves, {"x": x, **state})
    second = session.run(description.leaves, {"x": x, "state.h": first["next_state.h"]})
    assert not np.array_equal(first["output"], second["output"])
    np.testing.assert_array_equal(session.run(description.leaves, {"x": x, **state})["output"], first["output"])


def test_the_first_call_of_a_fresh_module_is_its_own() -> None:
    """Zeros stand for a state that is not there yet; a module that begins with something else has to be seen to."""
    subject = load("test_probing:Starting", "torch-factory", None)
    leaves, slots = (Leaf("x", "x", (1, 4), "float32"),), (Slot(("h",), (1, 4), "float32"),)
    x, session = np.ones((1, 4), np.float32), Session(subject, slots)
    first = session.run(leaves, {"x": x, "state.h": np.zeros((1, 4), np.float32)})
    np.testing.assert_array_equal(first["output"], 3 * x)
    second = session.run(leaves, {"x": x, "state.h": first["next_state.h"]})
    np.testing.assert_array_equal(second["output"], 2.5 * x)


class Starting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.h = 3 * x if self.h is None else self.h / 2 + x
        return self.h


class Halved(nn.Module):
    """Half as large and back, which only whole halves are."""

    def forward(self, x: Tensor) -> Tensor:
        half = nn.functional.avg_pool2d(x, 2)
        return nn.functional.interpolate(half, size=x.shape[-2:], mode="bilinear")


BOUNDED: Mapping[str, tuple[tuple[int, ...], dict[int, tuple[int, int]], list[dict[str, int]]]] = {
    "small batches": ((2, 3, 8, 8), {0: (1, 4)}, [{"N": 2}, {"N": 2}, {"N": 4}]),
    "up to what is usual": (
        (1, 3, 32, 48), {2: (8, 96), 3: (8, 128)},
        [{"x_2": 32, "x_3": 64}, {"x_2": 64, "x_3": 128}, {"x_2": 96, "x_3": 32}],
    ),
    "no smaller ones": ((1, 3, 64, 64), {2: (40, 100), 3: (40, 100)}, [{"x_2": 64, "x_3": 64}] * 3),
    "above what is usual": (
        (1, 3, 320, 352), {2: (300, 400), 3: (300, 500)}, [{"x_2": 320, "x_3": 352}] * 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDED)
def test_sizes_are_those_that_the_program_takes(tmp_path: Path, name: str) -> None:
    shape, free, wanted = BOUNDED[name]
    dims = {axis: torch.export.Dim(f"d{axis}", min=low, max=high) for axis, (low, high) in free.items()}
    program = torch.export.export(Halved(), (torch.rand(shape),), dynamic_shapes={"x": dims})
    torch.export.save(program, tmp_path / "model.pt2")
    description, _ = describe(load(str(tmp_path / "model.pt2"), "pt2", None), tmp_path / "model.pt2", (), seed=0)
    assert list(description.sizes) == wanted


def test_a_program_of_large_images_is_verified_at_its_own_sizes(tmp_path: Path) -> None:
    dims = {axis: torch.export.Dim(f"d{axis}", min=300, max=500) for axis in (2, 3)}
    program = torch.export.export(Halved(), (torch.rand(1, 3, 320, 352),), dynamic_shapes={"x": dims})
    torch.export.save(program, tmp_path / "model.pt2")
    result = convertkit.export(tmp_path / "model.pt2", "onnxruntime", output=tmp_path / "out")
    x = np.random.default_rng(0).random((1, 3, 310, 420), np.float32)
    assert np.allclose(result.run(x)["output"], Halved()(torch.from_numpy(x)).numpy(), atol=1e-6)


class Neighbours(nn.Module):
    """Adds what the neighbours of each node are, in a graph of any size."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return x.index_add(0, edges[1], x[edges[0]])


def test_a_graph_of_any_size_has_no_fixed_batch_to_tell_of(tmp_path: Path) -> None:
    nodes, count = torch.export.Dim("nodes", min=2), torch.export.Dim("count", min=2)
    example = (torch.rand(9, 4), torch.randint(0, 9, (2, 20)))
    program = torch.export.export(Neighbours(), example, dynamic_shapes=({0: nodes}, {1: count}))
    torch.export.save(program, tmp_path / "model.pt2")
    description, _ = describe(load(str(tmp_path / "model.pt2"), "pt2", None), tmp_path / "model.pt2", (), seed=0)
    assert _shapes(description) == {"x": ("N", 4), "edges": (2, "edges_1")}
    assert not [note for note in description.notes if "batch" in note]
