"""Planted faults are all found, and the same mathematics in another order is never called a fault.

Each variant of a small model takes the place of what a stage makes: once as ONNX, once compiled to TFLite.
"""

import onnx_ir as ir
import pytest

from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.parity.feeds import proof_inputs
from convertkit.parity.replay import record
from convertkit.recipe import ExportOptions
from convertkit.records import Bound
from convertkit.stage import FLOAT32
from convertkit.steps.comparing import verified
from convertkit.steps.judgement import Judgement
from convertkit.steps.make import made
from convertkit.steps.recording import recorded
from convertkit.targets.tflite.stage import CompileTflite
from convertkit.twins import Twins
from tests.parity.variants import FAULTS, HARMLESS, MODELS, model, variants


class Written:
    """A stage that makes a given model of every source."""

    name, version, options = "written", "1", {}
    accepts = frozenset({"onnx"})
    produces, tolerance = "onnx", FLOAT32

    def __init__(self, proto):
        self._proto = proto

    def run(self, source, workdir):
        return save_model(ir.from_proto(self._proto), workdir / "written.onnx", "written 1")


class Compiled(Written):
    """A stage that compiles a given model for TFLite, whatever the source is."""

    name = "tflite"
    produces = "tflite"

    def run(self, source, workdir):
        stage = CompileTflite(ExportOptions("x", ("tflite",)))
        made = stage.run(super().run(source, workdir), workdir)
        assert stage.tolerance == FLOAT32
        return made


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Each plain model with what it computes, and one set of twins for all."""
    place, twins, found = tmp_path_factory.mktemp("sources"), Twins(), {}
    for name in MODELS:
        artifact = save_model(ir.from_proto(model(name)[0]), place / f"{name}.onnx", "")
        inputs = proof_inputs(artifact.inputs, None, 0)
        with OnnxRunner(artifact) as runner:
            found[name] = record("onnx (source)", artifact, runner, inputs.feeds, inputs.edges)
    with twins:
        yield found, twins


def judged(sources, tmp_path, name, place, spelled, stage):
    recordings, twins = sources
    return judged_by(twins, recordings[name], stage(model(name, place, spelled)[0]), tmp_path)


def judged_by(twins, source, stage, folder):
    """The step that a stage makes of the source of a recording."""
    step = made(stage, source.artifact, folder)
    current = recorded(step.stage, step.artifact, source)
    return verified(step, Bound(), (source, source, current), Judgement(), twins.ask).step


def rows(kinds):
    """Every variant for both stages; TFLite has no float64."""
    return [
        pytest.param(name, place, spelled, stage, id=f"{name}: {what}, {stage.produces}")
        for name, what, place, spelled in variants(kinds)
        for stage in (Written, Compiled)
        if stage is Written or "float64" not in what
    ]


FAULTY, SAME = rows(FAULTS), rows(HARMLESS)


@pytest.mark.parametrize(("name", "place", "spelled", "stage"), FAULTY)
def test_a_planted_fault_is_found(sources, tmp_path, name, place, spelled, stage):
    step = judged(sources, tmp_path, name, place, spelled, stage)
    assert step.versus_previous.failures
    assert step.versus_source.failures


@pytest.mark.parametrize(("name", "place", "spelled", "stage"), SAME)
def test_another_order_is_no_fault(sources, tmp_path, name, place, spelled, stage):
    step = judged(sources, tmp_path, name, place, spelled, stage)
    assert not step.versus_previous.failures
    assert not step.versus_source.failures


def test_there_are_many_of_both():
    assert len(FAULTY) >= 200
    assert len(SAME) >= 200
    assert len(MODELS) >= 10
