"""Damaged files: whatever bytes change, the answer is a model that is proven or one honest sentence."""

import numpy as np
import pytest

from tests import onnx_models
from tests.command_line import everything_below, here

MUTANTS = 150
NIGHTLY_MUTANTS = 3000


def mutant(whole: bytes, seed: int) -> bytes:
    """One to eight bytes changed, or a stretch removed, doubled or zeroed."""
    draw = np.random.default_rng(seed)
    made = bytearray(whole)
    kind = draw.integers(5)
    if kind < 2:
        for place in draw.integers(len(made), size=draw.integers(1, 9)):
            made[place] = draw.integers(256)
        return bytes(made)
    start = int(draw.integers(len(made)))
    stretch = int(draw.integers(1, 64))
    replacement = {2: b"", 3: bytes(made[start : start + stretch]) * 2, 4: bytes(stretch)}[int(kind)]
    made[start : start + stretch] = replacement
    return bytes(made)


def check(folder, name, content, *flags):
    path, place = folder / name, folder / "place"
    path.write_bytes(content)
    place.mkdir(exist_ok=True)
    said = here("export", path, "-o", place / "out", "--force", *flags)
    story = f"{path}: exit {said.code}\n{said.err}"
    assert "internal error" not in said.err, story
    assert "Traceback" not in said.err, story
    if said.code == 0:
        assert (place / "out" / "manifest.json").is_file(), story
    else:
        assert said.code in (1, 3), story
        assert said.complaint, story
    assert not [name for name in everything_below(place) if ".convertkit-" in name], story


@pytest.mark.parametrize("seed", range(MUTANTS))
def test_mutated_onnx(tmp_path, seed):
    check(tmp_path, "mutant.onnx", mutant(onnx_models.mlp().SerializeToString(), seed), "--target", "onnxruntime")


@pytest.mark.nightly
def test_many_mutated_onnx(tmp_path):
    whole = onnx_models.mlp().SerializeToString()
    for seed in range(MUTANTS, MUTANTS + NIGHTLY_MUTANTS):
        check(tmp_path, "mutant.onnx", mutant(whole, seed), "--target", "onnxruntime")
