"""TorchScript's operators on numbers and lists: all of them are there, and give what TorchScript gives."""

from __future__ import annotations

import math
import re

import pytest
import torch

from convertkit.converters.pytorch.routes.numbers import NUMERIC, broadcast, cast
from convertkit.converters.pytorch.routes.replay import _STRUCTURE
from convertkit.converters.pytorch.routes.scalars import ALWAYS

_OF_NUMBERS = re.compile(
    r"(int|float|bool|number|t|Optional\[(int|float|bool|number|t)\]|List\[(int|float|bool|t)\]|Dict\[\w+, t\])"
)
_ELSEWHERE = frozenset(
    {
        *("aten::_cufft_clear_plan_cache", "aten::_cufft_get_plan_cache_max_size", "aten::_cufft_get_plan_cache_size"),
        *("aten::_cufft_set_plan_cache_max_size", "aten::manual_seed", "aten::get_gradients", "prim::ReductionSizes"),
        *("aten::_size_if_not_equal", "aten::hash", "aten::chr", "aten::bin", "aten::hex", "aten::oct"),
        *("prim::awaitable_nowait", "aten::result_type", "aten::angle", "aten::polar"),
    }
)
"""Of CUDA's plans, of gradients, of chance, and texts or complex numbers, which no size is computed through."""


def _schemas() -> list:
    found = []
    for schema in torch._C._jit_get_all_schemas():
        kinds = [str(each.type) for each in schema.arguments]
        tensors = any("Tensor" in str(each.type) for each in schema.returns)
        own = schema.name.startswith(("aten::", "prim::"))
        if own and kinds and not tensors and all(_OF_NUMBERS.fullmatch(kind) for kind in kinds):
            found.append(schema)
    return found


def test_every_operator_on_numbers_is_there() -> None:
    names = {schema.name for schema in _schemas()}
    assert len(names) > 100
    assert names - set(ALWAYS) - set(NUMERIC) - set(_STRUCTURE) <= _ELSEWHERE


_VALUES = {"int": ((7, 2), (-7, 2), (3, 3)), "float": ((2.5, 0.75), (-2.5, 0.75), (0.5, 0.5))}
_PLAIN = {"int": "int", "float": "float", "number": "float", "bool": "int"}
_ONE_BY_ONE = ("add", "sub", "mul")
"""Behind them stands a factor, which TorchScript leaves out of the signatures of numbers."""


def _samples() -> list:
    rows = []
    for schema in _schemas():
        kinds = [str(each.type) for each in schema.arguments]
        if schema.name not in NUMERIC or any(kind not in _PLAIN for kind in kinds) or len(kinds) > 2:
            continue
        for turn in range(3):
            values = [_VALUES[_PLAIN[kind]][turn][place] for place, kind in enumerate(kinds)]
            values = [bool(value > 0) if kind == "bool" else value for kind, value in zip(kinds, values, strict=True)]
            rows.append((schema.name, schema.overload_name, tuple(values)))
    return rows


def test_numbers_are_those_of_torchscript() -> None:
    compared = 0
    for name, overload, values in _samples():
        operator = getattr(getattr(torch.ops.aten, name.partition("::")[2]), overload or "default", None)
        try:
            expected = operator(*values)
        except (RuntimeError, TypeError, OverflowError, ValueError):
            continue  # acosh of 0.5, 2.5 bits to the left
        try:
            got = NUMERIC[name](*values)
        except (ValueError, OverflowError):  # Python raises where torch answers with nan or an infinity
            assert not math.isfinite(expected), (name, overload, values)
            continue
        compared += 1
        within = 1e-6 if overload == "Scalar" else 1e-12  # torch computes gamma of a Scalar in float32
        same = got == pytest.approx(expected, rel=within, abs=1e-15, nan_ok=True)
        assert same, (name, overload, values, got, expected)
        assert isinstance(got, bool) == isinstance(expected, bool), (name, overload, values)
    assert compared > 150


TENSORS = [
    ("add", (5, 3, 2), 11),
    ("sub", (5, 3, 2), -1),
    ("rsub", (5, 3, 2), -7),
    ("equal", (4, 4), True),
    ("equal", ([4, 2], [4, 3]), False),
    ("clamp", (9, None, 4), 4),
    ("clamp", (1, 3, 2), 2),
    ("clamp_min", (1, 3), 3),
    ("maximum", (1, 3), 3),
    ("min", (1, 3), 1),
    ("max", (3,), 3),
    ("max", ([1, 5, 2],), 5),
    ("fmod", (-7, 2), -1),
    ("div", (-7, 2, "trunc"), -3),
    ("div", (-7, 2, "floor"), -4),
    ("true_divide", (7, 2), 3.5),
    ("bitwise_not", (5,), -6),
    ("bitwise_not", (True,), False),
    ("logical_not", (0,), True),
    ("logical_and", (2, 0), False),
    ("__and__", (6, 3), 2),
    ("__or__", (6, 3), 7),
    ("trunc", (-2.5,), -2),
    ("sign", (-4,), -1),
    ("square", (3,), 9),
    ("type_as", (2.75, 1), 2),
    ("type_as", (2, 1.5), 2.0),
    ("sum", ([1, 2, 3],), 6),
    ("any", ([False, True],), True),
    ("index", ([4, 5, 6], 5), 1),
    ("sorted", ([3, 1, 2],), [1, 2, 3]),
    ("slice", ([1, 2, 3, 4], 1, None, 2), [2, 4]),
]


@pytest.mark.parametrize(("name", "args", "expected"), TENSORS)
def test_operators_on_tensors_that_a_trace_has_of_sizes(name: str, args: tuple, expected: object) -> None:
    got = NUMERIC[f"aten::{name}"](*args)
    assert got == expected
    assert type(got) is type(expected)


def test_lists_are_changed_in_place() -> None:
    items = [3, 1, 2]
    NUMERIC["aten::sort"](items, True)
    NUMERIC["aten::remove"](items, 1)
    assert items == [3, 2]
    table = {"a": 1}
    assert ALWAYS["aten::setdefault"](table, "b", 2) == 2
    ALWAYS["aten::update"](table, {"a": 5})
    assert table == {"a": 5, "b": 2}


def test_a_cast_cuts_off() -> None:
    assert [cast(2.75, kind) for kind in (torch.int64, torch.float32, torch.bool)] == [2, 2.75, True]
    assert [type(cast(3, kind)) for kind in (torch.int64, torch.float64)] == [int, float]


def test_shapes_are_broadcast() -> None:
    assert broadcast([4, 1], [3, 1, 5]) == [3, 4, 5]
