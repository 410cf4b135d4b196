"""The training itself: a changed network learns what the original answers, on samples without labels.

What is learnt are the outputs, in front of a softmax as well as behind it, and values on the way that both graphs have.
Samples that are held out, as they are and mixed in pairs, decide which state is kept, by their outputs alone.
Sources: distillation, arXiv:1503.02531; straight-through gradients, arXiv:1308.3432.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from convertkit.quantization.graph.reordered import Before, reordered_values
from convertkit.quantization.graph.units import is_float
from convertkit.quantization.recovery.batches import BATCH, Batches
from convertkit.quantization.recovery.network import Network
from convertkit.quantization.recovery.optimizer import Optimizer
from convertkit.quantization.recovery.shifts import shifts, steady

_INNER = 8
"""Values on the way that are compared."""
_INNER_WEIGHT = 0.05
"""They lead the way; more would hold weights that are few to what the outputs do not need."""
_BOLDNESS = (1.0, 4.0)
"""Where samples tell all that there is to learn, longer steps go farther; of few samples they learn what is chance."""
_EVALUATIONS = 20
"""Of every training: those that are tried, and the one that goes on."""
_TRIAL = 0.1
"""The share of all steps that each length is tried for …"""
_LEAST_TRIAL = 25
"""… which fewer steps would not tell."""
_LOST = 10.0
"""Training ends where the loss is that many times the first one, or what an answer of nothing has."""
_AVERAGED = 0.97
"""What is judged and kept are weights averaged over about 1 / (1 - this) steps."""
_JUDGING = 0.25
"""Evaluations cost at most this share of what training does."""
_TRIED = 256
"""Samples that something is added to, to see whether the original answers them."""
_PASSES = 8
"""What a sample of a step costs, where an evaluation's costs 2: both in operations for a multiply-add."""


@dataclass(frozen=True, slots=True)
class Target:
    """A value that is learnt; ``classes`` where a softmax follows and the sample has one vector."""

    name: str
    weight: float
    classes: bool = False


@dataclass(frozen=True, slots=True)
class Trained:
    """How it went: the steps taken, and the loss on held-out samples at every evaluation, the first before any step.

    Those of the trainings that are tried come first.
    """

    steps: int
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Teacher:
    """What a network answers, with channels in the order and by the names that the student has."""

    network: Network
    before: Mapping[str, Before]

    def __call__(self, samples: Mapping[str, Tensor], names: Sequence[str]) -> list[Tensor]:
        """The values that the student calls so, (samples, …)."""
        known = [self.before.get(name) for name in names]
        own = [name if each is None else each.name for name, each in zip(names, known, strict=True)]
        return [
            value if each is None else value.index_select(each.axis + 1, torch.tensor(each.entries))
            for value, each in zip(self.network(samples, own), known, strict=True)
        ]


def taught(teacher: Network, student: Network) -> Teacher:
    """The teacher of a student whose channels may be in another order."""
    before = reordered_values(student.graph)
    return Teacher(teacher, {name: each for name, each in before.items() if name not in teacher.values})


def targets(teacher: Network, student: Network) -> tuple[Target, ...]:
    """What is compared of both: what softmax or sigmoid get, other outputs as they are, and values on the way."""
    found = []
    for output in teacher.graph.outputs:
        node = output.producer()
        squashed = node is not None and node.op_type in ("Softmax", "Sigmoid") and node.inputs[0] is not None
        value = node.inputs[0] if squashed and node is not None else output
        name = str(value.name) if value is not None else ""
        if name not in student.values or name not in teacher.values:
            name = str(output.name)
        classes = squashed and node is not None and node.op_type == "Softmax" and name != output.name
        found.append(Target(name, 1.0, classes))
    named = {target.name for target in found}
    now = {each.name: name for name, each in taught(teacher, student).before.items()}
    common = [
        name
        for node in teacher.graph
        for value in node.outputs
        if node.op_type in ("Conv", "Gemm", "MatMul", "Add", "Relu", "ConvTranspose", "Clip")
        and (name := now.get(str(value.name), str(value.name))) in student.values and name not in named
        and value.shape is not None and value.shape == student.values[name].shape and is_float(value)
    ]  # fmt: skip
    count = min(_INNER, len(common))
    inner = [common[(index + 1) * len(common) // (count + 1)] for index in range(count)]
    return (*found, *(Target(name, _INNER_WEIGHT / count) for name in dict.fromkeys(inner)))


def train(
    teacher: Network, student: Network, optimizer: Optimizer, samples: Mapping[str, Tensor],
    held_out: Mapping[str, Tensor], steps: int, seed: int,
) -> Trained:  # fmt: skip
    """Train the student's weights in place; they end as they were where held-out samples were answered best.

    Steps of each length are tried from the same start, where there are enough and weights that differ by it; the better
    ones go on from the best state.
    """
    course, few = _Course(teacher, student, samples, held_out, seed), int(_TRIAL * steps)
    lengths = _BOLDNESS if few >= _LEAST_TRIAL and optimizer.has_matrices else ()
    reached = {boldness: course.tried(optimizer, boldness, few) for boldness in lengths}
    course.go_on(optimizer, min(reached, key=reached.__getitem__, default=_BOLDNESS[0]), steps)
    return course.ended()


class _Course:
    """Trainings of one student from one start, and the state that answered held-out samples best."""

    def __init__(
        self, teacher: Network, student: Network, samples: Mapping[str, Tensor], held_out: Mapping[str, Tensor],
        seed: int,
    ) -> None:  # fmt: skip
        self._student, self._held_out, self._answer = student, held_out, taught(teacher, student)
        self._learnt = targets(teacher, student)
        self._names = [target.name for target in self._learnt]
        self._read = sum(target.weight == 1.0 for target in self._learnt)
        with torch.no_grad():
            self._wanted = self._answer(held_out, self._names)
        self._scales = [_power(value) for value in self._wanted]
        self._batches = _batches(self._answer, self._names, samples, seed)
        self._start = self._best = _state(student)
        self._losses, self._done = [self._judged()], 0

    def tried(self, optimizer: Optimizer, boldness: float, steps: int) -> float:
        """The least loss that so many steps from the start reach."""
        before = len(self._losses)
        _restore(self._student, self._start)
        optimizer.begin(boldness)
        self._run(optimizer, steps)
        return min(loss if math.isfinite(loss) else math.inf for loss in self._losses[before:])

    def go_on(self, optimizer: Optimizer, boldness: float, steps: int) -> None:
        """Train from the best state for what is left of so many steps."""
        _restore(self._student, self._best)
        optimizer.begin(boldness)
        self._run(optimizer, steps - self._done)

    def _run(self, optimizer: Optimizer, steps: int) -> None:
        """So many steps, or until nothing is left of the answers."""
        student, first = self._student, self._losses[0]
        averaged, distance = _state(student), min(1.0, math.sqrt(first))
        every = _every(steps, len(next(iter(self._held_out.values()))))
        for step in range(steps):
            batch = self._batches.next()
            with torch.no_grad():
                answers = self._answer(batch, self._names)
            _loss(self._learnt, self._scales, answers, student(batch, self._names)).backward()
            optimizer.step(distance, _schedule(step / steps))
            self._done += 1
            _follow(averaged, student, step + 1)
            if ((step + 1) % every == 0 or step + 1 == steps) and not self._look(averaged) <= _LOST * max(first, 1.0):
                return

    def ended(self) -> Trained:
        """How it went; the student has its best weights then."""
        _restore(self._student, self._best)
        return Trained(self._done, tuple(self._losses))

    def _look(self, averaged: Sequence[Tensor]) -> float:
        """The loss of averaged weights, which are kept where none were better."""
        own = _state(self._student)
        _restore(self._student, averaged)
        loss = self._judged()
        if loss < min(self._losses):
            self._best = [each.clone() for each in averaged]
        self._losses.append(loss)
        _restore(self._student, own)
        return loss

    def _judged(self) -> float:
        with torch.no_grad():
            got = self._student(self._held_out, self._names[: self._read])
            return float(_loss(self._learnt[: self._read], self._scales, self._wanted, got))


def _batches(answer: Teacher, names: Sequence[str], samples: Mapping[str, Tensor], seed: int) -> Batches:
    """Nothing is added to samples where the teacher has no finite answer then, as behind a logarithm."""
    random = torch.Generator().manual_seed(seed)
    made = Batches(samples, steady(shifts(answer.network.graph), samples), random)
    with torch.no_grad():
        tried = answer(made.varied({name: value[:_TRIED] for name, value in samples.items()}), names)
    if not all(bool(value.isfinite().all()) for value in tried):
        made.keep_plain()
    return made


def _follow(averaged: list[Tensor], student: Network, done: int) -> None:
    """Let the averages follow the weights: steps that go to and fro cancel out."""
    share = max(1 - _AVERAGED, 1 / done)
    for average, weight in zip(averaged, student.weights, strict=True):
        average.lerp_(weight.real.detach(), share)


def _restore(student: Network, state: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for weight, value in zip(student.weights, state, strict=True):
            weight.real.copy_(value)


def _state(student: Network) -> list[Tensor]:
    return [weight.real.detach().clone() for weight in student.weights]


def _schedule(done: float) -> float:
    """Warm up over a twentieth, then half a cosine."""
    return min(1.0, done * 20 + 0.05) * 0.5 * (1 + math.cos(math.pi * done))


def _every(steps: int, held_out: int) -> int:
    """After how many steps the student is judged."""
    affordable = int(_JUDGING * steps * _PASSES * BATCH / (2 * held_out))
    return max(1, steps // max(1, min(_EVALUATIONS, affordable)))


def _power(value: Tensor) -> float:
    value = value.double()
    return max(float((value - value.mean(0)).square().mean()), 1e-12)


def _loss(learnt: Sequence[Target], scales: Sequence[float], wanted: Sequence[Tensor], got: Sequence[Tensor]) -> Tensor:
    total = torch.zeros(())
    for target, scale, one, other in zip(learnt, scales, wanted, got, strict=False):
        total = total + target.weight * (one - other).square().mean() / scale
        if target.classes:
            total = total + torch.nn.functional.kl_div(
                other.log_softmax(-1).flatten(0, -2), one.log_softmax(-1).flatten(0, -2), reduction="batchmean",
                log_target=True,
            )  # fmt: skip
    return total
