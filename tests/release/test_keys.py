"""By what a finished cell is known: two cells that may differ have two keys."""

import dataclasses

import pytest

from convertkit.recipe import ExportOptions, InputSpec, Normalization
from convertkit.release.cells import Cell
from convertkit.release.keys import Keys
from convertkit.release.recipe import Model
from tests import onnx_models

SHORT, LONG = Normalization("x", (0.5,), (0.25,)), Normalization("x", (0.5 + 1e-13,), (0.25,))


@pytest.fixture
def options(tmp_path):
    return ExportOptions(str(onnx_models.write(tmp_path, onnx_models.mlp(1))))


def key(options, golden=3):
    made = Cell(Model("one", options.source, {}), "onnxruntime", options.precision, options, {}, True, {})
    return Keys(golden).of(made)


def test_the_same_twice(options):
    assert key(options) is not None
    assert key(options) == key(options)
    assert key(options) != key(options, golden=4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"precision": "float32"}, {"precision": "w8"}),
        ({"normalization": (SHORT,)}, {"normalization": (LONG,)}),
        ({"inputs": (InputSpec("x", value_range=(0, 1)),)}, {"inputs": (InputSpec("x", value_range=(0, 1 + 1e-9)),)}),
    ],
)
def test_options_count_to_their_last_digit(options, one, other):
    """The command that a report shows rounds numbers, so the key holds the options beside it."""
    first, second = (dataclasses.replace(options, **given) for given in (one, other))
    assert key(first) != key(second)
