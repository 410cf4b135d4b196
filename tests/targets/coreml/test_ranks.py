"""Transposes of many dimensions as several of few."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from convertkit.targets.coreml.builder import MOST_DIMENSIONS
from convertkit.targets.coreml.ranks import moves


@pytest.mark.parametrize("shape", [(2, 3, 4, 5, 6, 7), (2, 1, 3, 4, 5, 2), (1, 1, 1, 1, 1, 1)], ids=str)
def test_every_order_of_six_axes(shape: tuple[int, ...]):
    given = np.arange(np.prod(shape)).reshape(shape)
    for perm in itertools.permutations(range(6)):
        moved = given
        for move in moves(shape, perm):
            assert len(move.shape) <= MOST_DIMENSIONS
            moved = moved.reshape(move.shape).transpose(move.perm)
        assert np.array_equal(moved.ravel(), given.transpose(perm).ravel()), perm


def test_axes_that_stay_neighbours_are_one():
    assert list(moves((2, 4, 2, 3, 2, 8), (0, 1, 3, 2, 4, 5))) == [((8, 2, 3, 16), (0, 2, 1, 3))]


def test_eight_axes_take_several_moves():
    shape, perm = (2, 3, 2, 3, 2, 3, 2, 3), (7, 2, 5, 0, 3, 6, 1, 4)
    given = moved = np.arange(np.prod(shape)).reshape(shape)
    made = list(moves(shape, perm))
    for move in made:
        moved = moved.reshape(move.shape).transpose(move.perm)
    assert len(made) > 1
    assert np.array_equal(moved.ravel(), given.transpose(perm).ravel())
