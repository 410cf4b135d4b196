"""Sizes of dimensions that are formulas of others."""

import pytest

from convertkit.errors import UsageError
from convertkit.formulas import names_in, sizes_of_dims


@pytest.mark.parametrize(
    ("given", "dims", "sizes"),
    [
        ({"H": 4}, ["16*H", "W"], {"H": 4, "16*H": 64}),
        ({"16*H": 64}, ["16*H", "8*H", "H"], {"H": 4, "16*H": 64, "8*H": 32}),
        ({"H": 3, "W": 5}, ["H*W + 1", "H - W + 9"], {"H": 3, "W": 5, "H*W + 1": 16, "H - W + 9": 7}),
        (
            {"T": 7},
            ["floordiv(T, 2)", "mod(T, 4)", "max(T, 9)", "T^2", "-1*floordiv(-1*T, 2)"],
            {"T": 7, "floordiv(T, 2)": 3, "mod(T, 4)": 3, "max(T, 9)": 9, "T^2": 49, "-1*floordiv(-1*T, 2)": 4},
        ),
        ({"2*T + 1": 9}, ["2*T + 1", "T"], {"2*T + 1": 9, "T": 4}),
        ({"batch-size": 2}, ["batch-size"], {"batch-size": 2}),
        ({}, ["0_0", "1_2", "7", "0_0 + 1"], {}),
        ({"1_2": 5, "7": 3}, ["1_2", "7", "1_20"], {"1_2": 5, "7": 3}),
        ({"x1_2": 5}, ["2*x1_2"], {"x1_2": 5, "2*x1_2": 10}),
        ({"N": 2}, ["past/len", "__import__('os')", "N.real", "f(N, 1)"], {"N": 2}),
    ],
)
def test_sizes(given, dims, sizes):
    assert sizes_of_dims(given, dims) == sizes


@pytest.mark.parametrize(
    ("given", "dims", "words"),
    [
        ({"16*H": 65}, ["16*H"], "no whole H gives that size"),
        ({"16*H": 64, "8*H": 16}, ["16*H", "8*H"], "H is 2 here and 4 elsewhere"),
        ({"T": 1}, ["T - 1"], "T - 1 is 0 where T = 1"),
        ({"H": 4, "H*W": 9, "W": 2}, ["H*W"], r"H\*W=9: it is 8 where H = 4, W = 2"),
    ],
)
def test_what_no_sizes_lead_to(given, dims, words):
    with pytest.raises(UsageError, match=words):
        sizes_of_dims(given, dims)


def test_a_name_that_is_no_formula_is_made_of_itself():
    assert names_in("batch size") == ("batch size",)
    assert names_in("1_2") == ("1_2",)
    assert set(names_in("floordiv(H, 2)*W")) == {"H", "W"}
