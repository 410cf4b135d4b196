"""The flags that are asked for where a file says no shapes: the model computes with them, as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convertkit.converters.pytorch.describe.probing import describe
from convertkit.converters.pytorch.load.load import load
from convertkit.converters.pytorch.model.subject import Parameter, Subject
from convertkit.errors import SourceError, UsageError
from convertkit.options.inputs import parse_input

pytestmark = pytest.mark.filterwarnings("ignore")


class Flat(nn.Sequential):
    """Takes images of one size only."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 2, 3, 2, 1), nn.Flatten(), nn.Linear(2 * 16 * 16, 4))


class Two(nn.Module):
    """Inputs for two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.signal, self.vector = nn.Conv1d(4, 6, 3, padding=1), nn.Linear(7, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.signal(x).mean(-1) + self.vector(y)


class Words(nn.Module):
    """Ids, and a mask of 0 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings, self.types = nn.Embedding(90, 8), nn.Embedding(2, 8)

    def forward(self, input_ids: Tensor, type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return (self.word_embeddings(input_ids) + self.types(type_ids)) * attention_mask[..., None]


class Hidden(nn.Module):
    """A mask that only booleans suit."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.embedding(ids).masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)


class Pairs(nn.Module):
    """Ids one by one, beside numbers: sizes that are equal by chance would let a sequence of them pass."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item, self.dense = nn.Embedding(30, 8), nn.Embedding(70, 8), nn.Linear(4, 8)

    def forward(self, item_id: Tensor, user_id: Tensor, dense: Tensor) -> Tensor:
        return self.dense(dense) * self.user(user_id) + self.item(item_id).view(-1, 8)


class Steps(nn.Module):
    """Sequences and their lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(7, 3, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.rnn(x)[0].sum(1) / lengths[:, None]


class Product(nn.Module):
    """No layer at all."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y.transpose(0, 1)


class Scaled(nn.Module):
    """A number beside the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Tensor, k: int) -> Tensor:
        return self.layer(x) * k


class Listed(nn.Module):
    """A list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, xs: list[Tensor]) -> Tensor:
        return self.layer(xs[0]) * self.layer(xs[1])


class Keyed(nn.Module):
    """Fails with an error that is not a sentence."""

    def forward(self, x: Tensor) -> Tensor:
        return {"a": x}["b"]


class Lacking(nn.Module):
    """Asks a tensor for what it has not."""

    def forward(self, x: Tensor) -> Tensor:
        return x.nonsense()


ASKED = [
    (nn.Conv2d(3, 4, 3), "x:N,3,HEIGHT,WIDTH"),
    (nn.Conv1d(5, 4, 3), "x:N,5,LENGTH"),
    (nn.Conv3d(2, 4, 3), "x:N,2,DEPTH,HEIGHT,WIDTH"),
    (nn.Sequential(nn.Linear(7, 4), nn.Linear(4, 3)), "x:N,7"),
    (nn.Sequential(nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3)), "x:N,6,HEIGHT,WIDTH"),
    (nn.ReLU(), "x:N,SIZE"),
    (Flat(), "x:N,3,32,32"),
    (Two(), "x:N,4,LENGTH y:N,7"),
    (Words(), "input_ids:N,LENGTH:int64[0,90) type_ids:N,LENGTH:int64[0,2) attention_mask:N,LENGTH:int64[0,2)"),
    (Hidden(), "ids:N,LENGTH:int64[0,50) mask:N,LENGTH:bool"),
    (Pairs(), "item_id:N:int64[0,70) user_id:N:int64[0,30) dense:N,4"),
    (Steps(), "x:N,LENGTH,7 lengths:N:int64[1,3)"),
    (Product(), "x:N,SIZE y:N,SIZE"),
    (Scaled(), "x:N,5 k::int64"),
]
TYPES = {"k": "int"}


def _subject(module: nn.Module, *, scripted: bool) -> Subject:
    module = module.eval().requires_grad_(False)
    script = torch.jit.script(module)
    names = [argument.name for argument in script.forward.schema.arguments[1:]]
    parameters = [Parameter("x" if len(names) == 1 else name, TYPES.get(name, "Tensor"), True) for name in names]
    return Subject(script if scripted else module, tuple(parameters), "eager")


def _options(flags: list[str]) -> list[dict[str, Any]]:
    specs = [parse_input(flag) for flag in flags]
    return [{"name": s.name, "shape": s.shape, "dtype": s.dtype, "range": s.value_range} for s in specs]


@pytest.mark.parametrize("scripted", [False, True], ids=["eager", "script"])
@pytest.mark.parametrize(("module", "flags"), ASKED, ids=[type(module).__name__ for module, _ in ASKED])
def test_flags_that_are_asked_for_are_those_with_which_the_model_computes(
    module: nn.Module, flags: str, scripted: bool
) -> None:
    subject = _subject(module, scripted=scripted)
    with pytest.raises(UsageError, match="the model computes with this") as caught:
        describe(subject, Path(), (), 0)
    said = shlex.split(str(caught.value).partition("try   ")[2])
    assert said == [word for flag in flags.split() for word in ("--input", flag)]
    described, _ = describe(subject, Path(), _options(flags.split()), 0)
    assert [leaf.name for leaf in described.leaves] == [parameter.name for parameter in subject.parameters]


def test_lists_are_asked_for_item_by_item() -> None:
    subject = load("test_input_suggestions:Listed", "torch-factory", None)
    with pytest.raises(UsageError, match=r"xs \(list\[Tensor\]\); .*\n.*--input xs_0:N,5 --input xs_1:N,5$"):
        describe(subject, Path(), (), 0)


ODD = [
    ("Keyed", r"KeyError: 'b' \(test_input_suggestions.py:\d+, in forward\)"),
    ("Lacking", r"AttributeError: .*no attribute 'nonsense' \(test_input_suggestions.py:\d+, in forward\)"),
]


@pytest.mark.parametrize(("name", "told"), ODD)
def test_whatever_forward_raises_is_told_with_its_line(name: str, told: str) -> None:
    with pytest.raises(SourceError, match=rf"the model fails on x \[2, 5\] float32: {told}"):
        describe(load(f"test_input_suggestions:{name}", "torch-factory", None), Path(), _options(["x:2,5"]), 0)


def test_flags_with_which_the_model_does_not_compute_are_called_a_start() -> None:
    module = nn.Sequential(nn.Unflatten(0, (7, 11)), nn.Linear(5, 3))
    with pytest.raises(UsageError, match=r"does not compute yet\n  try   --input x:N,5$"):
        describe(_subject(module, scripted=False), Path(), (), 0)


def test_a_model_whose_windows_need_a_length_is_tried_at_longer_ones_only() -> None:
    subject = _subject(nn.Conv2d(3, 4, 3), scripted=False)
    described, _ = describe(subject, Path(), _options(["x:N,3,HEIGHT,WIDTH"]), 0)
    assert all(sizes["HEIGHT"] >= 3 for sizes in described.sizes)
