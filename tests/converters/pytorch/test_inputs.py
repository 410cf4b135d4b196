"""Which arrays a model takes: what is known of each, what ``--input`` adds, the flag to write where nothing says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from convertkit.converters.pytorch.describe.inputs import (
    ShapesUnsaid,
    free_batch,
    free_following,
    free_second,
    leaves_of,
)
from convertkit.converters.pytorch.model.examples import Example, ExampleArray, Item, integer_range
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.programs import program_examples
from convertkit.converters.pytorch.model.subject import Parameter, Subject, named_outputs
from convertkit.errors import UsageError


def _subject(module: nn.Module, *parameters: Parameter) -> Subject:
    return Subject(module, parameters or (Parameter("x", "Tensor", True),), "eager")


def _flag(
    name: str, shape: tuple[int | str, ...] = (), dtype: str | None = None, bounds: tuple[int, int] | None = None
) -> Mapping[str, Any]:
    return {"name": name, "shape": shape, "dtype": dtype, "range": bounds}


def _example(*shape: int, dtype: str = "float32") -> Example:
    return (Item(ExampleArray(shape, dtype)),)


def test_shapes_that_nothing_tells_are_asked_for_by_name() -> None:
    subject = _subject(
        nn.Identity(), Parameter("x", "", True), Parameter("rate", "int", True), Parameter("y", "", False)
    )
    with pytest.raises(ShapesUnsaid, match=r"does not say the shape of: x \(Tensor\), rate \(int\)$"):
        leaves_of(subject, None, ())


def test_an_input_that_the_model_lacks_is_named_with_those_that_it_has() -> None:
    with pytest.raises(UsageError, match="--input image: the model has no such input; it has: x"):
        leaves_of(_subject(nn.Identity()), [_example(1, 3)], [_flag("image", (1, 3))])


def test_a_model_without_inputs_is_refused() -> None:
    with pytest.raises(UsageError, match="takes no input"):
        leaves_of(_subject(nn.Identity(), Parameter("x", "", False)), None, ())


def test_a_flag_of_another_rank_than_the_example_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--input x: 2 dimensions, the model was traced with \[1, 3, 8\]"):
        leaves_of(_subject(nn.Identity()), [_example(1, 3, 8)], [_flag("x", (1, 3))])


def test_a_flag_adds_to_what_the_example_tells() -> None:
    (leaf,) = leaves_of(_subject(nn.Identity()), [_example(4, 6, dtype="int32")], [_flag("x", bounds=(0, 9))])
    assert (leaf.shape, leaf.dtype, leaf.value_range, leaf.given) == ((4, 6), "int32", (0.0, 9.0), False)
    (leaf,) = leaves_of(_subject(nn.Identity()), [_example(4, 6, dtype="int32")], [_flag("x", ("N", 6))])
    assert (leaf.shape, leaf.dtype, leaf.given) == (("N", 6), "int32", True)


@pytest.mark.parametrize(("shape", "scalar"), [((), True), ((1,), False)])
def test_a_number_is_a_number_unless_it_is_given_a_shape(shape: tuple[int, ...], scalar: bool) -> None:
    subject = _subject(nn.Identity(), Parameter("rate", "int", True))
    (leaf,) = leaves_of(subject, None, [_flag("rate", shape)])
    assert (leaf.scalar, leaf.dtype) == (scalar, "int64")


def test_flags_put_together_what_a_parameter_holds() -> None:
    subject = _subject(nn.Identity(), Parameter("x", "List[Tuple[Tensor, Tensor]]", True))
    leaves = leaves_of(subject, None, [_flag(name, (1, 2)) for name in ("x_1_0", "x_0_1", "x_0_0", "x_1_1")])
    assert [leaf.path for leaf in leaves] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {leaf.kinds for leaf in leaves} == {("list", "tuple")}
    values = {leaf.name: place for place, leaf in enumerate(leaves)}
    assert subject.arguments(leaves, values) == (([(0, 1), (2, 3)],), {})
    subject = _subject(nn.Identity(), Parameter("x", "Dict[str, Tensor]", True))
    leaves = leaves_of(subject, None, [_flag("x_left", (1, 2)), _flag("x_right", (1, 2))])
    assert subject.arguments(leaves, {"x_left": 0, "x_right": 1}) == (({"left": 0, "right": 1},), {})


def _leaf(name: str, *shape: int | str, given: bool = False) -> Leaf:
    return Leaf(name, name, shape, "float32", given=given)


def _shapes(leaves: tuple[Leaf, ...] | None) -> list[tuple[int | str, ...]] | None:
    return None if leaves is None else [leaf.shape for leaf in leaves]


def test_a_batch_is_what_inputs_lead_with_alike_and_nobody_fixed() -> None:
    leaves = (_leaf("a", 2, 3), _leaf("b", 2), _leaf("c", 5, 3), _leaf("d", 2, 3, given=True), _leaf("e"))
    assert _shapes(free_batch(leaves)) == [("N", 3), ("N",), (5, 3), (2, 3), ()]
    assert _shapes(free_batch(leaves, only_first=True)) == [("N", 3), (2,), (5, 3), (2, 3), ()]
    assert free_batch((_leaf("a", 2, 3, given=True),)) is None
    assert free_batch((_leaf("a", "M", 3),)) is None


def test_a_program_s_batch_is_what_follows_it() -> None:
    leaves = (_leaf("a", 2, 3), _leaf("b", 2, 4))
    assert _shapes(free_following(leaves, (True, False))) == [("N", 3), (2, 4)]
    assert free_following((*leaves, _leaf("c", 2, given=True)), (True, False, True)) is None
    assert free_following(leaves, ()) is None


def test_time_first_inputs_have_their_batch_behind() -> None:
    leaves = (_leaf("a", 7, 2, 3), _leaf("b", 7, 2), _leaf("c", 7, 4, 3))
    assert _shapes(free_second(leaves)) == [(7, "N", 3), (7, 2), (7, 4, 3)]
    assert free_second((_leaf("b", 7, 2),)) is None


def test_arguments_behind_one_that_is_left_out_go_by_name() -> None:
    given = [
        Parameter("x", "", True),
        Parameter("mask", "", False),
        Parameter("y", "", False),
        Parameter("k", "", True, True),
    ]
    subject = _subject(nn.Identity(), *given)
    leaves = [_leaf("x"), _leaf("y"), _leaf("k")]
    assert subject.arguments(leaves, {"x": 0, "y": 1, "k": 2}) == ((0,), {"y": 1, "k": 2})
    leaves = [_leaf("x"), _leaf("mask"), _leaf("k")]
    assert subject.arguments(leaves, {"x": 0, "mask": 1, "k": 2}) == ((0, 1), {"k": 2})


def test_outputs_are_named_by_their_places_and_keys() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    assert [name for name, _ in named_outputs(a)] == ["output"]
    assert [name for name, _ in named_outputs((a,))] == ["output"]
    assert [name for name, _ in named_outputs((a, None, b))] == ["output_0", "output_2"]
    assert [name for name, _ in named_outputs({"left": a, "more": [a, b]})] == ["left", "more_0", "more_1"]
    assert [name for name, _ in named_outputs({"a_b": a, "a": {"b": b}})] == ["output_0", "output_1"]


def test_integers_of_an_example_that_vary_tell_their_range() -> None:
    assert integer_range(np.array([3, 0, 7])) == (0.0, 8.0)
    assert integer_range(np.array([4, 4])) is None
    assert integer_range(np.array([1.0, 2.0])) is None


class Two(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a.sum(1) + b.sum()


def test_free_sizes_of_a_program_that_are_not_the_same_have_names_of_their_own() -> None:
    dims = ({0: torch.export.Dim("rows")}, {0: torch.export.Dim("others"), 1: torch.export.Dim("columns")})
    program = torch.export.export(Two(), (torch.zeros(3, 4), torch.zeros(5, 6)), dynamic_shapes=dims)
    subject = Subject(None, (Parameter("a", "", True), Parameter("b", "", True)), "pt2", program)
    leaves = leaves_of(subject, program_examples(subject), ())
    assert [leaf.shape for leaf in leaves] == [("N", 4), ("b_0", "b_1")]
