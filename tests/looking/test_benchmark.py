"""``convertkit bench``: a planted slow-down is found, noise is not called one."""

import json
import time

import jsonschema
import numpy as np
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.errors import SourceError, UsageError
from convertkit.summary import schema
from convertkit.turns import in_turns, interval, ratio
from tests import onnx_models
from tests.command_line import check_refusal, here


def products(place, count):
    """So many matrix products one behind the other."""
    weight = numpy_helper.from_array(np.eye(256, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", [f"v{each}", "w"], [f"v{each + 1}"]) for each in range(count)]
    inputs, outputs = {"v0": [128, 256]}, {f"v{count}": [128, 256]}
    return onnx_models.write(place, onnx_models.model(nodes, inputs, outputs, [weight]), f"{count}.onnx")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("products")
    return {count: products(place, count) for count in (4, 32)}


def test_all_that_is_measured(delivered):
    found = convertkit.bench(delivered["tflite"].path, delivered["onnxruntime"].artifact.path, seconds=0.1, threads=1)
    lite, ort = found.measured
    for each in found.measured:
        assert 0 < each.p50_ms <= each.p90_ms <= each.p99_ms
        assert each.first_ms > 0
        assert each.load_ms > 0
        assert each.memory_bytes is None or each.memory_bytes > 0
        assert each.rounds >= 15
    assert lite.size_bytes == delivered["tflite"].artifact.path.stat().st_size
    assert ort.nodes
    assert not lite.nodes, "LiteRT tells no times by node"
    (beside,) = found.compared
    assert beside.ratio.low <= beside.ratio.median <= beside.ratio.high
    assert beside.allowed is None
    assert found.passed


def test_a_slow_down_beside_the_first_is_found(models):
    found = convertkit.bench(models[4], models[32], seconds=0.3, threads=1, max_ratio=1.5)
    assert not found.passed
    assert found.compared[0].ratio.median > 3, "eight times the products"
    assert "TOO SLOW" in "\n".join(found.lines())
    back = convertkit.bench(models[32], models[4], seconds=0.3, threads=1, max_ratio=1.5)
    assert back.passed


def test_a_slow_down_beside_a_baseline_is_found(models, tmp_path):
    baseline = tmp_path / "baseline.json"
    convertkit.bench(models[4], seconds=0.5, threads=1, save=baseline)
    slow = here("bench", models[32], "--seconds", "0.5", "--threads", "1", "--compare", baseline, "--json")
    told = json.loads(slow.out)
    jsonschema.validate(told, schema(), cls=jsonschema.Draft202012Validator)
    assert (slow.code, told["error"]["kind"]) == (3, "GateError")
    fast = convertkit.bench(models[4], seconds=0.3, threads=1, compare=baseline)
    assert fast.passed, fast.compared
    kept = convertkit.bench(models[4], seconds=0.3, threads=1, compare=told | {"bench": told["bench"]})
    assert kept.passed, "what --json printed is a baseline, too"


@pytest.mark.nightly
def test_noise_alone_never_trips(models, tmp_path):
    baseline = convertkit.bench(models[4], seconds=0.5, threads=1).as_json()
    runs = [convertkit.bench(models[4], seconds=0.2, threads=1, compare=baseline) for _ in range(50)]
    assert all(run.passed for run in runs)


def test_noise_of_numbers_never_trips():
    """Fifty pairs of the same noise, of the kind that a busy machine makes: a long tail of slow calls."""
    for seed in range(50):
        draw = np.random.default_rng(seed)
        ours, theirs = (1 + 0.2 * draw.exponential(size=60) + 5 * (draw.random(60) < 0.05) for _ in range(2))
        assert ratio(ours, theirs).low < 1.1
    slower = ratio(1.5 * ours, theirs)
    assert slower.low > 1.2


def test_an_interval_narrows_and_holds_the_median():
    draw = np.random.default_rng(0)
    few, many = (interval(draw.normal(3.0, 0.5, count)) for count in (20, 2000))
    assert many.high - many.low < few.high - few.low
    assert few.low < 3.0 < few.high
    assert many.low < 3.0 < many.high


def test_turns_are_fair():
    """Each round begins with another, so that neither always follows what the other has left in the caches."""
    seen = []

    def slow(name):
        time.sleep(0.0005)
        seen.append(name)

    times = in_turns({"a": lambda: slow("a"), "b": lambda: slow("b")}, 0.01)
    assert times["a"].size == times["b"].size >= 15
    rounds = seen[4:]  # each is called twice before
    assert [rounds[place] for place in range(0, 8, 2)] == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ((), 2, "Missing argument"),
        (("nowhere.onnx",), 1, "nowhere.onnx"),
        (("MODEL", "MODEL"), 2, "twice"),
        (("MODEL", "--threads", "0"), 2, "at least 1"),
        (("MODEL", "--seconds", "-1"), 2, "more than 0"),
        (("MODEL", "--max-ratio", "0.5"), 2, "at least 1"),
        (("MODEL", "--compare", "nowhere.json"), 1, "not a baseline"),
    ],
)
def test_bad_requests(models, flags, code, words):
    check_refusal(here("bench", *(models[4] if each == "MODEL" else each for each in flags)), code, words)


def test_a_framework_is_not_measured(root):
    with pytest.raises(UsageError, match="ONNX, TFLite and OpenVINO files"):
        convertkit.bench(root / "fixtures" / "digits" / "model.pt")


@pytest.mark.parametrize("content", ["[]", "{}", '{"schema": 2, "measured": []}', '{"schema": 1, "measured": [{}]}'])
def test_what_is_no_baseline(models, tmp_path, content):
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(SourceError, match="baseline"):
        convertkit.bench(models[4], seconds=0.05, compare=tmp_path / "b.json")


def test_a_baseline_of_others(models, tmp_path):
    baseline = convertkit.bench(*models.values(), seconds=0.05, threads=1).as_json()
    with pytest.raises(UsageError, match="knows nothing"):
        convertkit.bench(products(tmp_path, 2), models[4], seconds=0.05, compare=baseline, threads=1)


def test_threads_reach_the_runtime(models):
    from convertkit.artifact import Artifact
    from convertkit.looking.timing import runner_of

    for kind in ("onnxruntime", "tflite"):
        runner = runner_of(Artifact(models[4], kind, (), (), ""), 3)
        assert runner._threads == 3
