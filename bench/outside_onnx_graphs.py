"""The graphs by hand of ``bench/outside_onnx.py``: each uses one thing that few exporters write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Named = tuple[str, onnx.ModelProto]
IMAGE = (2, 3, 5, 6)


def by_hand() -> Iterator[Named]:
    """All of them."""
    for theme in (
        resampling, norms, activations, windows_and_axes, names_of_values, read_and_unread, types, functions,
        containers, branches, recurrent, constants, neighbourhoods, elements,
    ):  # fmt: skip
        yield from theme()


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


def resampling() -> Iterator[Named]:
    """Upsample and Resize before opset 11."""
    n, f, shape = helper.make_node, np.float32, {"x": IMAGE}
    yield "upsample-7-nearest", _graph([n("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0])], shape, ["y"], {}, 7)
    linear = n("Upsample", ["x"], ["y"], mode="linear", scales=[1.0, 1.0, 2.0, 1.5])
    yield "upsample-7-linear", _graph([linear], shape, ["y"], {}, 7)
    sizes = {"z": np.array([1, 1, 2, 2], f)}
    yield "upsample-9", _graph([n("Upsample", ["x", "z"], ["y"], mode="linear")], shape, ["y"], sizes, 9)
    yield "resize-10", _graph([n("Resize", ["x", "z"], ["y"], mode="linear")], shape, ["y"], sizes, 10)
    down = {"z": np.array([1, 1, 0.6, 0.5], f)}
    yield "resize-10-down", _graph([n("Resize", ["x", "z"], ["y"], mode="nearest")], shape, ["y"], down, 10)


def norms() -> Iterator[Named]:
    """Batch norms and dropouts of older opsets."""
    rng, n, f, shape = np.random.default_rng(0), helper.make_node, np.float32, {"x": IMAGE}
    norm = {k: rng.uniform(0.2, 2, 3).astype(f) for k in ("s", "o", "m", "v")}
    each = {k: rng.uniform(0.2, 2, IMAGE[1:]).astype(f) for k in ("s", "o", "m", "v")}
    names = ["x", "s", "o", "m", "v"]
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


def activations() -> Iterator[Named]:
    """Products, softmax and limits of older opsets."""
    rng, n, f, shape = np.random.default_rng(1), helper.make_node, np.float32, {"x": IMAGE}
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


def windows_and_axes() -> Iterator[Named]:
    """Pads, slices, broadcasts, pooling and top-k of older opsets."""
    rng, n, f, shape = np.random.default_rng(2), helper.make_node, np.float32, {"x": IMAGE}
    offsets = rng.uniform(0.2, 2, 3).astype(f)
    yield (
        "pad-2-edge",
        _graph([n("Pad", ["x"], ["y"], mode="edge", pads=[0, 0, 1, 2, 0, 0, 0, 1])], shape, ["y"], {}, 9),
    )
    yield "slice-1", _graph([n("Slice", ["x"], ["y"], axes=[2, 3], starts=[1, -4], ends=[99, -1])], shape, ["y"], {}, 9)
    yield (
        "broadcast-6",
        _graph([n("Add", ["x", "o"], ["y"], axis=1, broadcast=1)], shape, ["y"], {"o": offsets}, 6, ir=3),
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


def names_of_values() -> Iterator[Named]:
    """Names that are words of a language, differ in case or have other letters, and outputs that are read."""
    n = helper.make_node
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


def read_and_unread() -> Iterator[Named]:
    """Inputs, outputs and weights that nothing reads, and weights among the inputs."""
    rng, n, f, shape = np.random.default_rng(3), helper.make_node, np.float32, {"x": IMAGE}
    w, b = rng.standard_normal((4, 3, 3, 3)).astype(f), rng.standard_normal(4).astype(f)
    conv = n("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1])
    yield "unused-outputs", _graph([n("Split", ["x"], ["a", "", "y"], axis=1)], {"x": (2, 6, 2)}, ["y"], {}, 11)
    unused = _graph([conv], shape, ["c"], {"w": w, "b": b, "left over": rng.standard_normal(50).astype(f)}, 13)
    yield "unused-initializer", unused
    both = _graph([conv], {**shape, "w": w.shape, "b": b.shape}, ["c"], {"w": w, "b": b}, 8, ir=3)
    yield "initializers-as-inputs", both
    unread = _graph([n("Relu", ["x"], ["y"])], {"x": (2, 3), "unread": (4,)}, ["y"], {}, 13)
    yield "unused-input", unread


def types() -> Iterator[Named]:
    """Other floats inside of float32."""
    rng, n, f, shape = np.random.default_rng(4), helper.make_node, np.float32, {"x": IMAGE}
    w, b = rng.standard_normal((4, 3, 3, 3)).astype(f), rng.standard_normal(4).astype(f)
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


def functions() -> Iterator[Named]:
    """Functions of the model's own."""
    n, shape = helper.make_node, {"x": IMAGE}
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


def containers() -> Iterator[Named]:
    """Sequences and optional values."""
    n, shape = helper.make_node, {"x": IMAGE}
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


def branches() -> Iterator[Named]:
    """If and Scan."""
    n, f = helper.make_node, np.float32
    yes = helper.make_graph([n("Exp", ["x"], ["p"])], "then", [], [helper.make_tensor_value_info("p", 1, (2, 3))])
    no = helper.make_graph([n("Neg", ["x"], ["q"])], "else", [], [helper.make_tensor_value_info("q", 1, (2, 3))])
    branch = [
        n("ReduceSum", ["x"], ["s"], keepdims=0),
        n("Greater", ["s", "zero"], ["k"]),
        n("If", ["k"], ["y"], then_branch=yes, else_branch=no),
    ]
    yield "if-outer-value", _graph(branch, {"x": (2, 3)}, ["y"], {"zero": np.array(0, f)}, 13)
    yield "scan-sum", _scan()


def recurrent() -> Iterator[Named]:
    """Recurrent layers with what few exporters give them."""
    rng, n, f = np.random.default_rng(5), helper.make_node, np.float32
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


def constants() -> Iterator[Named]:
    """Forms of constants."""
    n, f = helper.make_node, np.float32
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


def neighbourhoods() -> Iterator[Named]:
    """Operators over neighbours and channels."""
    n, shape = helper.make_node, {"x": IMAGE}
    yield "lrn", _graph([n("LRN", ["x"], ["y"], size=3, alpha=0.3, beta=0.6, bias=1.5)], shape, ["y"], {}, 9)
    yield "mvn-9", _graph([n("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2, 3])], shape, ["y"], {}, 9)
    yield "lppool", _graph([n("LpPool", ["x"], ["y"], kernel_shape=[2, 2], p=2)], shape, ["y"], {}, 11)
    yield (
        "depthtospace-crd",
        _graph([n("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD")], {"x": (1, 8, 2, 3)}, ["y"], {}, 11),
    )


def elements() -> Iterator[Named]:
    """Operators over single elements and places."""
    rng, n, f, shape = np.random.default_rng(6), helper.make_node, np.float32, {"x": IMAGE}
    scale = rng.uniform(0.2, 2, (3, 1, 1)).astype(f)
    yield "prelu-7-channel", _graph([n("PRelu", ["x", "s"], ["y"])], shape, ["y"], {"s": scale}, 7)
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
