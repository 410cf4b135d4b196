"""A fixed sample of the grid in every run, all of it nightly; grid.py writes the table of docs/."""

from __future__ import annotations

from pathlib import Path

import grid
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
SAMPLE = {"CNN-traced-dynamic", "Control-scripted-dynamic", "Encoder-traced-dynamic", "GPTBuffers-scripted-static"}


def _check(cell: grid.Cell, tmp_path: Path) -> None:
    outcome = grid.run(cell, ("onnxruntime",), tmp_path)["onnxruntime"]
    if cell.may_refuse:
        assert outcome.text.startswith("refused")
        assert "a trace keeps one path" in outcome.text
    else:
        assert outcome.text == "ok"


@pytest.mark.parametrize("cell", [cell for cell in grid.CELLS if cell.id in SAMPLE], ids=lambda cell: cell.id)
def test_sample(cell: grid.Cell, tmp_path: Path) -> None:
    _check(cell, tmp_path)


def test_a_baked_branch_is_exit_3(tmp_path: Path) -> None:
    (cell,) = [cell for cell in grid.CELLS if cell.id == "Control-traced-dynamic"]
    _check(cell, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("cell", [cell for cell in grid.CELLS if cell.id not in SAMPLE], ids=lambda cell: cell.id)
def test_every_cell(cell: grid.Cell, tmp_path: Path) -> None:
    _check(cell, tmp_path)
