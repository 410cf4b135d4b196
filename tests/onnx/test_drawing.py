"""Models that draw random numbers: refused, or delivered and not called verified."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_models
from tests.command_line import everything_below, here, refused

LIKE = [helper.make_node("RandomNormalLike", ["x"], ["drawn"], name="noise")]
FLOAT = TensorProto.FLOAT
DRAWN = {
    "RandomNormalLike": LIKE,
    "RandomUniformLike": [helper.make_node("RandomUniformLike", ["x"], ["drawn"], name="noise", seed=1.0)],
    "RandomNormal": [helper.make_node("RandomNormal", [], ["drawn"], name="noise", shape=[2, 5], dtype=FLOAT)],
    "RandomUniform": [helper.make_node("RandomUniform", [], ["drawn"], name="noise", shape=[2, 5], dtype=FLOAT)],
    "Bernoulli": [
        helper.make_node("Sigmoid", ["x"], ["share"]),
        helper.make_node("Bernoulli", ["share"], ["drawn"], name="noise"),
    ],
    "Multinomial": [
        helper.make_node("Multinomial", ["x"], ["classes"], name="noise", sample_size=5),
        helper.make_node("Cast", ["classes"], ["drawn"], to=FLOAT),
    ],
    "Dropout": [helper.make_node("Dropout", ["x", "ratio", "training"], ["drawn"], name="noise")],
}
COMPUTED = [
    helper.make_node("Identity", ["training"], ["computed"]),
    helper.make_node("Dropout", ["x", "", "computed"], ["drawn"], name="noise"),
]


def with_noise(folder, nodes, ratio=0.5, training=True):
    """``x + drawn`` as a file; ``ratio`` and ``training`` are constants that a Dropout reads."""
    stored = [
        numpy_helper.from_array(np.array(value, kind), name)
        for name, value, kind in (("ratio", ratio, np.float32), ("training", training, np.bool_))
    ]
    nodes = [*nodes, helper.make_node("Add", ["x", "drawn"], ["y"])]
    return onnx_models.write(folder, onnx_models.model(nodes, {"x": [2, 5]}, {"y": [2, 5]}, stored), "noisy.onnx")


@pytest.mark.parametrize("kind", DRAWN)
def test_it_is_refused_by_name(tmp_path, kind):
    source = with_noise(tmp_path, DRAWN[kind])
    (tmp_path / "place").mkdir()
    refused(tmp_path / "place", 1, [f"noise ({kind})", "draws random numbers"], source, "--target", "onnxruntime")


def test_a_branch_that_draws(tmp_path):
    drawn = helper.make_node("RandomNormalLike", ["x"], ["then"], name="noise")
    kept = helper.make_node("Identity", ["x"], ["else"])
    bodies = {
        f"{name}_branch": helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, FLOAT, [2, 5])])
        for name, node in (("then", drawn), ("else", kept))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["positive"], to=TensorProto.BOOL),
        helper.make_node("If", ["positive"], ["drawn"], **bodies),
    ]
    source = with_noise(tmp_path, nodes)
    (tmp_path / "place").mkdir()
    refused(tmp_path / "place", 1, ["noise (RandomNormalLike)"], source, "--target", "onnxruntime")


def test_a_function_that_draws(tmp_path):
    source = with_noise(tmp_path, [helper.make_node("Noise", ["x"], ["drawn"], domain="own")])
    model = onnx.load(source)
    model.opset_import.append(helper.make_opsetid("own", 1))
    body = [helper.make_node("RandomUniformLike", ["a"], ["b"], name="noise")]
    model.functions.append(helper.make_function("own", "Noise", ["a"], ["b"], body, [helper.make_opsetid("", 21)]))
    onnx.save(model, source)
    (tmp_path / "place").mkdir()
    refused(tmp_path / "place", 1, ["noise (RandomUniformLike)"], source, "--target", "onnxruntime")


def test_a_dropout_that_may_train(tmp_path):
    source = with_noise(tmp_path, COMPUTED)
    (tmp_path / "place").mkdir()
    refused(tmp_path / "place", 1, ["noise (Dropout)", "may get, training_mode"], source, "--target", "onnxruntime")


@pytest.mark.parametrize("constants", [{"training": False}, {"ratio": 0.0}], ids=str)
def test_a_dropout_that_drops_nothing_draws_nothing(tmp_path, constants):
    source = with_noise(tmp_path, DRAWN["Dropout"], **constants)
    said = here("export", source, "--target", "onnxruntime", "-o", tmp_path / "out")
    assert said.code == 0
    assert "NOT VERIFIED" not in said.out


def test_allowed_it_is_delivered_and_not_called_verified(tmp_path):
    source = with_noise(tmp_path, LIKE)
    said = here("export", source, "--target", "onnxruntime", "--allow-unverified", "-o", tmp_path / "out")
    assert said.code == 0, said.err
    assert "note: NOT VERIFIED (--allow-unverified): noise (RandomNormalLike)" in said.out
    assert "\nrun by    model.onnx" in said.out
    assert "\nverified " not in said.out
    assert "verified       no" in here("inspect", tmp_path / "out").out
    assert "model.onnx" in everything_below(tmp_path / "out")


def test_allowed_once_it_is_refused_again_from_the_cache(tmp_path):
    source, cache = with_noise(tmp_path, LIKE), tmp_path / "cache"
    assert here("export", source, "--allow-unverified", "--cache", cache, "-o", tmp_path / "first").code == 0
    (tmp_path / "place").mkdir()
    refused(tmp_path / "place", 1, ["draws random numbers"], source, "--cache", cache)


def test_allowed_it_is_refused_where_its_draws_differ(tmp_path):
    """Of a Dropout that leaves out its ratio the canonical form has another place, by which ONNX Runtime seeds it."""
    source = with_noise(tmp_path, [helper.make_node("Dropout", ["x", "", "training"], ["drawn"], name="noise")])
    said = here("export", source, "--target", "onnxruntime", "--allow-unverified", "-o", tmp_path / "out")
    assert said.code == 3
    assert "verification failed after canonical-onnx" in said.err
    assert not (tmp_path / "out").exists()


def test_a_look_at_it_tells_the_node(tmp_path):
    said = here("inspect", with_noise(tmp_path, LIKE))
    assert said.code == 0
    assert "note: noise (RandomNormalLike): it draws random numbers" in said.out
