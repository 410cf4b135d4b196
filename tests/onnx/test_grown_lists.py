"""Lists that grow in a loop become rows of it; the numbers stay, and what is no such list does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from onnx import parser
from torch import Tensor, nn

import convertkit
from convertkit.onnx.canonical import canonicalize

LOOP = """{begin} h1, {lists} = Loop(n, go, x, {starts}) <body = turn (int64 i, bool c, float[2,3] h, {ins}) => (
    bool d, float[2,3] g, {results}) {{ d = Identity(c) g = Tanh(h) {turn} }}>"""


def one(join: str, append: str = "m = SequenceInsert(l, g)") -> str:
    parts = LOOP.format(
        begin="e = SequenceEmpty()",
        lists="s",
        starts="e",
        ins="seq(float[2,3]) l",
        results="seq(float[2,3]) m",
        turn=append,
    )
    return f"{parts} {join}"


def two(join: str) -> str:
    parts = LOOP.format(
        begin="e = SequenceEmpty() f = SequenceEmpty()",
        lists="s, t",
        starts="e, f",
        ins="seq(float[2,3]) l, seq(float[2,3]) k",
        results="seq(float[2,3]) m, seq(float[2,3]) p",
        turn="m = SequenceInsert(l, g) b = Neg(h) p = SequenceInsert(k, b)",
    )
    return f"{parts} {join}"


ROWS = {
    "stacked": one("y = ConcatFromSequence<axis=0, new_axis=1>(s)"),
    "stacked in the middle": one("y = ConcatFromSequence<axis=1, new_axis=1>(s)"),
    "stacked behind": one("y = ConcatFromSequence<axis=-1, new_axis=1>(s)"),
    "joined": one("y = ConcatFromSequence<axis=0>(s)"),
    "joined behind": one("y = ConcatFromSequence<axis=-1>(s)"),
    "joined in two ways": one("a = ConcatFromSequence<axis=1>(s) b = ConcatFromSequence<axis=1>(s) y = Add(a, b)"),
    "what a turn begins with": one("y = ConcatFromSequence<axis=0>(s)", "m = SequenceInsert(l, h)"),
    "what no turn computes": one("y = ConcatFromSequence<axis=0>(s)", "m = SequenceInsert(l, x)"),
    "two lists": two(
        "a = ConcatFromSequence<axis=0>(s) b = ConcatFromSequence<axis=0>(t) c = Add(a, b) y = Sub(c, h1)"
    ).replace("axis=0", "axis=0, new_axis=1"),
}
KEPT = {
    "at another place": one(
        "y = ConcatFromSequence<axis=0>(s)", "z = Constant<value_int=0>() m = SequenceInsert(l, g, z)"
    ),
    "read by its length": one(
        "a = ConcatFromSequence<axis=0>(s) b = SequenceLength(s) w = Cast<to=1>(b) y = Mul(a, w)"
    ),
    "read in the turn": one(
        "y = ConcatFromSequence<axis=0>(s)", "o = SequenceInsert(l, g) w = SequenceLength(o) m = SequenceInsert(o, h)"
    ),
}  # fmt: skip


def model(nodes: str) -> onnx.ModelProto:
    return parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[2,3] x, int64 n) => (float y) <bool go = {{1}}> {{ {nodes} }}""")


def made(nodes: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    before = model(nodes)
    before.graph.output[0].type.tensor_type.ClearField("shape")
    return before, ir.to_proto(canonicalize(ir.from_proto(before)))


def operators(graph: onnx.GraphProto) -> set[str]:
    inner = [each.g for node in graph.node for each in node.attribute if each.HasField("g")]
    return {node.op_type for node in graph.node}.union(*map(operators, inner))


@pytest.mark.parametrize("nodes", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("turns", [1, 4])
def test_they_are_rows(nodes: str, turns: int) -> None:
    before, after = made(nodes)
    assert not [name for name in operators(after.graph) if "Sequence" in name]
    feed = {"x": np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32), "n": np.array(turns)}
    expected, got = (ort.InferenceSession(each.SerializeToString()).run(None, feed)[0] for each in (before, after))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("nodes", KEPT.values(), ids=KEPT)
def test_other_lists_stay(nodes: str) -> None:
    _, after = made(nodes)
    assert "SequenceInsert" in operators(after.graph)


class Recurrent(nn.Module):
    """As scripts are written: a list of what each step gives."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.zeros(x.size(0), 5)
        rows: list[Tensor] = []
        for step in range(x.size(1)):
            h = self.cell(x[:, step], h)
            rows.append(h)
        return torch.stack(rows, 1), h


@pytest.mark.filterwarnings("ignore")
def test_a_script_runs_on_tflite_with_any_batch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Recurrent().eval()
    torch.jit.script(module).save(str(tmp_path / "model.pt"))
    result = convertkit.export(tmp_path / "model.pt", "tflite", output=tmp_path / "out", input=["x:N,6,3"])
    x = torch.rand(3, 6, 3)
    for expected, got in zip(module(x), result.run({"x": x.numpy()}).values(), strict=True):
        np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
