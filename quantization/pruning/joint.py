"""Weights of all layers fitted together: the pruned model learns what the original answers, without labels.

Layers that were fitted one by one make up for their own errors; here what stays of all of them, and their biases,
makes up for what is left at the outputs and on the way.  Zeros stay.  At first half of every batch are samples mixed in
pairs, and to the other half is added what samples differ by; where that gains nothing, samples are taken as they are.
Held-out samples decide which state is kept.
Sources: distillation, arXiv:1503.02531; mixed samples, arXiv:1710.09412; Adam, arXiv:1412.6980.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.progress import Progress
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.pruning.student import ALL, Arrays, Kept, Student, Teacher
from convertkit.quantization.pruning.variation import Variation, variation
from convertkit.quantization.pruning.whitened import Whitened
from convertkit.quantization.search.influence import alike, read_values
from convertkit.quantization.weights.blas import one_thread
from convertkit.stage import Feed

_BUDGET = 8e10
"""Multiply-adds of all steps together with the usual number of samples; no clock decides."""
_PASSES = 8
"""What one sample of a step costs, in runs of the model."""
_BATCH = 32
_STEPS = (16, 160)
"""Fewer gain nothing, and more hardly anything."""
_LEAST_SAMPLES = 24
_USUAL_SAMPLES = 150
_MOST_TIMES = 3.0
"""More samples than the usual ones give more steps, up to so many times as many: each is seen as often."""
_MIXED = _BATCH // 2
_RATE = 0.02
"""Of one step, relative to the weights in their coordinates, where nothing is left of the answers."""
_MOMENTUM, _VARIANCE = 0.9, 0.99
_EVERY = 10
_HOPELESS = 0.5
"""A round that has gained nothing after this share of its steps is ended."""
_GAIN = 0.1
"""Held-out samples are few: less of a gain than this share of the loss says nothing."""
_SIZED_BY_DATA = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression", "If", "Loop", "SequenceAt"})
_POSITIONS = 64
"""Of each sample's inputs of a layer, for their moments."""


@dataclass(frozen=True, slots=True)
class JointFit:
    """The original model, and the samples that pruned copies of it are fitted on and judged by."""

    original: ir.Model
    feeds: Sequence[Feed]
    held_out: Sequence[Feed]
    state: Mapping[str, Array]
    seed: int
    progress: Progress

    @property
    def steps(self) -> int:
        """How many steps are affordable; 0 where a copy stays as it is.

        That is: models with state, too few samples, samples of different shapes, values whose size depends on the data,
        and models that are too large.
        """
        work = sum(map(multiply_adds, self.original.graph))
        steps = min(int(_BUDGET / max(_PASSES * _BATCH * work, 1.0)), _STEPS[1])
        few = steps < _STEPS[0] or len(self.feeds) < _LEAST_SAMPLES
        if self.state or few or not read_values(self.original):
            return 0
        if any(node.op_type in _SIZED_BY_DATA for node in self.original.graph):
            return 0
        if not alike(self.original, [*self.feeds, *self.held_out]):
            return 0
        return int(steps * min(max(len(self.feeds) / _USUAL_SAMPLES, 1.0), _MOST_TIMES))

    def run(self, pruned: ir.Model, kept: Kept = ALL, share: float = 1.0) -> bool:
        """Fit the weights of ``pruned`` in place; whether held-out samples are answered better than before.

        ``kept`` are the channels that values of ``pruned`` have, where they have fewer than those of the original;
        ``share`` is that of the affordable steps.
        """
        steps = max(math.ceil(share * self.steps), min(self.steps, _STEPS[0]))
        if not steps:
            return False
        teacher = Teacher(self.original, self.held_out, kept)
        student = Student(pruned, teacher.targets, self.feeds)
        if not student.trained:
            return False
        with one_thread():
            fit = _Fit(teacher, student, self.feeds, self.held_out, self.seed)
            gained = any(fit.round(plain, steps, self.progress) for plain in (False, True))
        if gained:
            student.write()
        return gained


def fit_jointly(
    original: ir.Model,
    pruned: ir.Model,
    feeds: Sequence[Feed],
    held_out: Sequence[Feed],
    state: Mapping[str, Array],
    seed: int,
    progress: Progress,
    kept: Kept = ALL,
) -> bool:
    """:meth:`JointFit.run` once."""
    return JointFit(original, feeds, held_out, state, seed, progress).run(pruned, kept)


class _Fit:
    """The training: whitened weights, and the state that answered held-out samples best."""

    def __init__(
        self, teacher: Teacher, student: Student, feeds: Sequence[Feed], held_out: Sequence[Feed], seed: int
    ) -> None:
        self._teacher, self._student, self._feeds, self._held_out = teacher, student, feeds, held_out
        self._random = np.random.default_rng(seed)
        self._variations = _variations(feeds)
        if not self._answered(feeds):
            self._variations = {}
        self._wanted = teacher.answers(held_out)
        self._best = student.loss(held_out, self._wanted)
        self._rate = _RATE * min(1.0, math.sqrt(self._best))  # what is nearly right needs small steps
        self._whitened = [
            Whitened(trained, student.arrays, trained.product.columns(read, _POSITIONS * len(feeds), self._random))
            for trained, read in zip(student.trained, student.inputs(feeds, teacher.answers(feeds)), strict=True)
        ]

    def round(self, plain: bool, steps: int, progress: Progress) -> bool:
        """Train for so many steps and keep the best state; whether it is a new one."""
        student, first = self._student, self._best
        start = kept = dict(student.arrays)
        weights = [each.weights for each in self._whitened]
        means = [np.zeros_like(each) for each in weights]
        squares = [np.zeros_like(each) for each in weights]
        for step in progress.track(range(steps), steps, "fitting all layers together"):
            gradients = self._gradients(plain)
            rate = self._rate * _schedule(step / steps)
            for place, each in enumerate(self._whitened):
                gradient = each.gradient(gradients)
                means[place] = _MOMENTUM * means[place] + (1 - _MOMENTUM) * gradient
                squares[place] = _VARIANCE * squares[place] + (1 - _VARIANCE) * np.square(gradient)
                mean = means[place] / (1 - _MOMENTUM ** (step + 1))
                size = np.sqrt(squares[place] / (1 - _VARIANCE ** (step + 1)))
                weights[place] = each.moved(weights[place], rate * each.size * mean / (size + 1e-12))
                each.store(weights[place], student.arrays)
            if (step + 1) % _EVERY and step + 1 < steps:
                continue
            loss = student.loss(self._held_out, self._wanted)
            if loss < self._best:
                self._best, kept = loss, dict(student.arrays)
            if not math.isfinite(loss) or (self._best == first and step + 1 >= _HOPELESS * steps):
                break
        gained = self._best < first * (1 - _GAIN)
        student.arrays.update(kept if gained else start)
        self._best = self._best if gained else first
        return gained

    def _gradients(self, plain: bool) -> Arrays:
        batch = self._batch(plain)
        return self._student.gradients(batch, self._teacher.answers(batch))

    def _batch(self, plain: bool) -> list[Feed]:
        random, count = self._random, len(self._feeds)
        chosen, partners = random.integers(0, count, (2, _BATCH))
        shares = random.random(_BATCH)
        batch = [self._feeds[place] for place in chosen]
        if plain or any(array.dtype.kind != "f" for array in batch[0].values()):
            return batch
        for place in range(_MIXED):
            other, share = self._feeds[partners[place]], shares[place]
            batch[place] = {
                name: (share * array + (1 - share) * other[name]).astype(array.dtype)
                for name, array in batch[place].items()
            }
        return [*batch[:_MIXED], *self._varied(batch[_MIXED:])]

    def _varied(self, batch: Sequence[Feed]) -> list[Feed]:
        """Each with another sum of deviations, from nothing to as much as samples differ; inputs together."""
        if not self._variations:
            return list(batch)
        count, size = len(next(iter(self._variations.values())).deviations), len(batch)
        weights = self._random.standard_normal((size, count), np.float32) * self._random.random((size, 1), np.float32)
        made = {
            name: change(np.stack([feed[name] for feed in batch]), weights) for name, change in self._variations.items()
        }
        return [{name: made[name][place] for name in batch[place]} for place in range(size)]

    def _answered(self, feeds: Sequence[Feed]) -> bool:
        """Whether the original has finite answers to ``feeds`` with deviations added, as a logarithm may not."""
        answers = self._teacher.answers(self._varied(feeds))
        return all(bool(np.isfinite(array).all()) for answer in answers for array in answer.values())


def _variations(feeds: Sequence[Feed]) -> dict[str, Variation]:
    if any(array.dtype.kind != "f" for array in feeds[0].values()):
        return {}
    return {name: variation(np.stack([feed[name] for feed in feeds])) for name in feeds[0]}


def _schedule(done: float) -> float:
    """Warm up over a twentieth, then half a cosine."""
    return min(1.0, done * 20 + 0.05) * 0.5 * (1 + math.cos(math.pi * done))
