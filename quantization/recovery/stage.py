"""``--recover``: what a step changed is trained, on data without labels, to answer as the model before it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.profile import RECURRENT
from convertkit.progress import Progress, Silent
from convertkit.quantization.calibrate.split import split
from convertkit.quantization.effect import held_out
from convertkit.quantization.graph.sizes import sizes
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.search.quality import Quality
from convertkit.quantization.search.reference import Reference
from convertkit.stage import DiagnosedStage, Feed, FeedSource, Stage, Tolerance
from convertkit.state import initial_state
from convertkit.workers.process import Worker

_BATCH = 32
_PASSES = 8
"""A step runs the original forwards, the copy forwards and backwards, each multiply-add being two operations."""
_SPEED = 6e9
"""Operations in a second on one core; it is this number that MINUTES are counted by, and not a clock."""
_PER_NODE_S = 4e-4
_NODES_A_TURN = 3
"""What one time step of one direction of a recurrent layer takes, in nodes."""
_LEAST_SAMPLES = 16


@dataclass(slots=True)
class Recovered:
    """A step that changes numerics, and the training behind it; the better one of both results is kept."""

    inner: Stage
    minutes: float
    calibration: FeedSource
    seed: int
    progress: Progress = field(default_factory=Silent)
    diagnosis: Mapping[str, object] | None = None

    accepts = frozenset({"onnx"})
    produces = "onnx"

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def version(self) -> str:
        return f"{self.inner.version}+2"

    @property
    def tolerance(self) -> Tolerance:
        return self.inner.tolerance

    @property
    def options(self) -> Mapping[str, object]:
        return {**self.inner.options, "recover": self.minutes, "calibration": self.calibration.sha256}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Run the step, then train; ``diagnosis`` is the step's, with what was gained."""
        if initial_state(source):
            raise Unsupported("--recover trains samples one by one, and this model carries a state between calls")
        measuring, judging = split(self.calibration)
        if len(measuring) < _LEAST_SAMPLES:
            raise Unsupported(
                f"--recover has {len(measuring)} samples to train on and needs {_LEAST_SAMPLES}",
                ways_out=("--calib with more samples",),
            )
        made = self.inner.run(source, workdir)
        original = load_model(source.path)
        reference = Reference(original.clone(), judging, {})
        before = reference.quality(load_model(made.path))
        self.progress.status("training")
        told, trained = self._trained(original, source, made, list(measuring), judging)
        model = load_model(made.path)
        _write(model, trained)
        after = reference.quality(model.clone())
        gained = _worth(after) > _worth(before)
        self._tell(told, before, after, gained)
        if not gained:
            return made
        return save_model(model, workdir / "recovered.onnx", f"{self.name} {self.version}", source.initial_state)

    def _trained(
        self, original: ir.Model, source: Artifact, made: Artifact, samples: Sequence[Feed], judging: Sequence[Feed]
    ) -> tuple[Mapping[str, object], Mapping[str, Array]]:
        arrays = {**_stacked("train", samples), **_stacked("held", judging)}
        steps = _steps(original, self.minutes)
        params = {
            "teacher": str(source.path), "student": str(made.path), "steps": steps, "seed": self.seed,
        }  # fmt: skip
        one = {"OMP_NUM_THREADS": "1"}  # idle ones would wait by spinning
        with Worker("convertkit.quantization.recovery.service:Recovery", framework="torch", env=one) as worker:
            reply = worker.call("train", params, arrays)
        return {**reply.value, "planned": steps}, reply.arrays

    def _tell(self, told: Mapping[str, object], before: Quality, after: Quality, gained: bool) -> None:
        inner = (self.inner.diagnosis if isinstance(self.inner, DiagnosedStage) else None) or {}
        kept = after if gained else before
        notes = inner.get("notes", ())
        note = (
            f"training took {told['steps']} steps: from {before.told()} to {after.told()}"
            if gained
            else f"training gained nothing and was undone: {before.told()}, and {after.told()} after it"
        )
        assert isinstance(notes, list | tuple)
        recovered = {**told, "before": held_out(before), "after": held_out(after), "kept": gained}
        self.diagnosis = {**inner, "held_out": held_out(kept), "recovered": recovered, "notes": [*notes, note]}


def _worth(quality: Quality) -> tuple[float, float]:
    """What is compared: points of top-1 where there are classes, to a tenth, then SNR."""
    return (-round(quality.drop or 0.0, 1), min(quality.snr_db, quality.before_db))


def _steps(model: ir.Model, minutes: float) -> int:
    """How many steps are counted for so many minutes; no clock decides."""
    work = sum(map(multiply_adds, model.graph))
    each = _PASSES * work * _BATCH / _SPEED + _PER_NODE_S * sum(map(_nodes, model.graph))
    return max(1, int(60 * minutes / each))


def _nodes(node: ir.Node) -> int:
    """How many nodes' time it takes to call what computes this one."""
    if node.domain or node.op_type not in RECURRENT:
        return 1
    data, weight = node.inputs[:2]
    assert data is not None
    assert weight is not None
    return _NODES_A_TURN * (*sizes(data), 1)[0] * (*sizes(weight), 1)[0]


def _stacked(part: str, feeds: Sequence[Feed]) -> dict[str, Array]:
    shapes = {name: {array.shape for array in (feed[name] for feed in feeds)} for name in feeds[0]}
    for name, found in shapes.items():
        if len(found) > 1:
            raise Unsupported(f"--recover trains many samples at once, and those of {name} differ in shape")
    return {f"{part}:{name}": np.stack([feed[name] for feed in feeds]) for name in feeds[0]}


def _write(model: ir.Model, trained: Mapping[str, Array]) -> None:
    for name, array in trained.items():
        value = model.graph.initializers[name]
        old = value.const_value
        assert old is not None
        value.const_value = ir.Tensor(array.astype(old.numpy().dtype), dtype=old.dtype, name=name)
