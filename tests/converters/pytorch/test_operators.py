"""Operators that torch does not have: refused by name and line, or registered by a package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import convertkit
from convertkit.errors import Unsupported

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = Path(__file__).resolve().parent


def _archive(path: Path) -> Path:
    """Trace the module in a process of its own: this one must not know the operator."""
    code = (
        "import torch, custom_models; m = custom_models.Custom().eval()\n"
        f"torch.jit.trace(m, m.example_inputs).save({str(path)!r})"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=HERE, check=True)
    return path


def test_an_exported_program_with_an_unknown_operator_names_it(tmp_path: Path) -> None:
    """Torch itself only says that it cannot read the file."""
    code = (
        "import torch, custom_models; m = custom_models.Custom().eval()\n"
        f"torch.export.save(torch.export.export(m, m.example_inputs), {str(tmp_path / 'model.pt2')!r})"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=HERE, check=True)
    with pytest.raises(Unsupported, match=r"convertkit_tests::twice") as caught:
        convertkit.export(tmp_path / "model.pt2", "onnxruntime", output=tmp_path / "out")
    assert "custom_models.py:28, in forward" in str(caught.value)


@pytest.fixture
def _plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that registers the operator, as an installed one would be found."""
    info = tmp_path / "site" / "lowering-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lowering\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[convertkit.torch_operators]\nconvertkit_tests::twice = written_out:twice\n"
    )
    (tmp_path / "site" / "written_out.py").write_text(
        "import torch\ndef twice(x: torch.Tensor, times: float) -> torch.Tensor:\n    return x * times * 2.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_an_archive_with_an_unknown_operator_names_it(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "model.pt")
    with pytest.raises(Unsupported, match=r"convertkit_tests::twice") as caught:
        convertkit.export(archive, "onnxruntime", output=tmp_path / "out")
    assert "custom_models.py:" in str(caught.value)
    assert "convertkit.torch_operators" in str(caught.value)


def test_a_module_with_an_unknown_operator_names_it(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"convertkit_tests::twice") as caught:
        convertkit.export("custom_models:Custom", "onnxruntime", output=tmp_path / "out")
    assert "custom_models.py:" in str(caught.value)


@pytest.mark.parametrize("form", ["factory", "pt2"])
def test_a_part_of_an_operator_names_the_line_of_the_whole(tmp_path: Path, form: str) -> None:
    import custom_models
    import torch

    source = "custom_models:Decomposed"
    if form == "pt2":
        source = str(tmp_path / "model.pt2")
        module = custom_models.Decomposed().eval()
        torch.export.save(torch.export.export(module, module.example_inputs), source)
    with pytest.raises(Unsupported, match=r"linalg_ldl_factor") as caught:
        convertkit.export(source, "onnxruntime", output=tmp_path / "out")
    assert caught.value.location.startswith("custom_models.py:")


@pytest.mark.usefixtures("_plugin")
def test_a_registered_operator_converts_in_an_archive(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "model.pt")
    convertkit.export(archive, "onnxruntime", output=tmp_path / "out")


@pytest.mark.usefixtures("_plugin")
def test_a_registered_operator_converts_in_a_module(tmp_path: Path) -> None:
    convertkit.export("custom_models:Custom", "onnxruntime", output=tmp_path / "out")


def test_any_other_failure_of_the_exporter_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that causes itself would be followed for ever."""
    import torch

    from convertkit.converters.pytorch.load.registered_operators import refusal
    from convertkit.converters.pytorch.routes import exporting

    def fails(*args: object, **kwargs: object) -> None:
        raise torch.onnx.OnnxExporterError("the exporter has a bad day")

    program = torch.export.export(torch.nn.Identity(), (torch.zeros(1),))
    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(torch.onnx.OnnxExporterError, match="a bad day") as caught:
        exporting.write_program(program, ["x"], ["y"], str(tmp_path / "model.onnx"))
    assert caught.value.__cause__ is None
    assert refusal(caught.value) is None
