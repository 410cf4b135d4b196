"""What torch.export's route imports is imported once, before the forks that take it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from convertkit.converters.pytorch.model.failures import brief
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.routes import exporting
from convertkit.converters.pytorch.routes.restoring import settle_interface
from convertkit.onnx.origin import location

pytestmark = pytest.mark.filterwarnings("ignore")

_EXPORT = """
import json, sys, torch
from convertkit.converters.pytorch.routes import exporting
from convertkit.converters.pytorch import service
exporting.prepare()
prepared = set(sys.modules)
program = torch.export.export(torch.nn.Linear(3, 4), (torch.empty(1, 3),), strict=False)
exporting.write_program(program, ["x"], ["y"], sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - prepared)))
"""


def test_a_fork_finds_imported_what_it_needs(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", _EXPORT, str(tmp_path / "model.onnx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    late = json.loads(done.stdout.splitlines()[-1])
    assert len(late) < 40, "of some 1,700"
    assert (tmp_path / "model.onnx").stat().st_size > 0


class _Sized(torch.nn.Module):
    """Reads a size, for which torch inserts an operator of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] * 2, -1).sum(1) + torch.arange(x.shape[0] * 2)


def test_what_torch_inserts_has_the_line_of_what_reads_it(tmp_path: Path) -> None:
    free = ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(_Sized(), (torch.rand(4, 6),), dynamic_shapes=free, strict=False)
    assert any("runtime_assert.py" in node.meta.get("stack_trace", "") for node in program.graph.nodes)
    exporting.write_program(program, ["x"], ["y"], str(tmp_path / "model.onnx"))
    model = ir.load(tmp_path / "model.onnx")
    settle_interface(model, (Leaf("x", "x", ("N", 6), "float32"),), ("y",))
    assert {location(node).partition(":")[0] for node in model.graph} == {"test_exporting.py"}


class _Attending(torch.nn.Module):
    """Merges the heads of attention by a view, before a pool that torch's exporter does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.view(x.shape[0], 6, 4, 2).transpose(1, 2)
        shown = (x[:, None, None, :, 0] > 0.5).expand(-1, -1, 6, -1)
        seen = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, shown)
        merged = seen.transpose(1, 2).contiguous().view(x.shape)
        return torch.nn.functional.adaptive_max_pool1d(merged, 3)


def test_a_view_of_attention_is_laid_out_where_an_operator_is_taken_apart(tmp_path: Path) -> None:
    example = torch.rand(4, 6, 8)
    program = torch.export.export(_Attending(), (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    path = str(tmp_path / "model.onnx")
    exporting.write_program(program, ["x"], ["y"], path)
    (got,) = ort.InferenceSession(path).run(None, {"x": example.numpy()})
    np.testing.assert_allclose(got, _Attending()(example).numpy(), atol=1e-6)


def test_what_torchscript_passes_on_is_told_not_that_it_does() -> None:
    bags = torch.jit.script(torch.nn.EmbeddingBag(5, 2))
    with pytest.raises(RuntimeError, match="failed in the TorchScript interpreter") as caught:
        bags(torch.arange(4), torch.tensor([1, 2]))
    assert brief(caught.value).startswith("offsets[0] has to be 0")


@pytest.mark.parametrize(("dtype", "kind"), [(torch.float16, "FLOAT16"), (torch.bfloat16, "BFLOAT16")])
def test_outputs_of_a_half_type_keep_it(dtype, kind, tmp_path):
    """torch's exporter leaves sums and extremes of halves in float32."""

    class Halves(torch.nn.Module):
        def forward(self, x):
            return x.abs(), x.sum(1), x.cumsum(1), x.amax(1).float(), x * 2

    program = torch.export.export(Halves(), (torch.ones(2, 3, dtype=dtype),), strict=False)
    exporting.write_program(program, ["x"], list("abcde"), str(tmp_path / "model.onnx"))
    outputs = ir.load(tmp_path / "model.onnx").graph.outputs
    assert [(value.name, value.dtype.name) for value in outputs] == [
        ("a", kind), ("b", kind), ("c", kind), ("d", "FLOAT"), ("e", kind),
    ]  # fmt: skip


def test_complex_numbers_that_are_set_one_by_one_need_no_gradients(tmp_path: Path) -> None:
    """Parameters of a program want gradients, and setting an element of complex numbers has none."""

    class Modes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.randn(2, 3, generator=torch.Generator().manual_seed(0)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            modes = torch.fft.rfft(x)
            kept = torch.zeros_like(modes)
            for place, mode in enumerate((0, 3)):
                kept[:, :, mode] = modes[:, :, mode] * self.weights[place]
            return torch.fft.irfft(kept, n=10)

    module, x = Modes(), torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(1))
    program = torch.export.export(module, (x,), strict=False)
    exporting.write_program(program, ["x"], ["y"], str(tmp_path / "model.onnx"))
    got = ort.InferenceSession(str(tmp_path / "model.onnx")).run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(got, module(x).detach().numpy(), atol=1e-5)
