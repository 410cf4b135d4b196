"""``--recover``: what a step changed is trained, on data without labels, to answer as the model before it did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from convertkit.quantization.graph.reordered import forget_order, reordered_values
from convertkit.quantization.graph.sizes import sizes
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.pruning.generalization import gap, notes, ways_out
from convertkit.quantization.search.floor import refuse_ruin
from convertkit.quantization.search.quality import Quality
from convertkit.quantization.search.reference import Reference
from convertkit.recipe import ExportOptions
from convertkit.stage import DiagnosedStage, Feed, FeedSource, Stage, Tolerance
from convertkit.state import initial_state
from convertkit.workers.process import Worker

_BATCH = 32
_PASSES = 8
"""A step runs the original forwards, the copy forwards and backwards, each multiply-add being two operations."""
_SPEED = 1.5e10
"""Operations in a second on one core; it is this number that MINUTES are counted by, and not a clock."""
_PER_NODE_S = 4e-4
_NODES_A_TURN = 3
"""What one time step of one direction of a recurrent layer takes, in nodes."""
_LEAST_SAMPLES = 16
_MIXED = 3
"""Mixed samples for each held-out one: these are few, and the original answers whatever it is asked."""
_MARGIN = 0.01
"""The share of the loss on them that training has to gain."""
_ALIKE = 1e-7
"""A loss of errors that are 70 dB below what they are errors of."""


@dataclass(frozen=True, slots=True)
class _Told:
    """Steps taken and planned, and the losses on samples that were held out, the first before any step."""

    steps: int
    planned: int
    losses: tuple[float, ...]

    @property
    def gain(self) -> float:
        """The share of the loss that the best state has gained; 0 where the answers were the original's before."""
        return 1 - min(self.losses) / self.losses[0] if self.losses[0] > _ALIKE else 0.0


@dataclass(slots=True)
class Recovered:
    """A step that changes numerics, and the training behind it; the better one of both results is kept."""

    inner: Stage
    minutes: float
    calibration: FeedSource
    seed: int
    progress: Progress = field(default_factory=Silent)
    judged: ExportOptions | None = None
    """Where the step leaves it to training to keep enough: what decides how much that is."""
    diagnosis: Mapping[str, object] | None = None

    accepts = frozenset({"onnx"})
    produces = "onnx"

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def version(self) -> str:
        return f"{self.inner.version}+9"

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
        more = (*judging, *mixed(judging, self.seed))
        plain, judge = (Reference(original.clone(), feeds, {}) for feeds in (judging, more))
        self.progress.status("training")
        told, trained = self._trained(original, source, made, list(measuring), more)
        model = load_model(made.path)
        _write(model, trained)
        pair = [load_model(made.path), model]
        before, after = (plain.quality(each.clone()) for each in pair)
        gained = told.gain > _MARGIN and keeps_classes(*(judge.quality(each.clone()) for each in pair))
        quality = after if gained else before
        self._tell(told, before, after, gained)
        self._say(gap(original, pair[gained], list(measuring), quality, {}))
        if self.judged is not None:
            refuse_ruin(quality, self.judged)
        kept = model if gained else load_model(made.path)
        if not gained and not reordered_values(kept.graph):
            return made
        forget_order(kept.graph)
        return save_model(kept, workdir / "recovered.onnx", f"{self.name} {self.version}", source.initial_state)

    def _trained(
        self, original: ir.Model, source: Artifact, made: Artifact, samples: Sequence[Feed], judging: Sequence[Feed]
    ) -> tuple[_Told, Mapping[str, Array]]:
        arrays = {**_stacked("train", samples), **_stacked("held", judging)}
        steps = _steps(original, self.minutes)
        params = {
            "teacher": str(source.path), "student": str(made.path), "steps": steps, "seed": self.seed,
        }  # fmt: skip
        one = {"OMP_NUM_THREADS": "1"}  # idle ones would wait by spinning
        with Worker("convertkit.quantization.recovery.service:Recovery", framework="torch", env=one) as worker:
            reply = worker.call("train", params, arrays)
        return _Told(reply.value["steps"], steps, tuple(reply.value["losses"])), reply.arrays

    def _tell(self, told: _Told, before: Quality, after: Quality, gained: bool) -> None:
        inner = (self.inner.diagnosis if isinstance(self.inner, DiagnosedStage) else None) or {}
        kept = after if gained else before
        said = inner.get("notes", ())
        note = (
            f"training took {told.steps} steps: from {before.told()} to {after.told()}"
            if gained
            else f"training gained nothing and was undone: {before.told()}, and {after.told()} after it"
        )
        assert isinstance(said, list | tuple)
        recovered = {**asdict(told), "before": held_out(before), "after": held_out(after), "kept": gained}
        self.diagnosis = {**inner, "held_out": held_out(kept), "recovered": recovered, "notes": [*said, note]}

    def _say(self, apart: str | None) -> None:
        """Add what fitted and held-out samples keep, where these are far apart."""
        assert self.diagnosis is not None
        said = self.diagnosis["notes"]
        assert isinstance(said, list)
        self.diagnosis = {**self.diagnosis, "notes": [*said, *notes(apart)], "ways_out": ways_out(apart)}


def mixed(feeds: Sequence[Feed], seed: int) -> tuple[Feed, ...]:
    """Pairs of samples mixed, :data:`_MIXED` for each; none where they hold integers or differ in shape."""
    random = np.random.default_rng(seed)
    shapes = {tuple((name, array.shape) for name, array in feed.items()) for feed in feeds}
    if len(shapes) > 1 or any(array.dtype.kind != "f" for array in feeds[0].values()):
        return ()
    made = []
    for first in tuple(feeds) * _MIXED:
        other, share = feeds[int(random.integers(len(feeds)))], random.uniform(0.2, 0.8)
        made.append({name: (share * x + (1 - share) * other[name]).astype(x.dtype) for name, x in first.items()})
    return tuple(made)


def keeps_classes(before: Quality, after: Quality) -> bool:
    """Whether no more samples than chance explains prefer another class than the original now, and did not before.

    Samples that either of both models answers otherwise are the ones that tell (McNemar's test, one standard error).
    """
    if before.agreement is None or after.agreement is None:
        return after.before_db >= before.before_db
    lost = (before.agreement - after.agreement) * after.samples
    telling = (2 - before.agreement - after.agreement) * after.samples
    return lost <= math.sqrt(telling)


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
