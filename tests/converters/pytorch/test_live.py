"""Live modules: saved as what the converter reads, unchanged, and held against the module."""

from __future__ import annotations

from pathlib import Path

import foreign_models
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import convertkit
from convertkit.converters.pytorch import converter
from convertkit.errors import Unsupported, UsageError

pytestmark = pytest.mark.filterwarnings("ignore")


class Branching(foreign_models.Seeded):
    """Python decides by the data: torch.export refuses it, a script keeps both paths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, more: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            return self.layer(x) + more
        return more - x


class Unscriptable(Branching):
    """The same, in Python that no script has; a trace would keep one path."""

    def forward(self, x, more):
        def other(y):
            return more - y

        return self.layer(x) + more if bool(x.sum() > 0) else other(x)


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def test_a_module_is_exported_as_it_is_and_stays_so(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    result = convertkit.export(module, "tflite", output=tmp_path / "out", example=torch.ones(1, 4))
    assert module.training
    assert all(each.requires_grad for each in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert result.artifact.inputs[0].shape == ("N", 4)
    x = _floats(3, 4)
    expected = module.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(next(iter(result.run({"input": x}).values())), expected, rtol=1e-5, atol=1e-6)


class Messages(nn.Module):
    """A step of a graph network: nodes that edges number, and edges in two rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(5, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        hidden = self.layer(nodes)
        return torch.zeros_like(hidden).index_add(0, edges[1], hidden[edges[0]])


def test_a_leading_axis_that_takes_no_other_size_stays(tmp_path: Path) -> None:
    edges = np.random.default_rng(2).integers(0, 7, (2, 12))
    result = convertkit.export(Messages(), output=tmp_path / "out", example=(_floats(7, 5), edges))
    assert [spec.shape for spec in result.artifact.inputs] == [(7, 5), (2, 12)]
    expected = Messages()(torch.from_numpy(_floats(7, 5)), torch.from_numpy(edges)).detach().numpy()
    got = next(iter(result.run({"nodes": _floats(7, 5), "edges": edges}).values()))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_wrappers_are_taken_off_a_copy(tmp_path: Path) -> None:
    module = foreign_models.compiled()
    path = converter.save_live(module, (np.ones((2, 4), np.float32), torch.ones(2, 4)), tmp_path)
    assert path == tmp_path / "Part.pt2"
    assert type(module).__name__ == "OptimizedModule"
    assert list(torch.export.load(path).module_call_graph[0].signature.forward_arg_names) == ["x", "scale"]


@pytest.mark.parametrize(
    "example", [(torch.ones(2, 4), torch.ones(2, 4)), {"x": torch.ones(2, 4), "more": torch.ones(2, 4)}]
)
def test_a_branch_on_data_becomes_a_script_of_known_shapes(example: object, tmp_path: Path) -> None:
    module = Branching().eval()
    result = convertkit.export(module, "onnxruntime", output=tmp_path / "out", example=example)
    assert [(spec.name, spec.shape) for spec in result.artifact.inputs] == [("x", ("N", 4)), ("more", ("N", 4))]
    for sign in (1, -1):
        x, more = sign * np.abs(_floats(3, 4)), _floats(3, 4)
        expected = module(torch.from_numpy(x), torch.from_numpy(more)).detach().numpy()
        got = next(iter(result.run({"x": x, "more": more}).values()))
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_trace_that_loses_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as caught:
        converter.save_live(Unscriptable().eval(), (torch.ones(2, 4), torch.ones(2, 4)), tmp_path)
    assert "tried torch.jit.trace: it gives a different result from the module on other inputs" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_programs_and_scripts_save_themselves(tmp_path: Path) -> None:
    module = nn.Linear(4, 2)
    program = torch.export.export(module, (torch.ones(2, 4),))
    assert converter.save_live(program, None, tmp_path) == tmp_path / "program.pt2"
    assert converter.save_live(torch.jit.script(module), None, tmp_path) == tmp_path / "Linear.pt"
    assert converter.save_live(object(), None, tmp_path) is None


def test_what_is_missing_or_does_not_fit_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a live Linear needs an example of its inputs"):
        converter.save_live(nn.Linear(4, 2), None, tmp_path)
    with pytest.raises(UsageError, match="Linear fails on the example: RuntimeError: mat1 and mat2"):
        converter.save_live(nn.Linear(4, 2), torch.ones(2, 3), tmp_path)
