"""Places of extremes and rows by number as one operator, and what must not match."""

import functools

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from tests.converters.stablehlo.recognition import agrees, free, operators

TIES = np.random.default_rng(5).integers(-2, 3, (4, 7))
HOLES = np.where(TIES == 1, np.nan, np.where(TIES == 2, np.inf, -np.inf))
ARG = {"argmax": (jnp.argmax, "ArgMax"), "argmin": (jnp.argmin, "ArgMin")}


@pytest.mark.parametrize("shape", ["b, 7", "b, n"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("direction", ARG)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_the_place_of_an_extreme(dtype, direction, axis, shape):
    function, operator = ARG[direction]
    model = free(lambda x: function(x, axis), shape, dtype)
    found = operators(model)
    assert found[0] == operator
    assert len(found) == (9 if dtype == "float32" else 2)  # floats: the first NaN wins over all
    arrays = [TIES.astype(dtype), np.zeros((3, 7), dtype)]
    if dtype == "float32":
        arrays += [HOLES.astype(dtype), np.full((2, 7), -np.inf, dtype), np.full((2, 7), np.inf, dtype)]
    agrees(lambda x: function(x, axis), model, *arrays)


def places(x, start=-np.inf, first=0, tie=jnp.less, missing=jnp.not_equal):
    """An argmax along the last axis with everything about it to choose."""

    def chosen(a, b):
        wins = (a[0] > b[0]) | missing(a[0], a[0])
        index = wins | ((a[0] == b[0]) & tie(a[1], b[1]))
        return jnp.where(wins, a[0], b[0]), jnp.where(index, a[1], b[1])

    counted = jax.lax.broadcasted_iota(np.int32, x.shape, 1)
    return jax.lax.reduce((x, counted), (np.float32(start), np.int32(first)), chosen, (1,))[1]


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (places, ["ArgMax"] * 2),
        (functools.partial(places, start=0.5), []),
        (functools.partial(places, first=3), []),
        (functools.partial(places, tie=jnp.greater), []),
        (functools.partial(places, missing=jnp.less), []),
        (lambda x: places(x[:, ::-1])[::-1], ["ArgMax"] * 2),
    ],
    ids=[
        "argmax",
        "a start that can win",
        "another first index",
        "last of equals",
        "not asked for NaN",
        "reversed values",
    ],
)
def test_what_is_no_place_of_an_extreme(function, operator):
    model = free(function, "b, 7", "float32")
    assert [each for each in operators(model) if each.startswith("Arg")] == operator
    agrees(function, model, np.maximum(TIES, -1).astype("f"), -np.abs(TIES).astype("f"))


TABLE = np.random.default_rng(8).standard_normal((10, 4)).astype(np.float32)
NUMBERS = [np.array([[0, 3, 9, 10, 11, -1, -10, -11]], np.int32), np.arange(-12, 12, dtype=np.int32).reshape(3, 8)]


@pytest.mark.parametrize(
    ("mode", "count"), [("clip", 3), ("fill", 11), (None, 11)], ids=["clip", "fill", "what jnp.take does"]
)
def test_rows_of_a_table_by_number(mode, count):
    """Numbers out of range are moved inside, or their rows are NaN; no node only moves an axis there and back."""

    def rows(x):
        return jnp.take(TABLE, x, axis=0, mode=mode)

    model = free(rows, "b, 8", "int32")
    found = operators(model)
    assert "Gather" in found
    assert len(found) == count
    agrees(rows, model, *NUMBERS)


def test_one_hot_stays_a_comparison():
    """ONNX ``OneHot`` counts negative numbers from the end, ``jax.nn.one_hot`` gives zeros for them."""

    def ones(x):
        return jax.nn.one_hot(x, 10)

    model = free(ones, "b, 8", "int32")
    assert operators(model) == ["Reshape", "Equal", "Cast"]
    agrees(ones, model, *NUMBERS)
