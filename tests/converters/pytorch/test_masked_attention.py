"""A query that sees no key: attention gives zeros there, a plain softmax NaN; artifacts do as the model does."""

from __future__ import annotations

from pathlib import Path

import mask_models
import numpy as np
import onnx
import pytest

import convertkit
from convertkit.converters.pytorch.model.check_inputs import hiding_feeds
from convertkit.converters.pytorch.model.leaves import Leaf

pytestmark = pytest.mark.filterwarnings("ignore")


def _source(name: str, form: str, folder: Path) -> str:
    import torch

    if form == "factory":
        return f"mask_models:{name}"
    module = getattr(mask_models, name)().eval()
    path = folder / ("model.pt2" if form == "pt2" else "model.pt")
    with torch.no_grad():
        if form == "pt2":
            torch.export.save(torch.export.export(module, module.example_inputs), path)
        else:
            torch.jit.trace(module, module.example_inputs, check_trace=False).save(path)
    return str(path)


def _agrees(name: str, result: convertkit.Result) -> None:
    """The artifact computes what the model computes where all of a row is 0 or 1."""
    import torch

    module = getattr(mask_models, name)().eval()
    x, mask = module.example_inputs
    for flag in (0, 1):
        row = mask.clone()
        row[0] = flag
        with torch.no_grad():
            expected = module(x, row).numpy()
        (got,) = result.run({"x": x.numpy(), "mask": row.numpy()}).values()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


_FORMS = [
    ("Floats", "traced", "torchscript-exporter"),
    ("Integers", "traced", "torchscript-exporter"),
    ("Booleans", "traced", "torchscript-exporter"),
    ("Booleans", "pt2", "torch.export"),
    ("Layers", "traced", "torchscript-exporter"),
    ("ByHand", "traced", "torchscript-exporter"),
    pytest.param("Heads", "traced", "torchscript-exporter", marks=pytest.mark.nightly),
    ("Heads", "factory", "torch.export"),
    pytest.param("Booleans", "factory", "torch.export", marks=pytest.mark.nightly),
    pytest.param("Floats", "factory", "torch.export", marks=pytest.mark.nightly),
    pytest.param("Integers", "pt2", "torch.export", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("name", "form", "route"), _FORMS)
def test_an_artifact_gives_what_the_model_gives(tmp_path: Path, name: str, form: str, route: str) -> None:
    result = convertkit.export(_source(name, form, tmp_path), "onnxruntime", output=tmp_path / "out")
    assert result.report["steps"][0]["options"]["route"] == route
    _agrees(name, result)


@pytest.mark.parametrize("name", ["Floats", pytest.param("Heads", marks=pytest.mark.nightly)])
def test_a_tflite_artifact_gives_it_too(tmp_path: Path, name: str) -> None:
    source = _source(name, "traced", tmp_path)
    _agrees(name, convertkit.export(source, "tflite", output=tmp_path / "out", static={"N": 2}))


def test_a_mask_that_is_the_same_for_all_inputs_stays_as_it_was(tmp_path: Path) -> None:
    result = convertkit.export(_source("Causal", "traced", tmp_path), "onnxruntime", output=tmp_path / "out")
    made = onnx.load(result.artifact.path)
    assert not {"ReduceMax", "Equal"} & {node.op_type for node in made.graph.node}


def test_feeds_hide_the_first_row_of_what_may_be_a_mask() -> None:
    leaves = [
        Leaf("x", "x", ("N", 3), "float32"),
        Leaf("hidden", "hidden", ("N", 3), "bool"),
        Leaf("kinds", "kinds", ("N", 3), "int64", value_range=(1.0, 9.0)),
        Leaf("ids", "ids", ("N", 3), "int64"),
    ]
    feeds = hiding_feeds(leaves, ({"N": 2}, {"N": 5}), seed=0)
    for flag, feed in enumerate(feeds):
        assert all((feed[name][0] == flag).all() for name in ("hidden", "ids"))
        assert feed["kinds"].min() >= 1, "0 and 1 are not what this input may be"
        assert len(np.unique(feed["x"])) == 6
    assert len(feeds) == 2
    assert not hiding_feeds(leaves[:1], ({"N": 2},), seed=0)
    state = Leaf("state.h", "", (4,), "float32", given=True)
    assert not hiding_feeds([*leaves, state], ({"N": 2},), seed=0), "what comes from NaN would stay in its state"


def test_what_is_written_behind_attention_has_values():
    """Later rewritings ask each node of a program what it computes."""
    import torch

    from convertkit.converters.pytorch.operators.masked_attention import keep_zeros

    module = mask_models.Booleans().eval()
    program = torch.export.export(module, module.example_inputs)
    before = len(program.graph.nodes)
    keep_zeros(program)
    added = [node for node in program.graph.nodes if node.op == "call_function"]
    assert len(program.graph.nodes) == before + 3
    assert all("val" in node.meta for node in added)
    filled = next(node for node in added if node.target == torch.ops.aten.masked_fill.Scalar)
    assert [filled.args[1].meta["val"].dtype, filled.meta["val"].dtype] == [torch.bool, torch.float32]
    assert filled.args[1].meta["val"].shape[-1] == 1
