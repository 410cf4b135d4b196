"""Graphs and weights as MXNet writes them, and a table of operators."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_FLAGS = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6}


def params_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """The list of named arrays of MXNet 1.9."""
    parts = [struct.pack("<QQQ", 0x112, 0, len(arrays))]
    for array in arrays.values():
        shape = struct.pack(f"<i{array.ndim}q", array.ndim, *array.shape)
        head = struct.pack("<Ii", 0xF993FAC9, 0) + shape + struct.pack("<iii", 1, 0, _FLAGS[array.dtype.name])
        parts.append(head + np.ascontiguousarray(array).tobytes())
    parts.append(struct.pack("<Q", len(arrays)))
    parts += [struct.pack("<Q", len(name.encode())) + name.encode() for name in arrays]
    return b"".join(parts)


@dataclass(frozen=True)
class Case:
    """One operator: sizes of its first input, weights by name and sizes, attributes; ``more`` are further inputs."""

    kind: str
    shape: tuple[int, ...]
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    more: tuple[tuple[int, ...], ...] = ()
    outputs: int = 1
    whole: int = 0
    """Numbers of the first input are whole and below this, where it is not 0."""
    positive: bool = False

    @property
    def title(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.attributes.items())})"


def write_case(case: Case, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """The files of a graph of this operator alone, and inputs for it."""
    rng = np.random.default_rng(sum(map(ord, case.title)))
    inputs = {"data": case.shape, **{f"data{place + 1}": shape for place, shape in enumerate(case.more)}}
    nodes = [{"op": "null", "name": name, "inputs": []} for name in (*inputs, *case.weights)]
    feeding = [[place, 0, 0] for place in range(len(nodes))]
    nodes.append({"op": case.kind, "name": "made", "attrs": case.attributes, "inputs": feeding})
    last = len(nodes) - 1
    symbol = {
        "nodes": nodes, "arg_nodes": list(range(last)), "node_row_ptr": list(range(last + 2)),
        "heads": [[last, place, 0] for place in range(case.outputs)], "attrs": {"mxnet_version": ["int", 10901]},
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m-symbol.json").write_text(json.dumps(symbol))
    auxiliary = ("mean", "var") if case.kind == "BatchNorm" else ()
    stored = {}
    for name, shape in case.weights.items():
        drawn = rng.standard_normal(shape).astype(np.float32) * np.float32(0.5)
        stored[f"{'aux' if name in auxiliary else 'arg'}:{name}"] = abs(drawn) + 0.1 if name == "var" else drawn
    (folder / "m-0000.params").write_bytes(params_bytes(stored))
    feed = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    if case.whole:
        feed["data"] = rng.integers(-1, case.whole + 1, case.shape).astype(np.float32)
    if case.positive:
        feed = {name: np.abs(value) + np.float32(0.1) for name, value in feed.items()}
    return folder / "m-symbol.json", feed


def _conv(kernel: str, filters: int, weight: tuple[int, ...], shape: tuple[int, ...], **more: str) -> Case:
    kind = "Deconvolution" if more.pop("turned", "") else "Convolution"
    outputs = filters
    weights = {"weight": weight} | ({} if more.get("no_bias") == "True" else {"bias": (outputs,)})
    return Case(kind, shape, weights, {"kernel": kernel, "num_filter": str(filters), **more})


_IMAGE = (2, 3, 7, 6)
_UNEVEN = (2, 3, 8, 7)
"""Of which windows of 3 × 2 in steps of 2 leave a row and a column, which pooling_convention=full takes, too."""
_OF_CHANNELS = {"gamma": (3,), "beta": (3,)}
_STATISTICS = {**_OF_CHANNELS, "mean": (3,), "var": (3,)}


def _rnn(mode: str, gates: int, layers: int, both: bool, states: bool = False) -> Case:
    hidden, width, directions, count = 5, 4, 2 if both else 1, 0
    for layer in range(layers):
        inputs = width if layer == 0 else hidden * directions
        count += directions * gates * hidden * (inputs + hidden + 2)
    attributes = {"mode": mode, "num_layers": str(layers), "state_size": str(hidden), "bidirectional": str(both)}
    given = {"state": (layers * directions, 3, hidden)} | (
        {"cell": (layers * directions, 3, hidden)} if gates == 4 else {}
    )
    count_out = (3 if gates == 4 else 2) if states else 1
    weights = {"parameters": (count,), **given}
    return Case("RNN", (6, 3, width), weights, {**attributes, "state_outputs": str(states)}, outputs=count_out)


UNARY = (
    "abs", "ceil", "cos", "erf", "exp", "floor", "identity", "negative", "reciprocal", "relu", "sigmoid", "sign", "sin",
    "softsign", "square", "tanh", "zeros_like", "ones_like", "_copy", "BlockGrad", "make_loss",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
CASES = [
    *(Case(kind, (2, 3, 4)) for kind in UNARY),
    *(Case(kind, (2, 3, 4), positive=True) for kind in ("log", "sqrt", "rsqrt")),
    *(Case(f"broadcast_{kind}", (2, 3, 4), more=((2, 1, 4),)) for kind in BINARY),
    *(Case(f"elemwise_{kind}", (2, 3, 4), more=((2, 3, 4),)) for kind in ("add", "sub", "mul", "div")),
    Case("broadcast_power", (2, 3), more=((2, 3),), positive=True),
    *(
        Case(f"_{kind}_scalar", (2, 3, 4), attributes={"scalar": "1.7"})
        for kind in ("plus", "minus", "rminus", "mul", "div", "rdiv", "maximum", "minimum")
    ),
    Case("_power_scalar", (2, 3), attributes={"scalar": "3"}),
    Case("_rpower_scalar", (2, 3), attributes={"scalar": "2"}),
    *(Case(kind, (2, 3, 4), attributes={"axis": "(1,)", "keepdims": "True"}) for kind in ("sum", "mean", "max", "min")),
    Case("sum", (2, 3, 4), attributes={"axis": "1", "exclude": "True"}),
    Case("mean", (2, 3, 4)),
    Case("prod", (2, 3, 4), attributes={"axis": "(0, 2)"}),
    Case("norm", (2, 3, 4), attributes={"ord": "2", "axis": "(1,)"}),
    Case("norm", (2, 3, 4), attributes={"ord": "1", "axis": "(1,)", "keepdims": "True"}),
    Case("argmax", (2, 7), attributes={"axis": "1"}),
    Case("clip", (2, 7), attributes={"a_min": "-0.5", "a_max": "0.7"}),
    Case("add_n", (2, 3), more=((2, 3), (2, 3)), attributes={"num_args": "3"}),
    Case("dot", (3, 4), more=((5, 4),), attributes={"transpose_b": "True"}),
    Case("batch_dot", (2, 3, 4), more=((2, 3, 5),), attributes={"transpose_a": "True"}),
    Case("where", (2, 7), more=((2, 7), (2, 7)), whole=1),
    Case("FullyConnected", (2, 3, 4), {"weight": (5, 12), "bias": (5,)}, {"num_hidden": "5"}),
    Case("FullyConnected", (2, 3, 4), {"weight": (5, 4)}, {"num_hidden": "5", "flatten": "False", "no_bias": "True"}),
    _conv("(3, 3)", 4, (4, 3, 3, 3), _IMAGE, pad="(1, 0)", stride="(2, 1)"),
    _conv("(2, 3)", 6, (6, 1, 2, 3), _IMAGE, num_group="3", dilate="(2, 1)", no_bias="True"),
    _conv("(3,)", 4, (4, 3, 3), (2, 3, 9), pad="(2,)"),
    _conv("(3, 2)", 4, (3, 4, 3, 2), _IMAGE, turned="1", stride="(2, 2)", pad="(1, 0)", adj="(1, 1)", no_bias="False"),
    _conv("(2, 2)", 6, (3, 2, 2, 2), _IMAGE, turned="1", num_group="3", no_bias="True"),
    *(
        Case(
            "Pooling", _IMAGE, {}, {"kernel": "(3, 2)", "stride": "(2, 2)", "pad": "(1, 0)", "pool_type": kind, **more}
        )
        for kind, more in (
            ("max", {}),
            ("avg", {}),
            ("sum", {}),
            ("avg", {"count_include_pad": "False"}),
        )
    ),
    *(
        Case(
            "Pooling", _UNEVEN, {}, {"kernel": "(3, 2)", "stride": "(2, 2)", "pad": "(1, 0)", "pool_type": kind, **more}
        )
        for kind, more in (
            ("max", {}),
            ("max", {"pooling_convention": "full"}),
            ("avg", {"pooling_convention": "full"}),
            ("avg", {"pooling_convention": "full", "count_include_pad": "False"}),
        )
    ),
    *(Case("Pooling", _IMAGE, {}, {"kernel": "(1, 1)", "global_pool": "True", "pool_type": k}) for k in ("max", "avg")),
    Case("BatchNorm", _IMAGE, _STATISTICS, {"fix_gamma": "False", "eps": "1e-05"}),
    Case("BatchNorm", _IMAGE, _STATISTICS),
    Case("BatchNorm", (2, 4, 3), _STATISTICS, {"axis": "-1", "fix_gamma": "False"}),
    Case("LayerNorm", (2, 4, 3), _OF_CHANNELS, {"eps": "1e-03"}),
    Case("InstanceNorm", _IMAGE, _OF_CHANNELS),
    *(Case("L2Normalization", _IMAGE, {}, {"mode": mode}) for mode in ("instance", "channel", "spatial")),
    Case("LRN", (2, 7, 3, 2), {}, {"nsize": "5", "alpha": "0.1", "knorm": "1.5"}),
    *(Case("Activation", (2, 7), {}, {"act_type": k}) for k in ("relu", "sigmoid", "tanh", "softrelu", "softsign")),
    *(
        Case("LeakyReLU", (2, 7), {}, {"act_type": k, "slope": "0.3"})
        for k in ("leaky", "elu", "selu", "gelu", "rrelu")
    ),
    Case("LeakyReLU", _IMAGE, {"gamma": (3,)}, {"act_type": "prelu"}),
    Case("softmax", (2, 3, 4), {}, {"axis": "1", "temperature": "2.0"}),
    Case("log_softmax", (2, 3, 4)),
    Case("SoftmaxActivation", (2, 3, 4), {}, {"mode": "channel"}),
    Case("SoftmaxActivation", (2, 5)),
    Case("UpSampling", _IMAGE, {}, {"scale": "2", "sample_type": "nearest", "num_args": "1"}),
    *(
        Case("Reshape", (2, 3, 4, 5), {}, {"shape": s})
        for s in ("(0, -1)", "(-2,)", "(0, -3, 0)", "(-3, -3)", "(0, 0, -4, 2, -1, 0)")
    ),
    Case("Flatten", (2, 3, 4)),
    Case("transpose", (2, 3, 4), {}, {"axes": "(2, 0, 1)"}),
    Case("transpose", (2, 3, 4)),
    Case("SwapAxis", (2, 3, 4), {}, {"dim1": "0", "dim2": "2"}),
    Case("expand_dims", (2, 3), {}, {"axis": "1"}),
    Case("squeeze", (2, 1, 3), {}, {"axis": "1"}),
    Case("SliceChannel", (2, 6, 3), {}, {"num_outputs": "3"}, outputs=3),
    Case("SliceChannel", (2, 3, 4), {}, {"num_outputs": "3", "axis": "1", "squeeze_axis": "True"}, outputs=3),
    Case("slice", (5, 6), {}, {"begin": "(1, None)", "end": "(None, 5)", "step": "(2, 1)"}),
    Case("slice_axis", (5, 6), {}, {"axis": "1", "begin": "-4", "end": "None"}),
    Case("Concat", (2, 3, 4), more=((2, 5, 4),), attributes={"num_args": "2", "dim": "1"}),
    Case("stack", (2, 3), more=((2, 3),), attributes={"num_args": "2", "axis": "1"}),
    Case("tile", (2, 3), {}, {"reps": "(2, 3)"}),
    Case("reverse", (2, 3, 4), {}, {"axis": "(1, 2)"}),
    *(
        Case("Pad", _IMAGE, {}, {"pad_width": "(0, 0, 0, 0, 1, 2, 2, 1)", "mode": m})
        for m in ("constant", "edge", "reflect")
    ),
    Case("Cast", (2, 9), {}, {"dtype": "float32"}),
    Case("Embedding", (2, 5), {"weight": (7, 3)}, {"input_dim": "7", "output_dim": "3"}, whole=7),
    Case("SequenceLast", (4, 2, 3)),
    Case("SequenceReverse", (4, 2, 3)),
    *(
        _rnn(mode, gates, 2, both)
        for mode, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1))
        for both in (False, True)
    ),
    _rnn("lstm", 4, 2, True, states=True),
    _rnn("gru", 3, 1, False, states=True),
]
