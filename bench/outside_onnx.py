"""ONNX files as other exporters and older opsets write them, for ``bench/outside.py``.

Networks of PyTorch as its TorchScript exporter traces them at opsets 9 to 17, the same moved to opsets 7 to 23 by
onnx's version converter, and graphs by hand that use what newer exporters do not: what is expected of those is what
onnx's reference evaluator gives.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator
from outside import floats
from torch import Tensor, nn

TRACED = (9, 11, 13, 15, 17)
BY_RUNTIME = (
    "upsample-7-nearest",
    "upsample-7-linear",
    "upsample-9",
    "resize-10",
    "resize-10-down",
    "batchnorm-7",
    "convtranspose-output-shape",
    "scatter-9",
    "topk-1",
    "function-attribute",
    "split-to-sequence",
)
CONVERTED = (7, 8, 10, 12, 14, 16, 19, 20, 21, 22, 23)


class Vision(nn.Module):
    """A residual network with an upsampling, a pad and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.second = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(8, 8, 3, groups=4), nn.PReLU(8), nn.Dropout(0.2))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(x)
        y = torch.cat([x, self.second(x)], 1)
        up = nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.head(y.mean((2, 3))).softmax(-1), up.clamp(-1, 1)


class Nearest(nn.Module):
    """An encoder and decoder with nearest upsampling and transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.InstanceNorm2d(6, affine=True), nn.ELU())
        self.up = nn.ConvTranspose2d(6, 3, 3, 2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        small = nn.functional.avg_pool2d(self.down(x), 3, 2, 1, ceil_mode=True, count_include_pad=False)
        big = nn.functional.interpolate(small, scale_factor=2.0, mode="nearest")
        return self.up(big)[:, :, 1:-1, ::2] if False else self.up(big)[:, :, 1:-1, 2:9]


class Text(nn.Module):
    """Attention with a norm, GELU and a comparison."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", batch_first=True)
        self.out = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y = torch.where(y > 0.5, y, y * 0.1)
        return nn.functional.log_softmax(self.out(y), -1)


class Recurrent(nn.Module):
    """Both ways through an LSTM, then a GRU's last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True), nn.GRU(12, 4, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (_, cell) = self.lstm(x)
        return self.gru(y)[1], cell


class Indexing(nn.Module):
    """Slices, gathers, a top-k, a cumulative sum and an einsum."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values, places = x.topk(3, -1)
        split = x.chunk(2, 1)
        shape = x.reshape(x.shape[0], -1, 2).permute(0, 2, 1)
        return values, places, split[0] * split[1], shape, torch.einsum("bij,bkj->bik", x, x), x[:, [2, 0, 1]] % 0.7


NETS: Mapping[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]]]] = {
    "vision": (Vision, [(1, 3, 16, 20)]),
    "nearest": (Nearest, [(1, 3, 11, 14)]),
    "text": (Text, [(2, 7, 12)]),
    "sequence": (Recurrent, [(2, 6, 5)]),
    "indexing": (Indexing, [(2, 4, 6)]),
}


def traced(folder: Path, name: str, opset: int, dynamic: bool) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The file that the TorchScript exporter writes, and what the network answers."""
    torch.manual_seed(1)
    maker, shapes = NETS[name]
    model = maker().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.05, 2)
    args, path = tuple(torch.from_numpy(each) for each in floats(shapes)["noise"]), folder / "traced.onnx"
    axes = {"x": {0: "batch"}} if dynamic else None
    torch.onnx.export(
        model, args, str(path), dynamo=False, opset_version=opset, input_names=["x"], dynamic_axes=axes, verbose=False
    )
    double, rows = copy.deepcopy(model).double(), {}
    for kind, arrays in floats(shapes).items():
        rows[kind] = {"inputs": arrays, "outs": _leaves(model(*map(torch.from_numpy, arrays)))}
        rows[kind]["double"] = _leaves(double(*[torch.from_numpy(each).double() for each in arrays]))
    proto = onnx.load(path)
    path.unlink()
    return proto, rows


def _leaves(found: Any) -> list[np.ndarray]:
    return [each.numpy(force=True) for each in torch.utils._pytree.tree_leaves(found)]


def _graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray],
    opset: int,
    kind: int = TensorProto.FLOAT,
    **more: Any,
) -> onnx.ModelProto:
    """A model by hand; the outputs' shapes are not told."""
    graph = helper.make_graph(
        list(nodes),
        "by hand",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    for each in graph.output:
        each.type.tensor_type.elem_type = more.get("out", kind)
    imports = [helper.make_opsetid("", opset), *[helper.make_opsetid(d, 1) for d in more.get("domains", ())]]
    model = helper.make_model(graph, opset_imports=imports, functions=more.get("functions", ()))
    model.ir_version = more.get("ir", {7: 3, 8: 3, 9: 4, 10: 5}.get(opset, 8))
    return model


def by_hand() -> Iterator[tuple[str, onnx.ModelProto]]:  # noqa: PLR0915
    """Graphs that use one thing each that few exporters write."""
    rng, n = np.random.default_rng(0), helper.make_node
    shape = {"x": (2, 3, 5, 6)}
    f = np.float32
    w, b = rng.standard_normal((4, 3, 3, 3)).astype(f), rng.standard_normal(4).astype(f)
    conv = n("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1])
    norm = {k: rng.uniform(0.2, 2, 3).astype(f) for k in ("s", "o", "m", "v")}
    each = {k: rng.uniform(0.2, 2, (3, 5, 6)).astype(f) for k in ("s", "o", "m", "v")}
    names = ["x", "s", "o", "m", "v"]
    yield "upsample-7-nearest", _graph([n("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0])], shape, ["y"], {}, 7)
    linear = n("Upsample", ["x"], ["y"], mode="linear", scales=[1.0, 1.0, 2.0, 1.5])
    yield "upsample-7-linear", _graph([linear], shape, ["y"], {}, 7)
    sizes = {"z": np.array([1, 1, 2, 2], f)}
    yield "upsample-9", _graph([n("Upsample", ["x", "z"], ["y"], mode="linear")], shape, ["y"], sizes, 9)
    yield "resize-10", _graph([n("Resize", ["x", "z"], ["y"], mode="linear")], shape, ["y"], sizes, 10)
    down = {"z": np.array([1, 1, 0.6, 0.5], f)}
    yield "resize-10-down", _graph([n("Resize", ["x", "z"], ["y"], mode="nearest")], shape, ["y"], down, 10)
    yield "batchnorm-7", _graph([n("BatchNormalization", names, ["y"], epsilon=1e-3)], shape, ["y"], norm, 7)
    yield "batchnorm-7-spatial-0", _graph([n("BatchNormalization", names, ["y"], spatial=0)], shape, ["y"], each, 7)
    old = n("BatchNormalization", names, ["y"], is_test=1, consumed_inputs=[0, 0, 0, 1, 1])
    yield "batchnorm-1", _graph([old], shape, ["y"], norm, 1, ir=3)
    drop = {"r": np.array(0.5, f), "t": np.array(True)}
    yield "dropout-12-training", _graph([n("Dropout", ["x", "r", "t"], ["y"], seed=3)], shape, ["y"], drop, 12)
    off = {"r": np.array(0.5, f), "t": np.array(False)}
    yield (
        "dropout-12-mask",
        _graph([n("Dropout", ["x", "r", "t"], ["d", "k"]), n("Neg", ["d"], ["y"])], shape, ["y"], off, 12),
    )
    yield "dropout-7", _graph([n("Dropout", ["x"], ["d"], ratio=0.3), n("Neg", ["d"], ["y"])], shape, ["y"], {}, 7)
    yield (
        "gemm-7",
        _graph(
            [n("Flatten", ["x"], ["f"]), n("Gemm", ["f", "w", "c"], ["y"], alpha=0.5, beta=2.0, transB=1)],
            shape,
            ["y"],
            {"w": rng.standard_normal((4, 90)).astype(f), "c": rng.standard_normal((1, 4)).astype(f)},
            7,
        ),
    )
    yield "softmax-11-axis-1", _graph([n("Softmax", ["x"], ["y"], axis=1)], shape, ["y"], {}, 11)
    yield "hardmax-11", _graph([n("Hardmax", ["x"], ["y"], axis=2)], shape, ["y"], {}, 11)
    yield "clip-6-one-side", _graph([n("Clip", ["x"], ["y"], max=0.4)], shape, ["y"], {}, 9)
    yield "clip-11-empty-min", _graph([n("Clip", ["x", "", "m"], ["y"])], shape, ["y"], {"m": np.array(0.4, f)}, 11)
    yield (
        "pad-2-edge",
        _graph([n("Pad", ["x"], ["y"], mode="edge", pads=[0, 0, 1, 2, 0, 0, 0, 1])], shape, ["y"], {}, 9),
    )
    yield "slice-1", _graph([n("Slice", ["x"], ["y"], axes=[2, 3], starts=[1, -4], ends=[99, -1])], shape, ["y"], {}, 9)
    yield (
        "broadcast-6",
        _graph([n("Add", ["x", "o"], ["y"], axis=1, broadcast=1)], shape, ["y"], {"o": norm["o"]}, 6, ir=3),
    )
    yield "reshape-1", _graph([n("Reshape", ["x"], ["y"], shape=[0, -1, 6])], shape, ["y"], {}, 4, ir=3)
    yield (
        "sum-one",
        _graph([n("Sum", ["x"], ["a"]), n("Max", ["a"], ["b"]), n("Mean", ["b", "x"], ["y"])], shape, ["y"], {}, 8),
    )
    yield "topk-1", _graph([n("TopK", ["x"], ["y", "i"], axis=3, k=2)], shape, ["y"], {}, 9)
    yield (
        "maxpool-8-indices",
        _graph([n("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2])], shape, ["y"], {}, 8),
    )
    auto = n("MaxPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER")
    yield "maxpool-same-lower", _graph([auto], shape, ["y"], {}, 12)
    yield (
        "convtranspose-output-shape",
        _graph(
            [n("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], output_shape=[10, 13])],
            shape,
            ["y"],
            {"w": rng.standard_normal((3, 2, 3, 3)).astype(f)},
            11,
        ),
    )
    yield (
        "names-slashes-spaces",
        _graph(
            [n("Relu", ["in put/x:0"], ["/a b/c"], name="a/b c"), n("Neg", ["/a b/c"], ["out put/y:0"], name="a/b c")],
            {"in put/x:0": (2, 3)},
            ["out put/y:0"],
            {},
            13,
        ),
    )
    yield (
        "names-dots-unicode",
        _graph([n("Relu", ["größe.1"], ["a"]), n("Exp", ["a"], ["日本"])], {"größe.1": (2, 3)}, ["日本"], {}, 13),
    )
    yield (
        "names-keywords",
        _graph([n("Relu", ["class"], ["lambda"]), n("Exp", ["lambda"], ["None"])], {"class": (2, 3)}, ["None"], {}, 13),
    )
    yield (
        "names-case",
        _graph([n("Relu", ["X"], ["Y"]), n("Exp", ["x"], ["y"])], {"X": (2, 3), "x": (2, 3)}, ["Y", "y"], {}, 13),
    )
    yield "input-is-output", _graph([n("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y", "x"], {}, 13)
    yield (
        "output-twice",
        _graph(
            [n("Relu", ["x"], ["a"]), n("Identity", ["a"], ["y"]), n("Identity", ["a"], ["z"])],
            {"x": (2, 3)},
            ["y", "a", "z"],
            {},
            13,
        ),
    )
    yield "unused-outputs", _graph([n("Split", ["x"], ["a", "", "y"], axis=1)], {"x": (2, 6, 2)}, ["y"], {}, 11)
    unused = _graph([conv], shape, ["c"], {"w": w, "b": b, "left over": rng.standard_normal(50).astype(f)}, 13)
    yield "unused-initializer", unused
    both = _graph([conv], {**shape, "w": w.shape, "b": b.shape}, ["c"], {"w": w, "b": b}, 8, ir=3)
    yield "initializers-as-inputs", both
    unread = _graph([n("Relu", ["x"], ["y"])], {"x": (2, 3), "unread": (4,)}, ["y"], {}, 13)
    yield "unused-input", unread
    f16 = [
        n("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        n("Conv", ["h", "w", "b"], ["c"]),
        n("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    yield "float16-inside", _graph(f16, shape, ["y"], {"w": w.astype(np.float16), "b": b.astype(np.float16)}, 13)
    bf = [
        n("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
        n("Cast", ["h"], ["c"], to=TensorProto.FLOAT),
        n("Neg", ["c"], ["y"]),
    ]
    yield "bfloat16-inside", _graph(bf, shape, ["y"], {}, 13)
    yield (
        "double-inside",
        _graph(
            [n("Cast", ["x"], ["h"], to=TensorProto.DOUBLE), n("Exp", ["h"], ["e"]), n("Cast", ["e"], ["y"], to=1)],
            {"x": (2, 3)},
            ["y"],
            {},
            13,
        ),
    )
    body = helper.make_function(
        "custom",
        "Twice",
        ["a"],
        ["r"],
        [n("Add", ["a", "a"], ["t"]), n("Relu", ["t"], ["r"])],
        [helper.make_opsetid("", 17)],
    )
    twice = [n("Twice", ["x"], ["m"], domain="custom"), n("Twice", ["m"], ["y"], domain="custom")]
    yield "function", _graph(twice, shape, ["y"], {}, 17, domains=["custom"], functions=[body])
    leaky = helper.make_function(
        "custom",
        "Leak",
        ["a"],
        ["r"],
        [_reference("LeakyRelu", "a", "r", "alpha", "slope")],
        [helper.make_opsetid("", 17)],
        ["slope"],
    )
    yield (
        "function-attribute",
        _graph(
            [n("Leak", ["x"], ["y"], domain="custom", slope=0.3)],
            shape,
            ["y"],
            {},
            17,
            domains=["custom"],
            functions=[leaky],
        ),
    )
    seq = [
        n("SequenceConstruct", ["x", "d"], ["q"]),
        n("ConcatFromSequence", ["q"], ["y"], axis=1),
        n("Neg", ["x"], ["d"]),
    ]
    yield "sequence", _graph([seq[2], seq[0], seq[1]], shape, ["y"], {}, 13)
    split = [n("SplitToSequence", ["x"], ["q"], axis=1, keepdims=0), n("SequenceAt", ["q", "i"], ["y"])]
    yield "split-to-sequence", _graph(split, shape, ["y"], {"i": np.array(1, np.int64)}, 13)
    opt = [n("Optional", ["x"], ["o"]), n("OptionalGetElement", ["o"], ["g"]), n("Neg", ["g"], ["y"])]
    yield "optional", _graph(opt, shape, ["y"], {}, 15)
    yes = helper.make_graph([n("Exp", ["x"], ["p"])], "then", [], [helper.make_tensor_value_info("p", 1, (2, 3))])
    no = helper.make_graph([n("Neg", ["x"], ["q"])], "else", [], [helper.make_tensor_value_info("q", 1, (2, 3))])
    branch = [
        n("ReduceSum", ["x"], ["s"], keepdims=0),
        n("Greater", ["s", "zero"], ["k"]),
        n("If", ["k"], ["y"], then_branch=yes, else_branch=no),
    ]
    yield "if-outer-value", _graph(branch, {"x": (2, 3)}, ["y"], {"zero": np.array(0, f)}, 13)
    lstm = {
        "w": rng.standard_normal((1, 16, 3)).astype(f),
        "r": rng.standard_normal((1, 16, 4)).astype(f) * f(0.3),
        "h": np.zeros((1, 2, 4), f),
    }
    yield (
        "lstm-empty-inputs",
        _graph([n("LSTM", ["x", "w", "r", "", "", "h"], ["", "y"], hidden_size=4)], {"x": (5, 2, 3)}, ["y"], lstm, 7),
    )
    yield (
        "gru-linear-before",
        _graph(
            [n("GRU", ["x", "w", "r"], ["y"], hidden_size=4, linear_before_reset=1, clip=0.5)],
            {"x": (5, 2, 3)},
            ["y"],
            {"w": lstm["w"][:, :12], "r": lstm["r"][:, :12]},
            14,
        ),
    )
    yield (
        "constant-scalar-forms",
        _graph(
            [
                n("Constant", [], ["k"], value_float=2.5),
                n("Mul", ["x", "k"], ["m"]),
                n("Constant", [], ["v"], value_floats=[1.0, 2.0, 3.0]),
                n("Add", ["m", "v"], ["y"]),
            ],
            {"x": (2, 3)},
            ["y"],
            {},
            13,
        ),
    )
    yield (
        "constant-of-shape",
        _graph(
            [
                n("Shape", ["x"], ["s"]),
                n("ConstantOfShape", ["s"], ["o"], value=numpy_helper.from_array(np.array([1.5], f))),
                n("Add", ["x", "o"], ["y"]),
            ],
            {"x": (2, 3)},
            ["y"],
            {},
            9,
        ),
    )
    yield "lrn", _graph([n("LRN", ["x"], ["y"], size=3, alpha=0.3, beta=0.6, bias=1.5)], shape, ["y"], {}, 9)
    yield "mvn-9", _graph([n("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2, 3])], shape, ["y"], {}, 9)
    yield "lppool", _graph([n("LpPool", ["x"], ["y"], kernel_shape=[2, 2], p=2)], shape, ["y"], {}, 11)
    yield (
        "depthtospace-crd",
        _graph([n("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD")], {"x": (1, 8, 2, 3)}, ["y"], {}, 11),
    )
    yield "scan-sum", _scan()
    yield "prelu-7-channel", _graph([n("PRelu", ["x", "s"], ["y"])], shape, ["y"], {"s": norm["s"].reshape(3, 1, 1)}, 7)
    yield "pow-mixed", _graph([n("Pow", ["x", "i"], ["y"])], shape, ["y"], {"i": np.array(3, np.int64)}, 13)
    yield "squeeze-1", _graph([n("Squeeze", ["x"], ["y"])], {"x": (1, 3, 1, 4)}, ["y"], {}, 9)
    yield (
        "gridsample-16",
        _graph(
            [n("Tanh", ["g"], ["t"]), n("GridSample", ["x", "t"], ["y"], mode="bilinear", padding_mode="border")],
            {"x": (1, 2, 4, 5), "g": (1, 3, 3, 2)},
            ["y"],
            {},
            16,
        ),
    )
    yield (
        "scatter-9",
        _graph(
            [n("Scatter", ["x", "i", "u"], ["y"], axis=1)],
            {"x": (2, 3)},
            ["y"],
            {"i": np.array([[1, 0], [2, 1]]), "u": np.ones((2, 2), f)},
            9,
        ),
    )
    yield "image-scaler-free-dim", _graph([n("GlobalLpPool", ["x"], ["y"], p=2)], {"x": ("N", 3, 5, 6)}, ["y"], {}, 9)  # type: ignore[dict-item]


def _reference(kind: str, given: str, found: str, attribute: str, of: str) -> onnx.NodeProto:
    """A node of a function body whose attribute is the function's."""
    node = helper.make_node(kind, [given], [found])
    node.attribute.append(onnx.AttributeProto(name=attribute, type=onnx.AttributeProto.FLOAT, ref_attr_name=of))
    return node


def _scan() -> onnx.ModelProto:
    """A running sum of rows as Scan-9."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "r"], ["b"]), helper.make_node("Identity", ["b"], ["o"])],
        "body", [info("a", 1, (3,)), info("r", 1, (3,))], [info("b", 1, (3,)), info("o", 1, (3,))],
    )  # fmt: skip
    scan = helper.make_node("Scan", ["z", "x"], ["end", "y"], body=body, num_scan_inputs=1)
    return _graph([scan], {"x": (4, 3)}, ["y", "end"], {"z": np.zeros(3, np.float32)}, 9)


def _normed(x: np.ndarray, c: Mapping[str, np.ndarray]) -> np.ndarray:
    """A batch norm whose statistics are of each channel, or of each place."""
    s, o, m, v = (c[k][:, None, None] if c[k].ndim == 1 else c[k] for k in "somv")
    return np.asarray((x - m) / np.sqrt(v + 1e-5) * s + o, np.float32)


BY_FORMULA: Mapping[str, Callable[[np.ndarray, Mapping[str, np.ndarray]], np.ndarray]] = {
    "batchnorm-7-spatial-0": _normed,
    "batchnorm-1": _normed,
    "broadcast-6": lambda x, c: x + c["o"][:, None, None],
    "reshape-1": lambda x, c: x.reshape(2, -1, 6),
}
"""What neither the reference evaluator nor ONNX Runtime computes."""


def evaluator(name: str, model: onnx.ModelProto) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
    """The reference evaluator of onnx, or for its gaps ONNX Runtime without optimizations, or a formula."""
    if name in BY_FORMULA:
        constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
        return lambda feed: [BY_FORMULA[name](feed["x"], constants)]
    if name in BY_RUNTIME:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(model.SerializeToString(), options)
        return lambda feed: list(session.run(None, dict(feed)))
    reference = ReferenceEvaluator(model)
    return lambda feed: list(reference.run(None, dict(feed)))


def expected(name: str, model: onnx.ModelProto) -> dict[str, Any]:
    """What the model gives for the inputs that no initializer fills."""
    held = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in held]
    shapes = [tuple(d.dim_value or 2 for d in each.type.tensor_type.shape.dim) for each in inputs]
    call = evaluator(name, model)
    return {
        kind: {"inputs": arrays, "double": None}
        | {"outs": call(dict(zip([each.name for each in inputs], arrays, strict=True)))}
        for kind, arrays in floats(shapes).items()
    }


def keep(folder: Path, name: str, model: onnx.ModelProto, rows: Mapping[str, Any], **how: Any) -> None:
    """NAME.onnx and NAME.pkl; a file that is not checked by onnx itself is kept all the same."""
    onnx.save(model, folder / f"{name}.onnx", **how)
    flags = ["--input-layout", "nchw"]
    (folder / f"{name}.pkl").write_bytes(pickle.dumps({"rows": rows, "flags": flags}))


def make(folder: Path, names: list[str]) -> None:
    """All files; what an exporter or the version converter cannot write is said."""
    from convertkit.converters.pytorch.compat import exporters

    exporters.let_masks_be()
    with torch.no_grad():
        for net in NETS:
            for opset in TRACED:
                try:
                    model, rows = traced(folder, net, opset, dynamic=opset == 13)
                except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
                    print(f"{net} opset {opset}: {str(error)[:100]!r}")
                    continue
                keep(folder, f"{net}-traced-{opset}", model, rows)
                for to in CONVERTED if opset == 11 else ():
                    try:
                        keep(folder, f"{net}-converted-{to}", version_converter.convert_version(model, to), rows)
                    except (RuntimeError, ValueError) as error:
                        print(f"{net} to opset {to}: {str(error)[:100]!r}")
                if opset == 15:
                    how = {"save_as_external_data": True, "location": f"{net}.data", "size_threshold": 0}
                    keep(folder, f"{net}-external", model, rows, **how)
    for name, model in by_hand():
        if names and name not in names:
            continue
        try:
            rows = expected(name, model)
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            print(f"{name}: the reference evaluator: {type(error).__name__}: {str(error)[:100]!r}")
            continue
        keep(folder, name, model, rows)
