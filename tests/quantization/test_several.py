"""Several samples at a time: the same numbers as one by one, or not at all."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.several import AT_ONCE, Calls, for_several
from convertkit.quantization.pruning import student
from convertkit.quantization.pruning.student import Student, Teacher
from tests.quantization.models import model_of
from tests.quantization.test_joint import every_form, feeds, pruned

ODD = AT_ONCE + 3


def graph(*nodes: tuple[str, list[str], dict[str, object]], **constants: list[int]) -> ir.Model:
    """From x (1, 3, 12, 12) to y, node after node."""
    made, last = [], "x"
    for place, (operator, more, attributes) in enumerate(nodes):
        name = "y" if place == len(nodes) - 1 else f"v{place}"
        made.append(helper.make_node(operator, [last, *more], [name], name, **attributes))
        last = name
    arrays = {name: np.array(value) for name, value in constants.items()}
    return canonicalize(ir.from_proto(model_of(made, arrays, {"x": [1, 3, 12, 12]}, {"y": []})))


@pytest.mark.parametrize("count", [AT_ONCE, ODD, 3 * AT_ONCE])
def test_each_sample_gets_what_it_gets_alone(count: int) -> None:
    model, samples = every_form(), feeds(count)
    several = for_several(model, ["y"], samples)
    assert several is not None
    assert list(several.graph.inputs[0].shape or ()) == [AT_ONCE, 3, 12, 12]
    together = list(Calls(several, several=True)(["y"], samples))
    alone = list(run_all(open_session(model), ["y"], samples, {}))
    assert len(together) == count
    for one, other in zip(alone, together, strict=True):
        assert one["y"].shape == other["y"].shape
        assert np.allclose(one["y"], other["y"], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "model",
    [
        graph(("Softmax", [], {"axis": 0})),
        graph(("ReduceMean", ["axes"], {"keepdims": 1}), axes=[0]),
        graph(("Reshape", ["sizes"], {}), sizes=[3, 144]),
        graph(("Transpose", [], {"perm": [1, 0, 2, 3]})),
        graph(("Reshape", ["sizes"], {}), ("Relu", [], {}), sizes=[1, -1, 1]),
    ],
    ids=["softmax of samples", "mean of samples", "without an axis of samples", "samples second", "kept"],
)
def test_samples_that_are_looked_at_together_are_computed_one_by_one(
    model: ir.Model, request: pytest.FixtureRequest
) -> None:
    kept = request.node.callspec.id == "kept"
    assert (for_several(model, ["y"], feeds(AT_ONCE)) is not None) == kept


def branching() -> ir.Model:
    """Zeros for a sample whose greatest number is large, which none of the first ones has."""
    inner = [
        helper.make_graph(
            [helper.make_node(operator, ["x"], [name], name)], name, [], [helper.make_empty_tensor_value_info(name)]
        )
        for operator, name in (("Relu", "then"), ("Neg", "else"))
    ]
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"], "flatten", axis=1),
        helper.make_node("ReduceMax", ["flat", "axes"], ["most"], "most", keepdims=0),
        helper.make_node("Greater", ["most", "limit"], ["is"], "greater"),
        helper.make_node("If", ["is"], ["y"], "branch", then_branch=inner[0], else_branch=inner[1]),
    ]
    arrays = {"axes": np.array([0, 1]), "limit": np.array(1e6, np.float32)}
    return canonicalize(ir.from_proto(model_of(nodes, arrays, {"x": [1, 3, 12, 12]}, {"y": [1, 3, 12, 12]})))


def scaled() -> ir.Model:
    """A second input of one axis and of integers, which several samples would make a row of columns of."""
    nodes = [
        helper.make_node("Cast", ["s"], ["real"], "cast", to=1),
        helper.make_node("Mul", ["x", "real"], ["y"], "scale"),
    ]
    proto = model_of(nodes, {}, {"x": [1, AT_ONCE], "s": [1]}, {"y": [1, AT_ONCE]})
    proto.graph.input[1].type.tensor_type.elem_type = 7
    return canonicalize(ir.from_proto(proto))


def normalized() -> ir.Model:
    """By the mean and the spread of all samples; those of the test are alike in both."""
    nodes = [helper.make_node("MeanVarianceNormalization", ["x"], ["y"], "norm", axes=[0, 1, 2, 3])]
    return ir.from_proto(model_of(nodes, {}, {"x": [1, 3, 12, 12]}, {"y": [1, 3, 12, 12]}))


def to_the_greatest() -> ir.Model:
    nodes = [
        helper.make_node("ReduceMax", ["x", "axes"], ["most"], "most", keepdims=1),
        helper.make_node("Div", ["x", "most"], ["y"], "divide"),
    ]
    arrays = {"axes": np.array([0, 1, 2, 3])}
    return canonicalize(ir.from_proto(model_of(nodes, arrays, {"x": [1, 3, 12, 12]}, {"y": [1, 3, 12, 12]})))


@pytest.mark.parametrize(
    "model", [branching(), scaled(), to_the_greatest(), normalized()], ids=["branch", "scale", "greatest", "norm"]
)
def test_samples_that_agree_by_chance_prove_nothing(model: ir.Model) -> None:
    """The first ones take the same branch, have the same scale and the same greatest number."""
    samples = feeds(AT_ONCE)
    for each in samples:
        each["x"].flat[0] = 1.0
        np.clip(each["x"], -1, 1, out=each["x"])
    if model.graph.node(0).op_type == "MeanVarianceNormalization":
        samples = [{"x": ((each["x"] - each["x"].mean()) / each["x"].std())} for each in samples]
    if len(model.graph.inputs) > 1:
        samples = [{"x": np.ones((1, AT_ONCE), np.float32), "s": np.ones(1, np.int64)}] * AT_ONCE
    assert for_several(model, ["y"], samples) is None


def test_values_without_axes_are_computed_one_by_one_and_keep_gradients() -> None:
    scalar = graph(("Relu", [], {}), ("Reshape", ["flat"], {}), ("ReduceSum", ["axes"], {"keepdims": 0}),
                   ("Squeeze", [], {}), flat=[1, -1], axes=[1])  # fmt: skip
    assert for_several(scalar, ["y"], feeds(AT_ONCE)) is None
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], "shape"),
        helper.make_node("Gather", ["shape", "one"], ["size"], "size"),
        helper.make_node("Cast", ["size"], ["real"], "cast", to=1),
        helper.make_node("MatMul", ["x", "w"], ["m"], "first"),
        helper.make_node("Div", ["m", "real"], ["d"], "divide"),
        helper.make_node("MatMul", ["d", "v"], ["y"], "second"),
    ]
    eye = np.eye(6, dtype=np.float32)
    constants = {"one": np.array(1), "w": eye, "v": 2 * eye}
    model = canonicalize(ir.from_proto(model_of(nodes, constants, {"x": ["N", 6]}, {"y": ["N", 6]})))
    samples = [{"x": each} for each in np.random.default_rng(0).normal(size=(AT_ONCE, 1, 6)).astype(np.float32)]
    teacher = Teacher(model, samples)
    learner = Student(model.clone(), teacher.targets, samples)
    assert [each.product.name for each in learner.trained] == ["first", "second"]


def test_too_few_samples_tell_nothing() -> None:
    assert for_several(every_form(), ["y"], feeds(AT_ONCE - 1)) is None


def test_gradients_are_those_of_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, samples = every_form(), feeds(ODD)
    modes = []

    def made() -> tuple[float, dict[str, np.ndarray], list[np.ndarray]]:
        teacher = Teacher(model, samples)
        learner = Student(pruned(model, 0.5), teacher.targets, samples)
        wanted = teacher.answers(samples)
        modes.append((teacher._calls._several, learner._calls._several))
        return learner.loss(samples, wanted), learner.gradients(samples, wanted), learner.inputs(samples, wanted)

    together = made()
    monkeypatch.setattr(student, "for_several", lambda *_: None)
    alone = made()
    assert modes == [(True, True), (False, False)]
    assert together[0] == pytest.approx(alone[0], rel=1e-5)
    assert together[1].keys() == alone[1].keys()
    for name, gradient in alone[1].items():
        assert np.allclose(together[1][name], gradient, rtol=1e-3, atol=1e-5 * np.abs(gradient).max()), name
    for one, other in zip(together[2], alone[2], strict=True):
        assert np.allclose(one, other, rtol=1e-4, atol=1e-6)
