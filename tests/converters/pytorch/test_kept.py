"""State in every kind of attribute: lifted where it can be, else refused by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kept_models
import pytest
import torch

import convertkit
from convertkit.converters.pytorch.describe import capture
from convertkit.converters.pytorch.describe.probing import describe
from convertkit.converters.pytorch.load.load import load
from convertkit.converters.pytorch.routes.attempts import Attempt, defeat
from convertkit.errors import Unsupported

pytestmark = pytest.mark.filterwarnings("ignore")
LIFTED = {
    "Pair": ("state.state.0", "state.state.1"),
    "Hidden": ("state.hidden.0", "state.hidden.1"),
    "Layers": ("state.past.0.0", "state.past.0.1", "state.past.1.0", "state.past.1.1"),
    "Log": (),
    "Table": (),
}


def _described(name: str):
    return describe(load(f"kept_models:{name}", "torch-factory", None), Path(), [], 0)[0]


@pytest.mark.parametrize("name", LIFTED)
def test_state_in_tuples_and_lists_of_them_is_found(name: str) -> None:
    assert tuple(leaf.name for leaf in _described(name).leaves if not leaf.parameter) == LIFTED[name]


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
@pytest.mark.parametrize("name", ["Layers", "Table", pytest.param("Hidden", marks=pytest.mark.nightly)])
def test_state_in_tuples_is_lifted(tmp_path: Path, name: str, target: str) -> None:
    result = convertkit.export(f"kept_models:{name}", target, output=tmp_path / "out")
    assert tuple(spec.name for spec in result.artifact.inputs if spec.name.startswith("state.")) == LIFTED[name]


def test_tuples_of_a_script_are_lifted(tmp_path: Path) -> None:
    """Python's copies of a ScriptModule's tuples go back whole, and a replay keeps what forward made of them."""
    torch.jit.script(kept_models.Pair().eval()).save(tmp_path / "pair.pt")
    result = convertkit.export(tmp_path / "pair.pt", "onnxruntime", input="x:N,4", output=tmp_path / "out")
    assert tuple(spec.name for spec in result.artifact.inputs if spec.name.startswith("state.")) == LIFTED["Pair"]


def test_state_in_a_script_class_is_named(tmp_path: Path) -> None:
    """Archives hold objects of such classes; Python can read none of them."""
    code = "import sys, torch, kept_models; torch.jit.script(kept_models.Object().eval()).save(sys.argv[1])"
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "object.pt")]
    subprocess.run(command, cwd=Path(__file__).parent, check=True)
    flags = [{"name": "x", "shape": (2, 4), "dtype": None, "range": None}]
    with pytest.raises(Unsupported, match=r"the attribute 'holder\.h' lies in an object of a script class"):
        describe(load(str(tmp_path / "object.pt"), "torchscript", None), tmp_path / "object.pt", flags, 0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Seen", "the state 'seen' holds more after every call"),
        ("Late", "the state 'cache.h' does not exist before the first call"),
    ],
)
def test_state_that_no_input_can_hold_is_named(name: str, told: str) -> None:
    with pytest.raises(Unsupported, match=told):
        _described(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Word", r"'mode' \(str\)"),
        ("Queue", r"'last' \(deque\)"),
        ("Array", r"'held' \(ndarray\)"),
        ("Shared", r"'Shared.total' \(Tensor\)"),
    ],
)
def test_what_varies_from_call_to_call_is_named(name: str, told: str) -> None:
    subject = load(f"kept_models:{name}", "torch-factory", None)
    with pytest.raises(Unsupported, match=f"it changes {told}"):
        raise capture.drawn(subject, lambda: subject.module(torch.ones(2, 4)))


def test_state_that_is_nothing_at_first_is_named_where_zeros_are_something_else() -> None:
    assert [slot.name for slot in _described("Nothing").slots if slot.unset] == ["h"]
    tried = Attempt("torch.export", True, 0.1, mismatch=True, failure="output differs")
    with pytest.raises(Unsupported, match="the state 'h' is None before the first call"):
        raise defeat([tried], ["h"])
