"""Whole graphs as Gluon and Module write them, and files that are not what they say."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from mxnet_files import Case, params_bytes, write_case

import convertkit
from convertkit.converters.mxnet import converter
from convertkit.converters.mxnet.arrays import read_arrays
from convertkit.converters.mxnet.symbol import read_symbol
from convertkit.errors import ConvertKitError, SourceError, Unsupported, UsageError

RNG = np.random.default_rng(3)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def graph(folder: Path, nodes: list[tuple], weights: dict[str, np.ndarray], key: str = "attrs") -> Path:
    """``nodes`` are (operator, name, attributes, inputs); the last one is the result."""
    rows = [
        {"op": kind, "name": name, "inputs": [[place, 0, 0] for place in inputs], **({key: attrs} if attrs else {})}
        for kind, name, attrs, inputs in nodes
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net-symbol.json").write_text(json.dumps({"nodes": rows, "heads": [[len(rows) - 1, 0]]}))
    (folder / "net-0012.params").write_bytes(params_bytes(weights))
    return folder / "net-symbol.json"


@pytest.mark.parametrize("key", ["attrs", "attr", "param"])
def test_a_module_with_its_loss_layer(tmp_path, key):
    """The label is not an input of what is delivered; older files call attributes otherwise."""
    weights = {"arg:w": f32(4, 6), "arg:b": f32(4), "arg:rows": f32(3, 2), "arg:ids": np.array([2, 0, 9], np.float32)}
    path = graph(
        tmp_path / "m",
        [
            ("null", "data", {}, []), ("null", "w", {}, []), ("null", "b", {}, []), ("null", "rows", {}, []),
            ("null", "ids", {}, []), ("take", "taken", {}, [3, 4]), ("Dropout", "drop", {"p": "0.5"}, [0]),
            ("Reshape", "line", {"shape": "(1, -1)"}, [5]), ("broadcast_add", "sum", {}, [6, 7]),
            ("FullyConnected", "fc", {"num_hidden": "4"}, [8, 1, 2]), ("null", "softmax_label", {}, []),
            ("SoftmaxOutput", "softmax", {"grad_scale": "2.0"}, [9, 10]),
        ],
        weights, key,
    )  # fmt: skip
    result = convertkit.export(path, "onnxruntime", input="data:batch,6", output=tmp_path / "out")
    assert [spec.name for spec in result.artifact.inputs] == ["data"]
    x = f32(3, 6)
    inner = x + weights["arg:rows"][[2, 0, 2]].reshape(1, -1)
    scores = inner @ weights["arg:w"].T + weights["arg:b"]
    raised = np.exp(scores - scores.max(1, keepdims=True))
    found = result.run({"data": x})["softmax_output"]
    assert np.allclose(found, raised / raised.sum(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_an_lstm_of_gluon(tmp_path, target):
    """Its weights are joined in the graph, and its first state is zeros of a size that MXNet finds out."""
    shapes = {"iw": (20, 3), "hw": (20, 5), "ib": (20,), "hb": (20,)}
    nodes: list[tuple] = [("null", "data", {}, [])]
    for name in shapes:
        nodes += [("null", name, {}, []), ("Reshape", f"{name}_flat", {"shape": "-1"}, [len(nodes)])]
    nodes.append(("_rnn_param_concat", "joined", {"dim": "0", "num_args": "4"}, [2, 4, 6, 8]))
    for state in ("h", "c"):
        nodes.append(("_zeros", state, {"shape": "(1, 0, 5)", "dtype": "float32", "__layout__": "LNC"}, []))
    attributes = {"mode": "lstm", "num_layers": "1", "state_size": "5", "bidirectional": "False", "p": "0"}
    more = {"state_outputs": "True", "projection_size": "None", "use_sequence_length": "False"}
    nodes.append(("RNN", "rnn", {**attributes, **more, "lstm_state_clip_nan": "False"}, [0, 9, 10, 11]))
    path = graph(tmp_path / "m", nodes, {f"arg:{name}": f32(*shape) for name, shape in shapes.items()})
    result = convertkit.export(path, target, input="data:4,2,3", output=tmp_path / "out")
    assert result.artifact.outputs[0].shape == (4, 2, 5)


def test_heads_of_losses_are_what_they_stand_for(tmp_path):
    for kind in ("LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput"):
        nodes = [("null", "data", {}, []), ("null", "label", {}, []), (kind, "out", {}, [0, 1])]
        path = graph(tmp_path / kind, nodes, {"arg:spare": f32(2)})
        result = convertkit.export(path, "onnxruntime", input="data:2,3", output=tmp_path / f"{kind}-out")
        x = f32(2, 3)
        wanted = 1 / (1 + np.exp(-x)) if "Logistic" in kind else x
        assert np.allclose(result.run({"data": x})["out_output"], wanted, atol=1e-6)


def relu(folder: Path, **attributes: str) -> Path:
    return write_case(Case("Activation", (2, 3), {}, {"act_type": "relu", **attributes}), folder)[0]


def test_weights_may_be_named_instead_of_the_graph(tmp_path):
    path = relu(tmp_path)
    assert converter.sniff(str(path)) == "mxnet"
    weights = path.with_name("m-0000.params")
    assert converter.sniff(str(weights)) == "mxnet"
    assert convertkit.export(weights, "onnxruntime", input="data:2,3", output=tmp_path / "out").artifact


def test_two_epochs_are_not_guessed(tmp_path):
    path = relu(tmp_path)
    path.with_name("m-0007.params").write_bytes(params_bytes({}))
    with pytest.raises(SourceError, match=r"m-0000\.params, m-0007\.params: name one of them"):
        convertkit.export(path, "onnxruntime", input="data:2,3", output=tmp_path / "out")
    (tmp_path / "m-0000.params").unlink()
    (tmp_path / "m-0007.params").unlink()
    with pytest.raises(SourceError, match="there are none"):
        convertkit.export(path, "onnxruntime", input="data:2,3", output=tmp_path / "out")


_HUGE = {"mode": "constant", "pad_width": "(0, 0, 0, 0, 9999999, 9999999, 9999999, 9999999)"}
_LAST = {"kernel": "(3, 3)", "no_bias": "True", "num_filter": "4", "layout": "NHWC"}


@pytest.mark.parametrize(
    ("case", "error", "sentence"),
    [
        (Case("Activation", (2, 3), {}, {"act_type": "relu", "new": "1"}), Unsupported, "the attribute new=1"),
        (Case("Activation", (2, 3), {}, {"act_type": "mish"}), Unsupported, r"made \(Activation\): act_type=mish"),
        (Case("L2Normalization", (2, 3), {}, {"mode": "all"}), Unsupported, "mode=all; instance or channel"),
        (Case("SliceChannel", (2, 4), {}, {"num_outputs": "0"}), SourceError, "cannot be computed from its inputs"),
        (
            Case("FullyConnected", (2, 4), {"weight": (5, 4)}, {"num_hidden": "6", "no_bias": "True"}),
            SourceError,
            "num_hidden is 6, and the weight gives 5",
        ),
        (Case("Pad", (1, 1, 2, 2), {}, _HUGE), SourceError, "cannot be computed from its inputs"),
        (Case("_contrib_box_nms", (2, 3)), Unsupported, r"made \(_contrib_box_nms\).*not one that is read"),
        (Case("Pooling", (1, 1, 4, 4), {}, {"kernel": "(2, 2)", "pool_type": "lp"}), Unsupported, "pool_type=lp"),
        (Case("softmax", (2, 3), {}, {"use_length": "True"}), Unsupported, "use_length=True"),
        (Case("FullyConnected", (2, 3), {"w": (4, 5)}, {"num_hidden": "4"}), SourceError, "cannot be computed"),
        (Case("Reshape", (2, 3), {}, {"shape": "__import__('os')"}), SourceError, "not a tuple of whole numbers"),
        (Case("Reshape", (2, 3), {}, {"shape": "(" * 900}), SourceError, "not a tuple of whole numbers"),
        (Case("Convolution", (1, 3, 4, 4), {"w": (4, 3, 3, 3)}, _LAST), Unsupported, "layout=NHWC"),
    ],
)  # fmt: skip
def test_refuses_operators(tmp_path, case, error, sentence):
    path, _ = write_case(case, tmp_path / "m")
    sizes = ",".join(map(str, case.shape))
    with pytest.raises(error, match=sentence):
        convertkit.export(path, "onnxruntime", input=f"data:{sizes}", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sizes_have_to_be_told(tmp_path):
    path = relu(tmp_path)
    with pytest.raises(UsageError, match="say no sizes: give --input data:"):
        convertkit.export(path, "onnxruntime", output=tmp_path / "out")
    with pytest.raises(UsageError, match="no such input; it has: data"):
        convertkit.export(path, "onnxruntime", input="image:2,3", output=tmp_path / "out")


WHOLE = params_bytes({"arg:w": np.arange(6, dtype=np.float32).reshape(2, 3), "aux:n": np.array([1, 2], np.int64)})


def test_arrays_of_every_form(tmp_path):
    path = tmp_path / "a.params"
    path.write_bytes(WHOLE)
    found = read_arrays(path)
    assert found["arg:w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["aux:n"].dtype == np.int64
    body = struct.pack("<iii", 1, 0, 0) + np.ones(2, np.float32).tobytes()
    names = struct.pack("<QQ", 1, 1) + b"x"
    for head in (
        struct.pack("<IIq", 0xF993FAC8, 1, 2),
        struct.pack("<II", 1, 2),
        struct.pack("<Iiiq", 0xF993FACA, 0, 1, 2),
    ):
        path.write_bytes(struct.pack("<QQQ", 0x112, 0, 1) + head + body + names)
        assert read_arrays(path)["x"].tolist() == [1, 1]


@pytest.mark.parametrize("end", [*range(16, len(WHOLE), 7), len(WHOLE) - 1])
def test_a_file_that_ends_early(tmp_path, end):
    path = tmp_path / "a.params"
    path.write_bytes(WHOLE[:end])
    with pytest.raises(SourceError):
        read_arrays(path)


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (16, struct.pack("<Q", 1 << 60), "entries"),
        (28, struct.pack("<i", 1), "sparse"),
        (32, struct.pack("<i", 1 << 30), "axes"),
        (36, struct.pack("<q", -1), "do not fit"),
        (36, struct.pack("<q", 1 << 50), "do not fit"),
        (60, struct.pack("<i", 99), "the type 99"),
    ],
)
def test_hostile_arrays(tmp_path, place, value, sentence):
    path = tmp_path / "a.params"
    path.write_bytes(WHOLE[:place] + value + WHOLE[place + len(value) :])
    with pytest.raises(ConvertKitError, match=sentence):
        read_arrays(path)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, "{}", '{"nodes": 3, "heads": []}', '{"nodes": [], "heads": [[0, 0]]}',
        '{"nodes": [{"op": "null", "name": "a", "inputs": [[0, 0]]}], "heads": [[0, 0]]}',
        '{"nodes": [{"op": "null", "name": "a", "inputs": []}], "heads": [[1, 0]]}',
        '{"nodes": [{"op": 3, "name": "a", "inputs": []}], "heads": [[0, 0]]}',
        '{"nodes": [{"op": "x", "name": "a", "attrs": {"b": 3}, "inputs": []}], "heads": [[0, 0]]}',
        '{"nodes": [{"op": "_foreach", "name": "a", "subgraphs": [], "inputs": []}], "heads": [[0, 0]]}',
    ],
)  # fmt: skip
def test_hostile_graphs(tmp_path, text):
    path = tmp_path / "m-symbol.json"
    path.write_text(text)
    with pytest.raises(SourceError):
        read_symbol(path)
