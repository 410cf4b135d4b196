"""Regions of ``torch.autocast("cuda")``: what the policy of CUDA makes of them, on a processor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import convertkit
from convertkit.converters.pytorch.load import autocasting
from convertkit.converters.pytorch.load.load import load
from convertkit.errors import ConvertKitError, Unsupported

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")  # loading sets it, for a process of its own; undone here


class Net(nn.Module):
    """Operators of a type of their own, and others; the region is the processor's, whose policy has the first alone."""

    def __init__(self, dtype: torch.dtype = torch.float16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.dtype = nn.Linear(6, 5), nn.Linear(5, 4), dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", self.dtype):
            hidden = torch.relu(self.first(x * 2))
            with torch.autocast("cpu", enabled=False):
                plain = x.sum(-1, keepdim=True)
            return torch.softmax(self.second(hidden), -1) + plain


def cast_by_hand(net: Net, x: Tensor) -> Tensor:
    weights = [(each.weight.to(net.dtype), each.bias.to(net.dtype)) for each in (net.first, net.second)]
    hidden = torch.relu(nn.functional.linear((x * 2).to(net.dtype), *weights[0]))
    return torch.softmax(nn.functional.linear(hidden, *weights[1]).float(), -1) + x.sum(-1, keepdim=True)


def regions(program: Any) -> list[tuple[Any, Any]]:
    """Every region with the graph that it runs."""
    graphs = [each for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    return [
        (node, graph.get_submodule(node.args[4].target))
        for graph in graphs
        for node in graph.graph.nodes
        if str(node.target) == "wrap_with_autocast"
    ]


def as_on_a_gpu(net: nn.Module, *x: Tensor, device: str = "cuda", single: tuple[str, ...] = ("softmax",)) -> Any:
    """The program as a GPU's torch exports it: for that device, and with float32 of operators that compute in it."""
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(net.eval(), x, dynamic_shapes=({0: batch},))
    for node, graph in regions(program):
        node.args = (device, *node.args[1:])
        for each in graph.graph.nodes:
            if each.op == "call_function" and any(name in each.name for name in single):
                each.meta["val"] = each.meta["val"].float()
    return program


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_casts_are_written_out(dtype, tmp_path):
    net, x = Net(dtype), torch.randn(3, 6)
    torch.export.save(as_on_a_gpu(net, x), tmp_path / "model.pt2")
    got = load(str(tmp_path / "model.pt2"), "pt2", None).module(x)
    torch.testing.assert_close(got, cast_by_hand(net, x), rtol=0, atol=0)
    assert (got - (torch.softmax(net.second(torch.relu(net.first(x * 2))), -1) + x.sum(-1, keepdim=True))).any()


def test_such_a_program_becomes_onnx(tmp_path):
    net, x = Net(), torch.randn(3, 6)
    torch.export.save(as_on_a_gpu(net, x), tmp_path / "model.pt2")
    result = convertkit.export(str(tmp_path / "model.pt2"), target="onnxruntime", output=tmp_path / "out")
    session = ort.InferenceSession(str(result.artifact.path))
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(got, cast_by_hand(net, x).detach().numpy(), atol=2e-3)


def test_other_types_than_the_gpus_are_refused():
    program = as_on_a_gpu(Net(), torch.randn(3, 6), single=("softmax", "relu"))
    with pytest.raises(Unsupported, match=r"aten\.relu in a region .* gives float32 on the GPU.*run_decompositions"):
        autocasting.write_casts(program)


class Mixed(nn.Module):
    """A region without casts within one with them, and an operator that computes in the widest of its types."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            half = self.second(x)
            with torch.autocast("cpu", enabled=False):
                plain = self.first(x)
            return torch.atan2(half, plain)


def test_regions_that_leave_types_alone_and_operators_of_two_types():
    net, x = Mixed(), torch.randn(3, 6)
    program = as_on_a_gpu(net, x, single=("atan2",))
    autocasting.write_casts(program)
    half = nn.functional.linear(x.half(), net.second.weight.half(), net.second.bias.half())
    torch.testing.assert_close(program.module()(x), torch.atan2(half.float(), net.first(x)), rtol=0, atol=0)


@pytest.mark.parametrize(("types", "wanted"), [(("half", "float"), "float"), (("half", "half"), "half")])
def test_operators_of_the_widest_type(types, wanted):
    """``dot`` takes two of one type: the narrower one is cast."""
    graph = torch.fx.Graph()
    with FakeTensorMode():
        places = [graph.placeholder(f"x{number}") for number in range(2)]
        for place, name in zip(places, types, strict=True):
            place.meta["val"] = torch.empty(4, dtype=getattr(torch, name))
        node = graph.call_function(torch.ops.aten.dot.default, tuple(places))
        node.meta["val"] = torch.empty((), dtype=getattr(torch, wanted))
    autocasting._cast(node, torch.float16)
    assert [each.meta["val"].dtype for each in node.all_input_nodes] == [getattr(torch, wanted)] * 2


def test_regions_of_other_devices(tmp_path):
    torch.export.save(as_on_a_gpu(Net(), torch.randn(3, 6), device="mps"), tmp_path / "model.pt2")
    with pytest.raises(ConvertKitError, match=r"torch\.autocast for mps, whose policy .*run_decompositions"):
        load(str(tmp_path / "model.pt2"), "pt2", None)
    program = as_on_a_gpu(Net(), torch.randn(3, 6), device="cpu", single=())
    before = program.graph_module.print_readable(print_output=False)
    autocasting.write_casts(program)
    assert program.graph_module.print_readable(print_output=False) == before


def test_the_policy_is_that_of_the_installed_torch():
    text = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()

    def listed(name: str) -> set[str]:
        found = re.search(rf"#define AT_FORALL_{name}\(_\)(.*?)\n\n", text, re.DOTALL)
        assert found is not None
        return {".".join(re.split(r",\s*", each)) for each in re.findall(r"_\(([\w, ]+)\)", found[1])}

    assert listed("LOWER_PRECISION_FP") == autocasting.LOWER
    assert listed("FP32") == autocasting.SINGLE
    assert listed("FP32_SET_OPT_DTYPE") == autocasting.SINGLE_UNLESS_TOLD
    assert listed("PROMOTE") == autocasting.WIDEST
