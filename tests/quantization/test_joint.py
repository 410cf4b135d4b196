"""All layers of a pruned model fitted together: gradients, coordinates, and what it gains."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.progress import Silent
from convertkit.quantization.graph.replay import open_session
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.joint import _MIXED, JointFit, _Fit, fit_jointly
from convertkit.quantization.pruning.patterns import Pattern
from convertkit.quantization.pruning.products import find_products
from convertkit.quantization.pruning.student import Student, Teacher
from convertkit.quantization.pruning.surgery import explicit_biases
from convertkit.quantization.pruning.whitened import Whitened
from convertkit.quantization.pruning.zeros import plainly_pruned
from tests.quantization.models import images, model_of

RNG = np.random.default_rng(3)
STEP = 1e-2


def f(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1 / np.sqrt(max(1, np.prod(shape[1:]))), shape).astype(np.float32)


CONSTANTS = {
    "w1": f(6, 3, 3, 2), "b1": f(6), "w2": f(6, 1, 3, 3), "b2": f(6), "w3": f(4, 3, 3, 1), "b3": f(4),
    "w4": 3 * f(8, 96), "b4": f(8), "w5": 3 * f(8, 3), "b5": f(3), "flat": np.array([1, 96]),
}  # fmt: skip


def every_form() -> ir.Model:
    """Strides, pads, dilations, groups, depthwise, Gemm both ways and the bias of a MatMul, in front of a softmax."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "one", strides=[2, 1], pads=[1, 0, 0, 1]),
        helper.make_node("Tanh", ["c1"], ["t1"], "t1"),
        helper.make_node("Conv", ["t1", "w2", "b2"], ["c2"], "deep", group=6, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c2", "w3", "b3"], ["c3"], "groups", group=2, dilations=[2, 1]),
        helper.make_node("Reshape", ["c3", "flat"], ["r"], "flatten"),
        helper.make_node("Gemm", ["r", "w4", "b4"], ["g"], "gemm", transB=1),
        helper.make_node("Sigmoid", ["g"], ["s"], "sigmoid"),
        helper.make_node("MatMul", ["s", "w5"], ["m"], "matmul"),
        helper.make_node("Add", ["m", "b5"], ["a"], "bias"),
        helper.make_node("Softmax", ["a"], ["y"], "last", axis=1),
    ]
    model = canonicalize(ir.from_proto(model_of(nodes, CONSTANTS, {"x": [1, 3, 12, 12]}, {"y": [1, 3]})))
    prepare(model)
    explicit_biases(model.graph)
    return model


def feeds(count: int) -> list[dict[str, np.ndarray]]:
    return [{"x": each.reshape(1, 3, 12, 12)} for each in images(count)]


def pruned(model: ir.Model, share: float) -> ir.Model:
    copy = model.clone()
    plainly_pruned(copy.graph, find_products(copy.graph), Pattern(share))
    return copy


def student_of(model: ir.Model, share: float = 0.5) -> tuple[Teacher, Student]:
    teacher = Teacher(model, feeds(8))
    return teacher, Student(pruned(model, share), teacher.targets, feeds(8))


def test_gradients_of_weights_are_what_differences_say() -> None:
    teacher, student = student_of(every_form())
    samples = feeds(3)
    wanted = teacher.answers(samples)
    found = student.gradients(samples, wanted)
    assert [each.product.name for each in student.trained] == ["one", "deep", "groups", "gemm", "matmul"]
    assert all(each.bias for each in student.trained)
    for name, array in list(student.arrays.items()):
        direction = RNG.choice((-1, 1), array.shape).astype(np.float32)
        ends = []
        for sign in (1, -1):
            student.arrays[name] = array + np.float32(sign * STEP) * direction
            ends.append(student.loss(samples, wanted) * student.weight)
        student.arrays[name] = array
        expected = (ends[0] - ends[1]) / (2 * STEP)
        assert float((found[name] * direction).sum()) == pytest.approx(expected, rel=0.03, abs=2e-3), name


def test_a_step_in_white_coordinates_is_newtons() -> None:
    """H⁻¹ times the gradient, of what stays of each row; zeros stay."""
    teacher, student = student_of(every_form())
    samples = feeds(16)
    gradients = student.gradients(samples, teacher.answers(samples))
    for trained, read in zip(student.trained, student.inputs(samples, teacher.answers(samples)), strict=True):
        columns = trained.product.columns(read, 1 << 30, np.random.default_rng(0))
        white = Whitened(trained, student.arrays, columns)
        arrays = dict(student.arrays)
        white.store(white.weights, arrays)
        assert all(np.array_equal(arrays[name], student.arrays[name]) for name in arrays)
        white.store(white.moved(white.weights, white.gradient(gradients)), arrays)
        change = student.arrays[trained.weight] - arrays[trained.weight]
        kept = student.arrays[trained.weight] != 0
        assert not change[~kept].any()
        wide = np.concatenate([columns, np.ones((*columns.shape[:2], 1))], axis=2).astype(np.float64)
        second = wide[0].T @ wide[0] / wide.shape[1]
        turned = trained.product.node.op_type == "MatMul"
        row = np.flatnonzero((kept.T if turned else kept)[0])
        inner = second[np.ix_([*row, -1], [*row, -1])] + 0.1 * np.trace(second) / len(second) * np.eye(len(row) + 1)
        wanted = (gradients[trained.weight].T if turned else gradients[trained.weight])[0].ravel()[row]
        assert trained.bias is not None
        step = np.linalg.solve(inner, [*wanted, gradients[trained.bias].ravel()[0]])
        assert np.allclose((change.T if turned else change)[0].ravel()[row], step[:-1], rtol=1e-2, atol=1e-5)


def distance(model: ir.Model, other: ir.Model) -> float:
    unseen = feeds(160)[96:]
    one, two = (open_session(each.clone()) for each in (model, other))
    pairs = [(np.log(one.run(None, each)[0]), np.log(two.run(None, each)[0])) for each in unseen]
    before, after = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return float(np.square(after - before).sum() / np.square(before - before.mean(0)).sum())


def test_fitting_gains_on_samples_it_has_not_seen_and_keeps_zeros() -> None:
    model = every_form()
    before, fitted, again = pruned(model, 0.5), pruned(model, 0.5), pruned(model, 0.5)
    samples = feeds(96)
    for each in (fitted, again):
        assert fit_jointly(model, each, samples[:64], samples[64:], {}, 0, Silent())
    assert distance(model, fitted) < 0.6 * distance(model, before)
    for one, other, third in zip(*(find_products(each.graph) for each in (before, fitted, again)), strict=True):
        assert not other.rows[one.rows == 0].any()
        assert np.array_equal(other.rows, third.rows)


def test_more_samples_give_more_steps() -> None:
    model, many = every_form(), feeds(64) * 8
    steps = [JointFit(model, many[:count], many[:8], {}, 0, Silent()).steps for count in (10, 64, 150, 300, 512)]
    assert steps == [0, 160, 160, 320, 480]


def test_what_gains_nothing_is_undone() -> None:
    """The model itself has nothing to learn."""
    model = every_form()
    copy = model.clone()
    samples = feeds(48)
    assert not fit_jointly(model, copy, samples[:32], samples[32:], {}, 0, Silent())
    for one, other in zip(find_products(model.graph), find_products(copy.graph), strict=True):
        assert np.array_equal(one.rows, other.rows)


def fit_of(model: ir.Model, samples: list[dict[str, np.ndarray]]) -> _Fit:
    teacher = Teacher(model, samples)
    return _Fit(teacher, Student(pruned(model, 0.5), teacher.targets, samples), samples, samples[:8], 0)


def test_samples_that_are_not_mixed_are_moved_as_samples_differ_until_a_plain_round() -> None:
    samples = feeds(32)
    known = np.stack([each["x"] for each in samples])
    fit = fit_of(every_form(), samples)
    moved = np.stack([each["x"] for each in fit._batch(False)[_MIXED:]])
    assert len(moved) == _MIXED
    assert moved.dtype == np.float32
    assert not any(np.array_equal(one, other) for one in moved for other in known)
    assert (moved >= known.min(axis=0)).all()
    assert (moved <= known.max(axis=0)).all()
    assert all(any(np.array_equal(each["x"], other) for other in known) for each in fit._batch(True))


def test_samples_stay_where_the_original_has_no_answer_to_moved_ones() -> None:
    """The root of a difference that is positive in all samples."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["d"], "difference"),
        helper.make_node("Sqrt", ["d"], ["y"], "root"),
    ]
    constants = {"w": np.array([[1, 1], [-1, -1]], np.float32), "b": np.zeros(2, np.float32)}
    model = canonicalize(ir.from_proto(model_of(nodes, constants, {"x": [1, 2]}, {"y": [1, 2]})))
    prepare(model)
    random = np.random.default_rng(0)
    small, more = random.uniform(-1, 1, (32, 1, 1)), 0.01 + random.exponential(1, (32, 1, 1))
    samples = [{"x": each} for each in np.concatenate([small + more, small], axis=2).astype(np.float32)]
    batch = fit_of(model, samples)._batch(False)[_MIXED:]
    assert all(any(np.array_equal(each["x"], other["x"]) for other in samples) for each in batch)


def test_few_samples_are_not_learnt_by_heart() -> None:
    model = every_form()
    assert not fit_jointly(model, pruned(model, 0.5), feeds(12), feeds(16)[12:], {}, 0, Silent())


def test_integers_are_not_learnt_and_sizes_of_data_are_not_fitted() -> None:
    """Places of words in a table, counted from 2, in front of a Gemm."""
    nodes = [
        helper.make_node("Add", ["ids", "two"], ["places"], "places"),
        helper.make_node("Gather", ["table", "places"], ["rows"], "rows"),
        helper.make_node("Reshape", ["rows", "wide"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "w"], ["y"], "gemm", transB=1),
    ]
    constants = {"two": np.array(2), "table": f(9, 4), "wide": np.array([1, -1]), "w": f(3, 20)}
    proto = model_of(nodes, constants, {"ids": [1, 5]}, {"y": [1, 3]})
    proto.graph.input[0].type.tensor_type.elem_type = 7
    model = canonicalize(ir.from_proto(proto))
    prepare(model)
    samples = [{"ids": each} for each in np.random.default_rng(0).integers(0, 7, (200, 1, 5))]
    assert [each.name for each in Teacher(model, samples).targets] == ["y"]
    copy = pruned(model, 0.5)
    before = [each.rows for each in find_products(copy.graph)]
    assert fit_jointly(model, copy, samples[:150], samples[150:], {}, 0, Silent())
    assert any(not np.array_equal(one, each.rows) for one, each in zip(before, find_products(copy.graph), strict=True))
    model.graph.append(ir.node("NonZero", [next(iter(model.graph)).outputs[0]], name="where"))
    assert not fit_jointly(model, pruned(model, 0.5), samples[:150], samples[150:], {}, 0, Silent())
