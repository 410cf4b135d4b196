"""The optimizer's rules at their own operators only: the same graph as the library's, found without trying the rest."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxscript.optimizer
import pytest
from onnx.reference import ReferenceEvaluator
from onnxscript.optimizer._constant_folding import registry

from convertkit.onnx.optimizer import RULES, optimize_ir

_HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
_GRAPHS = {
    "activations": "g (float[N,4] x) => (float[N,4] y) {a = Relu(x) b = Relu(a) low = Constant<value_float = 0.0>()"
    " high = Constant<value_float = 6.0>() y = Clip(b, low, high)}",
    "one on either side": "g (float[N,4] x) => (float[N,4] y) {one = Constant<value_float = 1.0>() a = Mul(one, x)"
    " zero = Constant<value_float = 0.0>() b = Sub(a, zero) c = Mul(b, one) y = Exp(c)}",
    "transposes": "g (float[2,3,4] x) => (float[2,3,4] y) {a = Transpose<perm = [2, 0, 1]>(x)"
    " b = Transpose<perm = [1, 2, 0]>(a) c = Cast<to = 1>(b) y = Neg(c)}",
    "slices": "g (float[2,6] x) => (float[2,3] y, float[2,3] z) {axis = Constant<value_ints = [1]>()"
    " none = Constant<value_ints = [0]>() half = Constant<value_ints = [3]>()"
    " all = Constant<value_ints = [6]>() a = Relu(x) y = Slice(a, none, half, axis) z = Slice(a, half, all, axis)}",
    "flat": "g (float[N,2,3] x) => (float[N,6] y) {a = Flatten<axis = 1>(x) s = Constant<value_ints = [-1, 6]>()"
    " y = Reshape(a, s)}",
    "norm": "g (float[1,1,4,4] x) => (float[1,1,4,4] y) {w = Constant<value = float[1,1,1,1] {2.0}>()"
    " s = Constant<value = float[1] {3.0}>() a = Conv(x, w) y = BatchNormalization(a, s, s, s, s)}",
    "branches": "g (bool c, float[4] x) => (float[4] y) {y = If(c) <then_branch = t () => (float[4] p)"
    " {a = Relu(x) p = Relu(a)}, else_branch = e () => (float[4] q) {q = Neg(x)}>}",
}


def _model(text: str) -> ir.Model:
    model: ir.Model = ir.from_proto(onnx.parser.parse_model(f"{_HEAD} {text}"))
    return model


@pytest.mark.parametrize("name", _GRAPHS)
def test_the_graph_is_the_librarys(name: str) -> None:
    ours, theirs = _model(_GRAPHS[name]), _model(_GRAPHS[name])
    optimize_ir(ours, should_fold=lambda node: None)
    onnxscript.optimizer.optimize_ir(theirs)
    assert ir.to_proto(ours).SerializeToString(deterministic=True) == ir.to_proto(theirs).SerializeToString(
        deterministic=True
    )


def test_a_rule_is_tried_at_its_operator_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[tuple[str, str]]()
    for rule in RULES:
        if rule.root is not None:
            match = rule._matcher.match
            monkeypatch.setattr(
                rule._matcher,
                "match",
                lambda model, graph, node, *, match=match, root=rule.root, **more: (
                    tried.append((root[1], node.op_type)),
                    match(model, graph, node, **more),
                )[1],
            )
    optimize_ir(_model(_GRAPHS["activations"]), should_fold=lambda node: None)
    assert tried
    assert all(root == operator for root, operator in tried)


def test_sizes_in_rows_are_no_row_of_sizes() -> None:
    """The library follows sizes through Reshape and took the second row of ``[[N, 3], [4, 5]]`` for the second size."""
    text = (
        "g (float[N,3,4,5] x) => (int64[1,2] y) <int64[2] s = {2, 2}, int64[1] i = {1}>"
        "{a = Shape(x) b = Reshape(a, s) y = Gather<axis = 0>(b, i)}"
    )
    model = _model(text)
    optimize_ir(model, should_fold=lambda node: None)
    given = {"x": np.zeros((2, 3, 4, 5), np.float32)}
    assert ReferenceEvaluator(ir.to_proto(model)).run(None, given)[0].tolist() == [[4, 5]]


def test_chance_is_not_folded() -> None:
    text = "g (float[4] x) => (float[4] y) <float[4] p = {0.5, 0.5, 0.5, 0.5}> {b = Bernoulli(p) y = Add(x, b)}"
    model = _model(text)
    optimize_ir(model, should_fold=lambda node: None)
    assert [node.op_type for node in model.graph] == ["Bernoulli", "Add"]


def test_keepdims_counts_without_a_split_only() -> None:
    text = (
        "g (float[4,2] x) => (float[2,2] y) <int64 s = {2}, int64 i = {1}>"
        "{a = SplitToSequence<axis = 0, keepdims = 0>(x, s) y = SequenceAt(a, i)}"
    )
    model = _model(text)
    optimize_ir(model, should_fold=lambda node: None)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x})[0].tolist() == x[2:].tolist()


def test_parts_of_a_size_that_is_computed_stay_a_sequence() -> None:
    """As ``torch.split`` by half the batch; the library's evaluator raises for a size that it knows the rank of."""
    text = (
        "g (float[n,3] x) => (float[m,3] y) <int64 i = {1}, int64 two = {2}, int64 first = {0}>"
        "{shape = Shape(x) all = Gather(shape, first) s = Div(all, two)"
        " a = SplitToSequence<axis = 0, keepdims = 1>(x, s) y = SequenceAt(a, i)}"
    )
    model = _model(text)
    optimize_ir(model, should_fold=lambda node: None)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x})[0].tolist() == x[2:].tolist()


def test_each_evaluator_of_the_library_has_been_looked_at() -> None:
    """A version that brings another one fails here: see whether it is exact, and add it to the list."""
    known = """Abs Add Cast CastLike Concat ConcatFromSequence Dropout Expand Gather Identity If Reshape
    SequenceAt SequenceConstruct Shape Size SplitToSequence Squeeze"""
    assert {name for domain, name in registry.op_evaluators if not domain} == set(known.split())


def test_the_rules_do_not_hold_the_last_model() -> None:
    model = ir.from_proto(onnx.parser.parse_model(f"<{_HEAD[1:-1]}> {_GRAPHS['activations']}"))
    optimize_ir(model, lambda node: None)
    graph = weakref.ref(model.graph)
    del model
    gc.collect()
    assert graph() is None


@pytest.mark.parametrize("kind", ["Pow", "Exp", "Log", "Sin", "Tanh", "Softplus"])
def test_functions_of_stored_values_are_rounded_once(kind: str) -> None:
    """NumPy's float32 functions are a rounding off in many values, so `(x + d) ** r - d ** r` of silence was not 0."""
    rng = np.random.default_rng(0)
    stored = {name: rng.uniform(0.1, 9, 500).astype(np.float32) for name in ("d", "r")}
    given = "d, r" if kind == "Pow" else "d"
    model = onnx.parser.parse_model(f"{_HEAD} g (float[500] x) => (float[500] y) {{k = {kind}({given}) y = Add(x, k)}}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(stored[name], name) for name in given.split(", "))
    folded = ir.from_proto(model)
    optimize_ir(folded, should_fold=lambda node: None)
    exact = {
        "Pow": lambda d: d ** stored["r"].astype(np.float64),
        "Exp": np.exp,
        "Log": np.log,
        "Sin": np.sin,
        "Tanh": np.tanh,
        "Softplus": lambda d: np.log1p(np.exp(d)),
    }[kind](stored["d"].astype(np.float64))
    (found,) = (value.const_value.numpy() for value in folded.graph.initializers.values() if value.name != "x")
    assert np.array_equal(found, exact.astype(np.float32))
