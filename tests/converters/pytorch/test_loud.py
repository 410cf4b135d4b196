"""Generated numbers that a model has no place for, and the roundings that large ones and large images bring."""

from __future__ import annotations

from pathlib import Path

import loud_models
import numpy as np
import pytest

import convertkit
from convertkit.errors import SourceError

pytestmark = pytest.mark.filterwarnings("ignore")


def _exported(source: str, folder: Path, *inputs: str, target: str = "onnxruntime") -> convertkit.Result:
    return convertkit.export(source, target, output=folder / "out", input=inputs)


def test_a_table_of_two_types_is_tried_with_two(tmp_path: Path) -> None:
    """The words keep their larger numbers; the note tells the flag."""
    import torch

    model = loud_models.Typed().eval()
    torch.jit.trace(model, model.example_inputs).save(str(tmp_path / "model.pt"))
    result = _exported(str(tmp_path / "model.pt"), tmp_path)
    notes = [note for note in result.report["notes"] if "tried with 0 and 1" in note]
    assert len(notes) == 1
    assert notes[0].startswith("types ")
    assert "--input 'types::int32[0,M)'" in notes[0]
    ids, types = np.arange(15).reshape(5, 3), np.array([[0, 1, 1]] * 5, np.int32)
    expected = model(torch.from_numpy(ids), torch.from_numpy(types)).detach().numpy()
    answer = result.run({"ids": np.tile(ids, (1, 2)), "types": np.tile(types, (1, 2))})
    np.testing.assert_allclose(answer["output"][:, :3], expected, rtol=1e-5, atol=1e-6)


def test_numbers_beyond_every_table_end_with_the_flag_to_add(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"index out of range(?s:.*)try   --input 'ids::int64\[LOW,HIGH\)'"):
        _exported("loud_models:OneWord", tmp_path, "ids:N,5:int64")


@pytest.mark.parametrize("form", ["factory", "trace"])
def test_columns_that_index_tables_of_several_sizes(tmp_path: Path, form: str) -> None:
    """An example goes as far as the largest table; where a trace has none, numbers below 4 are too many for one."""
    import torch

    model = loud_models.Columns().eval()
    source = "loud_models:Columns"
    if form == "trace":
        source = str(tmp_path / "model.pt")
        torch.jit.trace(model, model.example_inputs).save(source)
    result = _exported(source, tmp_path)
    (note,) = [note for note in result.report["notes"] if note.startswith("categories is tried")]
    assert "with numbers below 3" in note
    assert "--input 'categories::int64[0,M)'" in note
    assert result.artifact.inputs[0].shape == ("N", 2)
    numbers, categories = (each.numpy() for each in model.example_inputs)
    expected = model(*model.example_inputs).detach().numpy()
    answer = result.run({"numbers": numbers, "categories": categories})
    np.testing.assert_allclose(answer["output"], expected, rtol=1e-5, atol=1e-6)


def test_a_range_beyond_the_smallest_table_is_refused_with_the_one_that_works(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"index out of range(?s:.*)try   --input 'categories::int64\[0,3\)'"):
        _exported("loud_models:Columns", tmp_path, "categories::int64[0,12)")


@pytest.mark.parametrize(("name", "size"), [("Enlarged", "2,100,100"), ("Clipped", "1,24,24")])
@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_images_resized_by_fractions(tmp_path: Path, name: str, size: str, target: str) -> None:
    """White noise at 100 pixels differs by 2.3e-5; clipping to 1 makes more of the roundings of loud feeds."""
    assert _exported(f"loud_models:{name}", tmp_path, f"x:N,{size}", target=target).report["passed"]
