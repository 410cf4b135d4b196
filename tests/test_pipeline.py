"""The pipeline proves every stage, whoever wrote it, and no stage can forget or weaken that.

Faults are injected where real ones happen: a handler that computes something else, a scale that is
off, channels in another order, names that change, promises that are not kept.
"""

import dataclasses
import threading
import time

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.artifact import Artifact
from convertkit.errors import NotProven, ParityError, ToolError
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.onnx.specs import interface
from convertkit.stage import FLOAT32, LOSSY, Tolerance
from tests.chains import run

RNG = np.random.default_rng(5)


def network(weight):
    """Conv over three channels, ReLU, mean: small, asymmetric, and every channel matters."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["y"], name="mean"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 5, 7])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 1, 1])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


WEIGHT = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)


@pytest.fixture
def source(tmp_path):
    return save_model(ir.from_proto(network(WEIGHT)), tmp_path / "source.onnx", "")


class Stage:
    """A third-party stage: rewrites the weights by a function and says nothing else."""

    version = "1"
    accepts = frozenset({"onnx"})
    produces = "onnx"

    def __init__(self, change, tolerance=FLOAT32, name="third-party"):
        self.name, self.tolerance, self._change = name, tolerance, change
        self.options = {}

    def run(self, source, workdir):
        model = load_model(source.path)
        weight = model.graph.initializers["w"]
        weight.const_value = ir.tensor(self._change(weight.const_value.numpy()).astype(np.float32), name="w")
        return save_model(model, workdir / "out.onnx", self.name)


def test_an_honest_stage_passes_and_is_measured(source):
    ran = run(source, Stage(lambda weight: weight))
    assert ran.failure is None
    (step,) = ran.steps
    assert step.passed
    assert step.versus_source.feeds == 6
    assert step.peak_rss_bytes > 0


@pytest.mark.parametrize(
    "fault",
    [
        lambda weight: weight * 1.001,
        lambda weight: weight[:, ::-1],
        lambda weight: np.flip(weight, (2, 3)),
        lambda weight: weight + 1e-3,
        lambda weight: np.where(weight == weight.max(), 0, weight),
    ],
    ids=["wrong scale", "channels swapped", "kernel flipped", "offset", "one weight lost"],
)
def test_a_wrong_stage_is_caught_with_step_tensor_and_numbers(source, fault):
    ran = run(source, Stage(lambda weight: weight, name="good"), Stage(fault, name="bad"))
    assert isinstance(ran.failure, ParityError)
    assert ran.failure.exit_code == 3
    message = str(ran.failure)
    assert all(part in message for part in ("after bad", '"y"', "max_abs", "allowed"))
    assert [step.passed for step in ran.steps] == [True, False]


def test_small_departures_do_not_add_up_unseen(source):
    drift = [Stage(lambda weight: weight * (1 + 9e-6), name=f"drift-{index}") for index in range(3)]
    ran = run(source, *drift)
    assert ran.failure is None
    assert ran.steps[-1].versus_source.tolerance.relative == pytest.approx(3e-5)
    last = Stage(lambda weight: weight * (1 + 9e-6), dataclasses.replace(FLOAT32, relative=0.0), name="exact")
    assert run(source, last, workdir=source.path.parent / "second").failure is not None


def test_after_a_lossy_step_the_source_is_held_by_its_tolerance(source):
    rounded = Stage(lambda weight: np.round(weight * 16) / 16, LOSSY, name="quantize")
    ran = run(source, rounded, Stage(lambda weight: weight, name="lower"))
    assert ran.failure is None
    assert ran.steps[1].versus_previous.tolerance is FLOAT32
    assert ran.steps[1].versus_source.tolerance.lossy
    broken = run(source, Stage(np.negative, LOSSY, name="quantize"), workdir=source.path.parent / "second")
    assert "allowed at least 3 dB" in str(broken.failure)


def test_a_lowering_may_add_less_noise_than_the_quantization_made(source):
    def noise(level):
        return lambda weight: weight + level * np.random.default_rng(1).standard_normal(weight.shape)

    kernels = dataclasses.replace(FLOAT32, relative=None, snr_db=20.0)
    rough = Stage(noise(0.3), LOSSY, name="quantize")
    ran = run(source, rough, Stage(noise(0.2), kernels, name="lower"))
    assert ran.failure is None
    bound = ran.steps[1].versus_previous.tolerance.snr_db
    assert bound == pytest.approx(ran.steps[0].versus_source.diffs[0].snr_db)
    assert bound < 20
    worse = Stage(noise(1.0), kernels, name="lower")
    assert run(source, rough, worse, workdir=source.path.parent / "second").failure is not None
    fine = Stage(noise(1e-3), LOSSY, name="quantize")
    still = Stage(noise(0.28), kernels, name="lower")
    assert run(source, fine, still, workdir=source.path.parent / "third").failure is not None


def test_a_gate_judges_lossy_steps_only(source):
    noise = Stage(lambda weight: RNG.standard_normal(weight.shape), LOSSY, name="quantize")
    assert run(source, noise, gated=True).failure is None
    wrong = Stage(lambda weight: weight[:, ::-1], name="lower")
    assert run(source, noise, wrong, gated=True, workdir=source.path.parent / "second").failure is not None


def test_outputs_that_prove_nothing_are_not_passed(tmp_path):
    dead = save_model(ir.from_proto(network(np.float32(1e-34) * WEIGHT)), tmp_path / "dead.onnx", "")
    ran = run(dead, Stage(lambda weight: weight))
    assert isinstance(ran.failure, NotProven)
    assert "all but zero" in str(ran.failure)


@pytest.mark.parametrize(
    ("tolerance", "says"),
    [
        (Tolerance("about right", relative=0.1), "relative 0.1; at most 0.015625"),
        (Tolerance("about right", relative=float("nan")), "relative nan"),
        (Tolerance("noise", snr_db=10.0), "an SNR of 10 dB; at least 15 dB"),
        (Tolerance("noise", snr_db=1.0, lossy=True), "an SNR of 1 dB; at least 3 dB"),
        (Tolerance("integers", lsb=4.0, snr_db=20.0), "4 LSB; at most 3"),
        (Tolerance("integers", lsb=1.0, lsb_share=0.5), "0.5 of the elements within 1 LSB"),
        (Tolerance("whatever", lossy=True), "no bound at all"),
    ],
)
def test_no_stage_lowers_the_bar_by_itself(source, tolerance, says):
    with pytest.raises(ToolError, match=f"third-party asks for a tolerance that no stage may have: {says}"):
        run(source, Stage(lambda weight: weight, tolerance))


class Renaming(Stage):
    def run(self, source, workdir):
        model = load_model(source.path)
        model.graph.outputs[0].name = "z"
        return save_model(model, workdir / "out.onnx", self.name)


class Lying(Stage):
    def run(self, source, workdir):
        return dataclasses.replace(super().run(source, workdir), sha256="0" * 64)


class Elsewhere(Stage):
    def run(self, source, workdir):
        return dataclasses.replace(super().run(source, workdir), format="tflite")


class Unrunnable(Stage):
    def run(self, source, workdir):
        model = load_model(source.path)
        inputs, outputs = interface(model)
        path = workdir / "out.onnx"
        path.write_bytes(b"\x08\x08 no model")
        import hashlib

        return Artifact(path, "onnx", inputs, outputs, hashlib.sha256(path.read_bytes()).hexdigest(), "x")


@pytest.mark.parametrize(
    ("stage", "error", "says"),
    [
        (Renaming, ParityError, "names and order must stay"),
        (Lying, ToolError, "sha256"),
        (Elsewhere, ToolError, "promised onnx and made tflite"),
        (Unrunnable, ToolError, "does not run"),
    ],
)
def test_broken_promises_end_the_road(source, stage, error, says):
    with pytest.raises(error, match=says):
        run(source, stage(lambda weight: weight))


def test_a_silently_specialised_batch_is_found(source):
    class Specialising(Stage):
        def run(self, source, workdir):
            model = load_model(source.path)
            for value in (*model.graph.inputs, *model.graph.outputs):
                value.shape = ir.Shape([1, *value.shape[1:]])
            return save_model(model, workdir / "out.onnx", self.name)

    with pytest.raises(ToolError, match="does not run"):
        run(source, Specialising(lambda weight: weight))


class Slow(Stage):
    """Says when it runs, and waits for a step to be told before it ends."""

    def __init__(self, *arguments, story, begun, told, **options):
        super().__init__(*arguments, **options)
        self._story, self._begun, self._told = story, begun, told

    def run(self, source, workdir):
        self._story.append(f"{self.name} begins")
        self._begun.set()
        assert self._told.wait(20), "the step before it is told while it runs"
        return super().run(source, workdir)


def test_the_next_lossless_stage_runs_while_a_step_is_proven(source):
    begun, told, story = threading.Event(), threading.Event(), []

    def on_step(step):
        assert begun.wait(20), "the stage after it runs before it is told"
        story.append(f"{step.stage} is proven")
        told.set()

    first = Stage(lambda weight: weight, name="first")
    second = Slow(lambda weight: weight, name="second", story=story, begun=begun, told=told)
    ran = run(source, first, second, on_step=on_step)
    assert story == ["second begins", "first is proven", "second is proven"]
    assert [step.passed for step in ran.steps] == [True, True]


def test_working_ahead_changes_nothing_in_what_is_found(source):
    def stages():
        drift = [Stage(lambda weight: weight * (1 + 4e-6), name=f"drift-{index}") for index in range(2)]
        rounded = Stage(lambda weight: np.round(weight * 64) / 64, LOSSY, name="quantize")
        return [*drift, rounded, Stage(lambda weight: weight * (1 + 4e-6), name="lower")]

    one, other = (
        run(source, *stages(), workdir=source.path.parent / name, jobs=2 if name == "b" else 1) for name in ("a", "b")
    )
    assert [step.stage for step in one.steps] == [step.stage for step in other.steps]
    for before, after in zip(one.steps, other.steps, strict=True):
        assert before.artifact.sha256 == after.artifact.sha256
        assert (before.versus_previous, before.versus_source) == (after.versus_previous, after.versus_source)


class Broken(Stage):
    def run(self, source, workdir):
        raise ToolError(f"{self.name} is broken")


@pytest.mark.parametrize("following", [Stage, Broken])
def test_what_was_made_ahead_of_a_failed_proof_counts_for_nothing(source, following):
    told = []
    wrong = Stage(lambda weight: weight * 1.01, name="wrong")
    ran = run(source, wrong, following(lambda weight: weight, name="next"), on_step=told.append)
    assert "verification failed after wrong" in str(ran.failure)
    assert [step.stage for step in ran.steps] == [step.stage for step in told] == ["wrong"]
    assert ran.artifact.made_by == "wrong"


class Advising(Stage):
    def run(self, source, workdir):
        self.diagnosis = {"ways_out": ["--calib with more samples"]}
        return super().run(source, workdir)


def test_a_refusal_tells_what_the_stage_itself_advises(source):
    ran = run(source, Advising(lambda weight: weight * 1.01, name="wrong"))
    first, *others = str(ran.failure).splitlines()
    assert first.startswith("verification failed after wrong")
    assert others == ["  try   --calib with more samples"]


def test_a_stage_that_fails_ahead_fails_after_the_step_before_it_was_told(source):
    told = []
    with pytest.raises(ToolError, match="second is broken"):
        run(
            source,
            Stage(lambda weight: weight, name="first"),
            Broken(lambda weight: weight, name="second"),
            on_step=told.append,
        )
    assert [step.stage for step in told] == ["first"]


@pytest.mark.parametrize("reason", ["lossy", "large"])
def test_what_takes_long_or_much_memory_waits_for_the_proof(source, reason):
    begun = []

    class Noted(Stage):
        def run(self, source, workdir):
            begun.append(self.name)
            return super().run(source, workdir)

    tolerance = LOSSY if reason == "lossy" else FLOAT32
    later = Noted(lambda weight: weight, tolerance, name="later")
    ran = run(source, Stage(lambda weight: weight * 1.01, name="wrong"), later, patient=reason == "large")
    assert ran.failure is not None
    assert begun == []


def test_an_interrupt_waits_for_what_was_begun(source):
    ended = []

    class Ending(Stage):
        def run(self, source, workdir):
            time.sleep(0.3)
            ended.append(super().run(source, workdir))
            return ended[0]

    def interrupt(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(source, Stage(lambda weight: weight), Ending(lambda weight: weight, name="b"), on_step=interrupt)
    assert ended, "nothing writes into a folder that is being removed"


def test_a_step_that_gives_the_sources_results_again_is_not_held_to_those_of_the_step_before(source):
    loose = dataclasses.replace(FLOAT32, relative=None, snr_db=10.0, lossy=True)
    off = Stage(lambda weight: weight * 1.01, loose, name="off")
    ran = run(source, off, Stage(lambda weight: weight / 1.01, name="back"))
    assert ran.failure is None
    assert "gives the results of onnx (source)" in ran.steps[-1].versus_previous.warnings[0]
    other = run(source, off, Stage(lambda weight: weight * 1.01, name="further"), workdir=source.path.parent / "second")
    assert other.failure is not None
