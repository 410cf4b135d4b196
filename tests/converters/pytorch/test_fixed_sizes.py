"""A target that takes no dynamic dimensions: its artifact and a release's golden vectors have the example's sizes."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit import plugins
from convertkit.errors import Unsupported
from convertkit.stage import EXACT
from tests.command_line import here

pytestmark = pytest.mark.filterwarnings("ignore")


def _shapes(specs) -> dict[str, tuple]:
    return {spec.name: tuple(spec.shape) for spec in specs}


class _FixedOnly:
    """A stage that takes no dynamic dimensions, before the stages of a real target."""

    name, version, produces, tolerance, options = "fixed-only", "1", "onnx", EXACT, {}
    accepts = frozenset({"onnx"})

    def run(self, source, workdir: Path):
        if any(isinstance(dim, str) for spec in source.inputs for dim in spec.shape):
            raise Unsupported("a dynamic batch")
        shutil.copyfile(source.path, workdir / "model.onnx")
        return dataclasses.replace(source, path=workdir / "model.onnx")


@pytest.fixture
def only_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime as a target that takes no free dimensions."""
    plain = plugins.target("onnxruntime")
    strict = type("Strict", (type(plain),), {"stages": lambda self, context: [_FixedOnly(), *plain.stages(context)]})
    monkeypatch.setattr(plugins, "target", lambda name: strict())


@pytest.mark.usefixtures("only_fixed")
def test_a_target_without_free_batch_gets_the_example_size(tmp_path: Path) -> None:
    result = convertkit.export("odd_models:Tied", "onnxruntime", output=tmp_path / "out")
    assert _shapes(result.artifact.inputs) == {"ids": (1, 6)}
    assert result.artifact.path.is_file()
    assert "N = 1 is fixed, onnxruntime cannot leave it dynamic: a dynamic batch" in " ".join(result.report["notes"])


@pytest.mark.usefixtures("only_fixed")
def test_golden_vectors_of_a_release_have_the_sizes_that_were_fixed(tmp_path: Path) -> None:
    models = '[models.tied]\nsource = "odd_models:Tied"\ntargets = ["onnxruntime"]\n'
    (tmp_path / "recipe.toml").write_text(f"{models}[release]\ngolden = 40\n")
    said = here("run", tmp_path / "recipe.toml", "--no-cache")
    assert said.code == 0, said.err
    with np.load(tmp_path / "release" / "tied" / "golden.npz") as golden:
        assert {golden[name].shape for name in golden.files if name.endswith("ids")} == {(1, 6)}
