"""Classical models (ai.onnx.ml): as ONNX's operators and in TFLite, against ONNX Runtime on the operator."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.artifact import TensorSpec
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.ml import ML, decompose_kernels
from convertkit.onnx.save import save_model
from convertkit.onnx.twin import Twin
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import Case

NAN, INF = np.nan, np.inf
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
X = np.array([[0.3, -1.2, 2.0], [0.0, -0.0, 0.5], [1.0, 1.0, -1.0], [1.5, 0.5, 0.25], [-3.0, 0.1, 0.0]], np.float32)
HARD = np.array([[0, -0.0, 1], [NAN, 1, INF], [-INF, NAN, 2], [1e-30, 1, 2], [1, 1, 1], [2, 1, 0]], np.float32)
WHOLE = np.array([[1, 2, 7], [0, -4, 2], [9, 9, 1]], np.int64)


@dataclass(frozen=True)
class Row:
    """One node on each of the inputs; ``opset`` is that of ai.onnx.ml."""

    op: str
    inputs: Sequence[np.ndarray]
    attributes: Mapping[str, object] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 3

    @property
    def tolerance(self) -> float:
        """Relative: the probit loses digits where its formula subtracts what is all but equal."""
        return 1e-4 if self.attributes.get("post_transform") == "PROBIT" else 1e-5

    @property
    def model(self) -> onnx.ModelProto:
        names = [f"x{place}" for place in range(len(self.inputs))]
        results = [f"y{place}" for place in range(self.outputs)]
        node = helper.make_node(self.op, names, results, name="it", domain=ML, **self.attributes)
        free = [["n", *value.shape[1:]] if value.ndim == 2 else list(value.shape) for value in self.inputs]
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)
            for name, value, shape in zip(names, self.inputs, free, strict=True)
        ]
        declared = [helper.make_empty_tensor_value_info(name) for name in results]
        is_text = {"classlabels_strings", "values_strings"} & self.attributes.keys()
        if self.outputs == 2 or is_text:
            declared[0].type.tensor_type.elem_type = 8 if is_text else 7
        if self.outputs == 2:
            declared[1].type.tensor_type.elem_type = 1
        graph = helper.make_graph([node], "g", infos, declared)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def linear(targets: int, name: str) -> dict[str, object]:
    rng = np.random.default_rng(targets)
    return {"coefficients": (rng.normal(size=3 * targets) / 9).tolist(), "post_transform": name,
            "intercepts": rng.uniform(0.3, 0.6, targets).tolist()}  # fmt: skip


SUPPORT = {
    "n_supports": 2,
    "support_vectors": [0.5, 1.0, -1.0, 0.25, 0.0, 2.0],
    "coefficients": [0.75, -0.5],
    "rho": [0.1],
}
WORDS = ["ham", "eggs", "späm"]


def machine(counts: Sequence[int], kind: str, name: str, labels: Mapping[str, object]) -> dict[str, object]:
    """A classifier by support vectors, so many for each class; a score for each pair of classes."""
    rng = np.random.default_rng(len(counts))
    pairs = len(counts) * (len(counts) - 1) // 2
    return {"vectors_per_class": counts, "support_vectors": rng.normal(size=sum(counts) * 3).tolist(),
            "coefficients": rng.normal(size=(len(counts) - 1) * sum(counts)).tolist(), "kernel_type": kind,
            "kernel_params": [0.5, 0.25, 3.0], "rho": rng.normal(size=pairs).tolist(), "post_transform": name,
            **labels}  # fmt: skip


PLAIN = {"rho": [0.1], "kernel_type": "LINEAR", "kernel_params": [0.5, 0.25, 3.0]}
MACHINES = [
    *(machine([2, 1, 3], kind, name, {"classlabels_ints": [4, 2, 9]}) for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")
      for name in ("NONE", "SOFTMAX")),
    *(machine([2, 3], "RBF", name, {"classlabels_ints": [4, 2]}) for name in TRANSFORMS[:4]),
    machine([1, 2, 0, 2], "RBF", "LOGISTIC", {"classlabels_strings": [*WORDS, "x"]}),
    *({**PLAIN, "coefficients": [sign * 0.25, 0.5, 0.125, sign, 0.25, 0.0625], "classlabels_ints": [4, 2],
       "post_transform": name} for sign in (1, -1) for name in ("NONE", "LOGISTIC")),
    {**PLAIN, "coefficients": np.linspace(-1, 1, 9).tolist(), "classlabels_strings": WORDS},
]  # fmt: skip
KEYS = {"keys_int64s": [7, 1, 9], "values_floats": [0.5, -1.5, 3.25], "default_float": 8.0}
ROWS = [
    Row("Scaler", [X], {"offset": [0.5, -1.0, 0.25], "scale": [2.0, 0.1, 3.0]}),
    Row("Scaler", [X[0]], {"offset": [0.5, -1.0, 0.25], "scale": [2.0, 0.1, 3.0]}),
    Row("Scaler", [WHOLE], {"offset": [0.5], "scale": [0.25]}),
    *(Row("Normalizer", [HARD[[0, 3, 4, 5]] - shift], {"norm": norm}) for norm in ("MAX", "L1", "L2")
      for shift in (0, 1)),
    Row("Normalizer", [WHOLE], {"norm": "L2"}),
    Row("Binarizer", [HARD[[0, 3, 4, 5]]], {"threshold": 1.0}),
    Row("Imputer", [HARD], {"imputed_value_floats": [5.0, 6.0, 7.0], "replaced_value_float": NAN}),
    Row("Imputer", [HARD], {"imputed_value_floats": [5.0], "replaced_value_float": 1.0}),
    Row("Imputer", [WHOLE], {"imputed_value_int64s": [5, 6, 7], "replaced_value_int64": 9}),
    Row("OneHotEncoder", [WHOLE], {"cats_int64s": [9, 1, 2], "zeros": 1}),
    Row("OneHotEncoder", [X * 3], {"cats_int64s": [0, 3, -9, 1], "zeros": 1}),
    Row("LabelEncoder", [WHOLE], KEYS, opset=2),
    *(Row("LabelEncoder", [WHOLE], {"keys_int64s": [7, 1, 9], "values_strings": WORDS, **default}, opset=2)
      for default in ({}, {"default_string": "?"})),
    Row("LabelEncoder", [WHOLE], {"keys_int64s": [7, 7, 9], "values_int64s": [4, 5, 6]}, opset=2),
    Row("LabelEncoder", [HARD],
        {"keys_floats": [1.0, 0.0, INF], "values_int64s": [4, 5, 6], "default_int64": -9}, opset=2),
    Row("LabelEncoder", [HARD], {
        "keys_tensor": numpy_helper.from_array(np.array([NAN, 1.0], np.float32)),
        "values_tensor": numpy_helper.from_array(np.array([3, 4], np.int64)),
        "default_tensor": numpy_helper.from_array(np.array([-7], np.int64)),
    }, opset=4),
    Row("FeatureVectorizer", [X, X * 2], {"inputdimensions": [3, 3]}),
    Row("FeatureVectorizer", [X, X * 2], {"inputdimensions": [2, 5]}),
    Row("ArrayFeatureExtractor", [X, np.array([2, 0, 2])]),
    Row("ArrayFeatureExtractor", [X[0], np.array([1])]),
    *(Row("LinearRegressor", [X], {**linear(targets, name), "targets": targets}) for targets in (1, 3)
      for name in TRANSFORMS),
    Row("LinearRegressor", [X[0]], {"coefficients": [0.5, 0.25, -1.0], "targets": 1}),
    *(Row("LinearClassifier", [X], {**linear(3, name), "classlabels_ints": [4, 2, 9]}, 2) for name in TRANSFORMS),
    *(Row("LinearClassifier", [X], {**linear(1, name), "classlabels_ints": [4, 2]}, 2) for name in TRANSFORMS[:4]),
    *(Row("LinearClassifier", [X], {**linear(count, "NONE"), "classlabels_strings": WORDS[:max(count, 2)]}, 2)
      for count in (1, 3)),
    *(Row("SVMClassifier", [X], attributes, 2) for attributes in MACHINES),
    Row("SVMRegressor", [X], {"n_supports": 0, "coefficients": [0.5, 1.0, -1.0], "rho": [0.1], "kernel_type": "LINEAR",
        "kernel_params": [0.5, 0.25, 3.0]}),
    *(Row("SVMRegressor", [X], {**SUPPORT, "kernel_type": kind, "kernel_params": [0.5, 0.25, 3.0], "one_class": one})
      for kind in ("LINEAR", "POLY", "RBF", "SIGMOID") for one in (0, 1)),
]  # fmt: skip
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def forest(kind: str, ids: Sequence[int], modes: Sequence[str] = MODES[:1], missing: int = 0) -> dict[str, object]:
    """Three trees: a leaf alone, one of depth 2 and a chain of depth 4; thresholds are values of the inputs."""
    rng = np.random.default_rng(len(ids))
    ways = [[], [(1, 2), (3, 4), None, None, None], [(1, 2), None, (4, 3), None, (5, 6), (7, 8), None, None, None]]
    nodes: dict[str, list] = {name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes")}
    nodes |= {name: [] for name in ("truenodeids", "falsenodeids")}
    leaves: dict[str, list] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree, children in enumerate(ways):
        for node, pair in enumerate(children or [None]):
            for name, value in {
                "treeids": tree, "nodeids": node, "featureids": int(rng.integers(3)),
                "values": float(rng.choice([0, 0.5, 1])),
                "modes": "LEAF" if pair is None else modes[len(nodes["modes"]) % len(modes)],
                "truenodeids": 0 if pair is None else pair[0], "falsenodeids": 0 if pair is None else pair[1],
            }.items():  # fmt: skip
                nodes[name].append(value)
            for each in ids if pair is None else ():
                for name, value in {
                    "treeids": tree,
                    "nodeids": node,
                    "ids": each,
                    "weights": float(rng.normal()),
                }.items():
                    leaves[name].append(value)
    found = {f"nodes_{name}": values for name, values in nodes.items()}
    found |= {f"{kind}_{name}": values for name, values in leaves.items()}
    if missing:
        found["nodes_missing_value_tracks_true"] = [int(place % missing == 0) for place in range(len(nodes["modes"]))]
    return found


def positive(attributes: dict[str, object]) -> dict[str, object]:
    weights = attributes["class_weights"]
    assert isinstance(weights, list)
    return {**attributes, "class_weights": [abs(weight) / 3 for weight in weights]}


def one_each(attributes: dict[str, object]) -> dict[str, object]:
    """Each leaf votes for one of three classes, as where classes number the leaves."""
    ids = attributes["class_ids"]
    assert isinstance(ids, list)
    return {**attributes, "class_ids": [place % 3 for place in range(len(ids))]}


REGRESSORS = [
    *({**forest("target", [0], [mode], missing), "n_targets": 1} for mode in MODES for missing in (0, 2)),
    {**forest("target", [0], MODES, 3), "n_targets": 1, "base_values": [0.75]},
    *({**forest("target", [0, 2], MODES), "n_targets": 3, "aggregate_function": how, "base_values": [0.5, -1.0, 2.0]}
      for how in ("SUM", "AVERAGE", "MIN", "MAX")),
    *({**forest("target", [0]), "n_targets": 1, "aggregate_function": how} for how in ("AVERAGE", "MIN", "MAX")),
    *({**forest("target", [0, 1]), "n_targets": 2, "post_transform": name} for name in TRANSFORMS[:4]),
    {**forest("target", [0]), "n_targets": 1, "post_transform": "LOGISTIC"},
    *({**forest("target", [0, 0]), "n_targets": 1, "aggregate_function": how} for how in ("SUM", "MIN")),
]  # fmt: skip
CLASSIFIERS = [
    *({**forest("class", [0, 1, 2]), "classlabels_int64s": [7, 5, 9], "post_transform": name}
      for name in TRANSFORMS[:4]),
    {**forest("class", [0, 1, 2]), "classlabels_int64s": [7, 5, 9], "base_values": [0.5, -1.0, 0.25]},
    {**forest("class", [0, 2]), "classlabels_int64s": [7, 5, 9], "base_values": [0.5, -1.0, 0.25]},
    *({**made(forest("class", [0])), "classlabels_int64s": [7, 5], "post_transform": name, **base}
      for made in (dict, positive) for name in TRANSFORMS[:4] for base in ({}, {"base_values": [0.25]})),
    *({**forest("class", [0]), "classlabels_int64s": [7, 5], "post_transform": name, "base_values": [0.25, 0.5]}
      for name in ("NONE", "LOGISTIC", "SOFTMAX")),
    *({**made(forest("class", [1])), "classlabels_int64s": [7, 5], "post_transform": name}
      for made in (dict, positive) for name in ("NONE", "LOGISTIC", "SOFTMAX")),
    *({**positive(one_each(forest("class", [0]))), "classlabels_int64s": [7, 5, 9, 4], "post_transform": name}
      for name in TRANSFORMS[:4]),
]  # fmt: skip
TREES = [
    *(Row("TreeEnsembleRegressor", [HARD], attributes) for attributes in REGRESSORS),
    *(Row("TreeEnsembleClassifier", [HARD], attributes, 2) for attributes in CLASSIFIERS),
    Row("TreeEnsembleClassifier", [WHOLE], CLASSIFIERS[0], 2),
    *(
        Row("TreeEnsembleClassifier", [HARD], {**forest("class", [0, 1]), "post_transform": name, **labels}, 2)
        for name in TRANSFORMS[:4]
        for labels in ({"classlabels_int64s": [7, 5]}, {"classlabels_strings": WORDS[:2]})
    ),
    Row("TreeEnsembleClassifier", [HARD], {**forest("class", [0, 1, 2]), "classlabels_strings": WORDS}, 2),
    Row("TreeEnsembleClassifier", [HARD], {**forest("class", [0]), "classlabels_strings": WORDS[:2]}, 2),
]


def newer(how: int, name: int, targets: int) -> Row:
    """TreeEnsemble: two trees of one and two comparisons."""
    splits = numpy_helper.from_array(np.array([0.5, 1.0, 0.0], np.float32))
    weights = numpy_helper.from_array(np.array([1.5, -0.5, 2.0, 0.75, 0.25], np.float32))
    attributes = {
        "aggregate_function": how, "post_transform": name, "n_targets": targets, "tree_roots": [0, 1],
        "nodes_featureids": [0, 2, 1], "nodes_splits": splits,
        "nodes_modes": numpy_helper.from_array(np.array([0, 3, 5], np.uint8)),
        "nodes_truenodeids": [0, 2, 3], "nodes_trueleafs": [1, 0, 1], "nodes_falsenodeids": [1, 2, 4],
        "nodes_falseleafs": [1, 1, 1], "leaf_targetids": [0, 0, 0, 0, 0] if targets == 1 else [0, 1, 1, 0, 1],
        "leaf_weights": weights, "nodes_missing_value_tracks_true": [1, 0, 0],
    }  # fmt: skip
    return Row("TreeEnsemble", [HARD], attributes, 1, 5)


NEWER = [*(newer(how, 0, targets) for how in range(4) for targets in (1, 2)), newer(1, 3, 2)]


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def same(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> None:
    for have, want in zip(results, wanted, strict=True):
        assert have.shape == want.shape
        assert have.dtype == want.dtype
        if want.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=tolerance, atol=1e-6)  # sums of a few floats in another order
        else:
            np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("row", [*ROWS, *TREES, *NEWER], ids=lambda row: f"{row.op}-{len(row.attributes)}")
def test_computes_what_onnx_runtime_does(row: Row) -> None:
    canonical = canonicalize(ir.from_proto(row.model))
    proto = ir.to_proto(canonical)
    stays = row.op.startswith(("Tree", "SVM"))
    assert (ML in {node.domain for node in proto.graph.node}) == stays, "ONNX Runtime keeps its kernels"
    feed = {f"x{place}": value for place, value in enumerate(row.inputs)}
    feeds = [feed] + [{**feed, "x0": value[:1]} for value in row.inputs[:1] if value.ndim == 2 and len(row.inputs) == 1]
    case = Case(proto, compile_model(ir.from_proto(proto), Options()))
    if row.op.startswith("Tree"):
        assert not case.operators.keys() & {"SHAPE", "RANGE", "BROADCAST_TO"}, "no size is read at run time"
    source = session(row.model)
    plain = ir.from_proto(proto)
    decompose_kernels(plain)
    assert ML not in {node.domain for node in plain.graph}
    rewritten = session(ir.to_proto(plain))
    for each, (_, tflite) in zip(feeds, case.both(feeds), strict=True):
        wanted = source.run(None, each)
        same(rewritten.run(None, each), wanted, row.tolerance)
        same(list(tflite.values()), wanted, row.tolerance)


STAYS = [
    Row("LabelEncoder", [np.array(["a"])], {"keys_strings": ["a"], "values_int64s": [1]}, opset=2),
    Row("OneHotEncoder", [WHOLE], {"cats_int64s": [1, 1], "zeros": 1}),
    Row("SVMClassifier", [X], {**MACHINES[0], "prob_a": [1.0] * 3, "prob_b": [0.5] * 3}, 2),
    Row("LinearClassifier", [X], {**linear(1, "PROBIT"), "classlabels_ints": [4, 2]}, 2),
    Row(
        "TreeEnsembleClassifier",
        [X],
        {**forest("class", [0, 1]), "classlabels_int64s": [7, 5], "base_values": [1.0, 1.0]},
        2,
    ),
    Row("TreeEnsembleClassifier", [X], {**forest("class", [0, 2]), "classlabels_int64s": [7, 5, 9]}, 2),
    Row("TreeEnsembleClassifier", [X], {**one_each(forest("class", [0])), "classlabels_int64s": [7, 5, 9]}, 2),
    newer(1, 1, 2),
]


@pytest.mark.parametrize("row", STAYS, ids=lambda row: f"{row.op}-{len(row.attributes)}")
def test_what_has_no_exact_form_keeps_its_node(row: Row) -> None:
    model = canonicalize(ir.from_proto(row.model))
    decompose_kernels(model)
    assert [node.op_type for node in model.graph if node.domain == ML] == [row.op]


@pytest.mark.parametrize("target", ["tflite", "onnxruntime", "tensorrt"])
def test_a_small_pipeline_goes_to_every_target(tmp_path: Path, target: str) -> None:
    """A file need not import ONNX's own operators."""
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain=ML, offset=[0.5], scale=[2.0]),
        helper.make_node("TreeEnsembleClassifier", ["s"], ["label", "scores"], domain=ML, **CLASSIFIERS[0]),
    ]
    infos = [helper.make_tensor_value_info("x", 1, ["n", 3])]
    declared = [helper.make_tensor_value_info("label", 7, ["n"]), helper.make_tensor_value_info("scores", 1, ["n", 3])]
    graph = helper.make_graph(nodes, "g", infos, declared)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(ML, 3)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    assert done.report["passed"]


def test_an_output_has_the_rank_that_it_has() -> None:
    """CatBoost says that its regressors give (rows)."""
    model = Row("TreeEnsembleRegressor", [HARD], REGRESSORS[0]).model
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.FLOAT, ["n"]))
    (result,) = canonicalize(ir.from_proto(model)).graph.outputs
    assert result.shape is not None
    assert list(result.shape)[1:] == [1]


def words_and_dictionaries() -> onnx.ModelProto:
    """What skl2onnx writes of a classifier of words, nothing asked: a list of names, and a dictionary for each row."""
    nodes = [
        helper.make_node("LinearClassifier", ["x"], ["it", "raw"], domain=ML, **linear(3, "SOFTMAX"),
                         classlabels_strings=["a", "b", "c"]),
        helper.make_node("ArgMax", ["raw"], ["place"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["names", "place"], ["found"], domain=ML),
        helper.make_node("Reshape", ["found", "flat"], ["label"]),
        helper.make_node("Identity", ["it"], ["again"]),
        helper.make_node("ZipMap", ["raw"], ["scores"], domain=ML, classlabels_strings=WORDS),
    ]  # fmt: skip
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    declared = [
        helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]),
        helper.make_tensor_value_info("again", TensorProto.STRING, ["n"]),
        helper.make_value_info("scores", helper.make_sequence_type_proto(kind)),
    ]
    names = helper.make_tensor("names", TensorProto.STRING, [3], [word.encode() for word in WORDS])
    stored = [names, numpy_helper.from_array(np.array([-1]), "flat")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 3])], declared, stored)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 1)], ir_version=8
    )


@pytest.mark.parametrize("target", ["tflite", "onnxruntime", "tensorrt", "openvino"])
def test_words_become_places_and_dictionaries_tables(tmp_path: Path, target: str) -> None:
    """ONNX Runtime keeps the words; where there are numbers, the report, the manifest and ``verify`` know them."""
    onnx.save(words_and_dictionaries(), tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    assert done.passed
    label, again, scores = done.report["interface"]["outputs"]
    keeps = target == "onnxruntime"
    assert [label["dtype"], again["dtype"], scores["dtype"]] == ["string" if keeps else "int64"] * 2 + ["float32"]
    assert (label["labels"], again["labels"]) == (([], []) if keeps else (WORDS, ["a", "b", "c"]))
    assert scores["shape"][1:] == [3]
    assert any("its columns in this order: ham, eggs, späm" in note for note in done.report["notes"])
    assert convertkit.verify(tmp_path / "m.onnx", tmp_path / "out").passed


def behind(
    nodes: Sequence[onnx.NodeProto],
    kind: int,
    opsets: tuple[int, int],
    shape: list[None] | None = None,
    **stored: np.ndarray,
) -> onnx.ModelProto:
    """A model whose nodes state no sizes between them."""
    given, made = helper.make_tensor_value_info("x", 1, ["n", 3]), helper.make_tensor_value_info("y", kind, shape)
    constants = [numpy_helper.from_array(value, name) for name, value in stored.items()]
    imports = [helper.make_opsetid("", opsets[0]), helper.make_opsetid(ML, opsets[1])]
    return helper.make_model(
        helper.make_graph(nodes, "g", [given], [made], constants), opset_imports=imports, ir_version=8
    )


def test_columns_are_chosen_of_what_stands_behind_models() -> None:
    """scikit-learn's OneVsOneClassifier: labels side by side, then their columns; the declared rank is wrong."""
    nodes = [
        helper.make_node("LinearClassifier", ["x"], ["said", "raw"], domain=ML,
                         **{**linear(3, "NONE"), "classlabels_ints": [7, 5, 9]}),
        helper.make_node("Reshape", ["said", "column"], ["label"]),
        helper.make_node("Concat", ["label", "label"], ["pair"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["pair", "place"], ["chosen"], domain=ML),
        helper.make_node("ArgMax", ["chosen"], ["y"], axis=1),
    ]  # fmt: skip
    source = behind(nodes, TensorProto.INT64, (22, 1), [None], column=np.array([-1, 1]), place=np.array([1, 0]))
    model = canonicalize(ir.from_proto(source))
    assert [node.op_type for node in model.graph].count("ArrayFeatureExtractor") == 0
    (got,) = session(ir.to_proto(model)).run(["y"], {"x": HARD})
    np.testing.assert_array_equal(got, session(source).run(["y"], {"x": HARD})[0])


def test_numbers_of_leaves_become_words_in_an_old_opset() -> None:
    """scikit-learn's ``decision_path``; ONNX's inference ended the process, as it knows no types of trees' results."""
    nodes = [
        helper.make_node("TreeEnsembleRegressor", ["x"], ["leaf"], domain=ML, **forest("target", [0]), n_targets=1),
        helper.make_node("LabelEncoder", ["leaf"], ["y"], domain=ML, keys_floats=[0.0], values_strings=["a"]),
    ]
    source = behind(nodes, TensorProto.STRING, (6, 2))
    model = canonicalize(ir.from_proto(source))
    assert model.graph.outputs[0].dtype == ir.DataType.STRING


def test_an_app_gets_the_words(tmp_path: Path) -> None:
    model = words_and_dictionaries()
    del model.graph.output[1]
    onnx.save(model, tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target="android", output=tmp_path / "out")
    assert done.passed
    (aar,) = (tmp_path / "out").glob("*.aar")
    with zipfile.ZipFile(aar) as archive:
        (labels,) = [name for name in archive.namelist() if name.endswith("labels.txt")]
        assert archive.read(labels).decode().split() == WORDS


def test_a_wrong_place_is_a_word_that_nobody_says() -> None:
    spec = TensorSpec("y", (3,), "int64", labels=("a", "b"))
    assert spec.decode(np.array([1, 2, -1])).tolist() == ["b", "none of the 2 labels", "none of the 2 labels"]
    assert spec.numbered(np.array([["b"], ["a"]], object)).tolist() == [[1], [0]]


def test_the_float64_twin_knows_trees_and_support_vectors(tmp_path: Path) -> None:
    """ONNX Runtime's kernels have no double form of either."""
    rows = Row("SVMClassifier", [X], MACHINES[0], 2), Row("TreeEnsembleRegressor", [X], REGRESSORS[0])
    for row in rows:
        made = save_model(canonicalize(ir.from_proto(row.model)), tmp_path / f"{row.op}.onnx", "")
        with Twin(made) as twin:
            truth = twin.run({"x0": X})
        name = made.outputs[-1].name
        (want,) = session(row.model).run([name], {"x0": X})
        assert truth.values[name].dtype == np.float64
        np.testing.assert_allclose(truth.values[name], want, rtol=1e-5, atol=1e-6)


def test_a_phone_without_text_is_told_the_way_out(tmp_path: Path) -> None:
    onnx.save(words_and_dictionaries(), tmp_path / "m.onnx")
    with pytest.raises(Unsupported, match=r"no arrays of string[\s\S]*--ios-runtime litert"):
        convertkit.export(tmp_path / "m.onnx", target="ios", output=tmp_path / "out")
