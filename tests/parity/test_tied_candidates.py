"""Detectors whose candidates tie: right ones that break ties otherwise pass, planted faults are all found."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.parity.candidates import choose_among_ties
from convertkit.parity.feeds import proof_inputs
from convertkit.parity.replay import record
from convertkit.twins import Twins
from tests.parity.detectors import FAULTS, RIGHT, Spelling, detector, variants
from tests.parity.test_planted import Compiled, Written, judged_by


def canonical(kind, spelling):
    return canonicalize(ir.from_proto(detector(kind, spelling)))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Each plain detector with what it computes, and one set of twins for all."""
    place, twins, found = tmp_path_factory.mktemp("sources"), Twins(), {}
    for kind in ("best", "classwise", "offsets"):
        artifact = save_model(canonical(kind, Spelling()), place / f"{kind}.onnx", "")
        inputs = proof_inputs(artifact.inputs, None, 0)
        with OnnxRunner(artifact) as runner:
            found[kind] = record("onnx (source)", artifact, runner, inputs.feeds, inputs.edges)
    with twins:
        yield found, twins


def rows(spellings):
    return [
        pytest.param(kind, spellings[what], stage, id=f"{kind}: {what}, {stage.produces}")
        for kind, what in variants(spellings)
        for stage in (Written, Compiled)
    ]


def judged(sources, tmp_path, kind, spelling, stage):
    recordings, twins = sources
    return judged_by(twins, recordings[kind], stage(ir.to_proto(canonical(kind, spelling))), tmp_path)


@pytest.mark.parametrize(("kind", "spelling", "stage"), rows(RIGHT))
def test_another_choice_among_ties_is_no_fault(sources, tmp_path, kind, spelling, stage):
    step = judged(sources, tmp_path, kind, spelling, stage)
    assert step.versus_previous.passed, step.versus_previous.failures
    assert step.versus_source.passed


@pytest.mark.parametrize(("kind", "spelling", "stage"), rows(FAULTS))
def test_a_planted_fault_is_found(sources, tmp_path, kind, spelling, stage):
    step = judged(sources, tmp_path, kind, spelling, stage)
    assert step.versus_previous.failures
    assert step.versus_source.failures


@pytest.mark.parametrize(
    ("places", "allowed"), [([11, 13, 12, 14], True), ([18, 0, 7, 3], True), ([1, 1, 2, 3], False)]
)
def test_scores_of_zero_tie(tmp_path, places, allowed):
    """PyTorch's topk of equal elements takes those from the middle first."""
    body = "<int64[1] k = {4}> { v, i = TopK(x, k) }"
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[2,19] x) => (float[2,4] v, int64[2,4] i)'
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(f"{head} {body}")))
    artifact = save_model(model, tmp_path / "model.onnx", "")
    with Twins() as twins:
        ties = twins.ask(artifact)({"x": np.zeros((2, 19), np.float32)}).ties()
        found = {"v": np.zeros((2, 4), np.float32), "i": np.array([places, [0, 1, 2, 3]])}
        assert choose_among_ties((found,), {"v", "i"}, ties, 1e-5) == allowed
