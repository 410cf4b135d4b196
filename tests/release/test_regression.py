"""Two releases: a planted loss of speed or of accuracy is found and named, and noise alone is not."""

from itertools import pairwise

import numpy as np
import pytest
from onnx import helper, numpy_helper

from convertkit.release.cells import load
from convertkit.release.gates import ESTIMATE_GATE
from convertkit.release.run import Running, run
from tests import onnx_models

WIDTH, CLASSES = 64, 10
GATES = "gates = { latency_to_baseline = 1.5, drop_to_baseline = 1 }\n"
RECIPE = '[models.net]\nsource = "net.onnx"\neval = "eval.npz"\ntargets = ["onnxruntime", "tflite"]\n'


def net(weights, idle=0):
    """Two dense layers; between them so many that change nothing and take their time."""
    names = ["h", *(f"h{number}" for number in range(idle))]
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["p"]), helper.make_node("Relu", ["p"], ["h"])]
    for number, (before, after) in enumerate(pairwise(names)):
        nodes += [helper.make_node("MatMul", [before, "same"], [f"p{number}"])]
        nodes += [helper.make_node("Relu", [f"p{number}"], [after])]
    nodes.append(helper.make_node("MatMul", [names[-1], "w2"], ["y"]))
    stored = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    stored += [numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "same")] if idle else []
    return onnx_models.model(nodes, {"x": [1, WIDTH]}, {"y": [1, CLASSES]}, stored)


def drawn():
    draw = np.random.default_rng(3)
    shapes = {"w1": (WIDTH, WIDTH), "w2": (WIDTH, CLASSES)}
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def released(tmp_path):
    """A recipe whose baseline is the release of a good model, with the labels that this one gives."""
    weights = drawn()
    x = np.random.default_rng(4).standard_normal((64, WIDTH)).astype(np.float32)
    label = (np.maximum(x @ weights["w1"], 0) @ weights["w2"]).argmax(1)
    np.savez(tmp_path / "eval.npz", x=x, label=label)
    onnx_models.write(tmp_path, net(weights), "net.onnx")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    assert run(load(recipe), Running(output=str(tmp_path / "old"))).passed
    recipe.write_text('[release]\nbaseline = "old"\n' + RECIPE + GATES)
    return recipe


def broken(release):
    return {(cell.target, verdict.gate) for cell in release.cells for verdict in cell.verdicts if not verdict.passed}


def test_a_slower_model_is_named(released):
    onnx_models.write(released.parent, net(drawn(), idle=200), "net.onnx")
    release = run(load(released), Running())
    assert not release.passed
    assert broken(release) == {(target, "latency_to_baseline") for target in ("onnxruntime", "tflite")}
    assert "× the latency of the baseline" in release.cells[0].error


def test_a_slower_model_is_named_by_its_estimate_without_a_clock(released):
    gates = f"gates = {{ {ESTIMATE_GATE} = {{ phone = 1.0, x86 = 1.0 }} }}\n"
    released.write_text(released.read_text().replace(GATES, gates))
    same = run(load(released), Running())
    assert same.passed, "estimates have no noise: the same file passes a limit of exactly 1"
    onnx_models.write(released.parent, net(drawn(), idle=1), "net.onnx")
    slower = run(load(released), Running(output=str(released.parent / "slower")))
    assert broken(slower) == {(target, ESTIMATE_GATE) for target in ("onnxruntime", "tflite")}
    assert all("× the baseline's estimate for phone, at most 1 ×" in cell.error for cell in slower.cells)


def test_a_target_without_cost_tables_cannot_be_judged_by_an_estimate(released):
    plain = RECIPE.replace('"onnxruntime", "tflite"', '"coreml"')
    released.write_text(plain)
    assert run(load(released), Running(output=str(released.parent / "before"))).passed
    gates = f"gates = {{ {ESTIMATE_GATE} = {{ phone = 1.0 }} }}\n"
    released.write_text('[release]\nbaseline = "before"\n' + plain + gates)
    release = run(load(released), Running())
    assert f"{ESTIMATE_GATE} cannot be judged: the target has no cost tables of devices" in release.cells[0].error


def test_integers_have_to_pay_on_the_named_device(released):
    given = RECIPE.replace('"onnxruntime", ', "") + 'precisions = ["float32", "w8"]\n'
    limits = []
    for limit in (2.0, 0.01):
        released.write_text(given + f"gates = {{ latency_estimate = {{ arm64-a76 = {limit} }} }}\n")
        release = run(load(released), Running(output=str(released.parent / f"at-{limit}")))
        limits.append([cell.passed for cell in release.cells])
    assert limits == [[True, True], [True, False]], "float32 has nothing to be held against"


def test_a_less_accurate_model_is_named(released):
    weights = drawn()
    weights["w2"] = np.ascontiguousarray(weights["w2"][:, ::-1])
    onnx_models.write(released.parent, net(weights), "net.onnx")
    release = run(load(released), Running())
    assert broken(release) == {(target, "drop_to_baseline") for target in ("onnxruntime", "tflite")}
    assert "drop_to_baseline: top1 100 → " in release.cells[0].error


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.nightly)])
def test_noise_alone_fails_nothing(released, tmp_path, times):
    recipe = load(released)
    found = [broken(run(recipe, Running(force=True, cache=str(tmp_path / "cache")))) for _ in range(times)]
    assert found == [set()] * times
