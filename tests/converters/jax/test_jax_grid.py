"""The grid of docs/measurements/jax-grid.md: a cell of each kind in CI, all of them at night."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("flax")
pytest.importorskip("ai_edge_litert")

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax_grid  # noqa: E402 - found through the line above

CELLS = {cell.id: cell for cell in jax_grid.CELLS}
QUICK = ("linen_cnn-jax-free-TFLite",)


@pytest.mark.parametrize("name", QUICK)
def test_a_few_cells(name, tmp_path):
    outcome = jax_grid.convert(tmp_path, CELLS[name])
    assert outcome.good, outcome.text


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in CELLS if name not in QUICK])
def test_all_cells(name, tmp_path_factory):
    # One folder for all: what JAX exports and the calibration data of a model are made once.
    outcome = jax_grid.convert(tmp_path_factory.getbasetemp(), CELLS[name])
    assert outcome.good, outcome.text


def test_the_page_names_every_model_and_every_failure():
    outcomes = {name: jax_grid.Outcome("1e-07", good=True) for name in CELLS}
    outcomes["ranked-jax-free-ONNX"] = jax_grid.Outcome("exit 1: no such thing", good=False)
    page = jax_grid.page(outcomes)
    assert all(title in page for title, _ in jax_grid.MODELS.values())
    assert page.count("**fails** [1]") == 1
    assert "[1] exit 1: no such thing" in page
