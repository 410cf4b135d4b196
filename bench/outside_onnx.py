"""ONNX files as other exporters and older opsets write them, for ``bench/outside.py``.

Networks of PyTorch as its TorchScript exporter traces them at opsets 9 to 17, the same moved to opsets 7 to 23 by
onnx's version converter, and graphs by hand that use what newer exporters do not: what is expected of those is what
onnx's reference evaluator gives.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator
from outside import floats
from outside_onnx_graphs import by_hand
from torch import Tensor, nn

TRACED = (9, 11, 13, 15, 17)
OTHERWISE = {("vision", 9)}
"""What torch's exporter writes otherwise than the network computes, and warns of: its Upsample has other corners."""
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
    "float16-inside",
    "gru-linear-before",
    "hardmax-11",
    "softmax-11-axis-1",
    "maxpool-same-lower",
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
        return self.up(big)[:, :, 1:-1, 2:9]


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
        if name == "indexing" and kind in ("zeros", "ones", "half zeros"):
            continue  # PyTorch's top-k picks other places among equal numbers than ONNX says
        rows[kind] = {"inputs": arrays, "outs": _leaves(model(*map(torch.from_numpy, arrays)))}
        rows[kind]["double"] = _leaves(double(*[torch.from_numpy(each).double() for each in arrays]))
    proto = onnx.load(path)
    path.unlink()
    return proto, rows


def _leaves(found: Any) -> list[np.ndarray]:
    return [each.numpy(force=True) for each in torch.utils._pytree.tree_leaves(found)]


def _normed(x: np.ndarray, c: Mapping[str, np.ndarray]) -> np.ndarray:
    """A batch norm whose statistics are of each channel, or of each place."""
    s, o, m, v = (c[k][:, None, None] if c[k].ndim == 1 else c[k] for k in "somv")
    return np.asarray((x - m) / np.sqrt(v + 1e-5) * s + o, np.float32)


def _across(x: np.ndarray) -> np.ndarray:
    """LRN over three channels."""
    padded = np.pad(x.astype(np.float64) ** 2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    around = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return np.asarray(x / (1.5 + 0.1 * around) ** 0.6, np.float32)


BY_FORMULA: Mapping[str, Callable[[np.ndarray, Mapping[str, np.ndarray]], np.ndarray]] = {
    "batchnorm-7-spatial-0": _normed,
    "batchnorm-1": _normed,
    "lrn": lambda x, _: _across(x),
    "broadcast-6": lambda x, c: x + c["o"][:, None, None],
    "reshape-1": lambda x, c: x.reshape(2, -1, 6),
}
"""What neither the reference evaluator nor ONNX Runtime computes; of an LRN the first leaves out a channel."""


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
        for net in NETS if not names else NETS.keys() & set(names):
            for opset in TRACED:
                if (net, opset) in OTHERWISE:
                    continue
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
