"""Holding what a route made against the model itself, on varied inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from convertkit.artifact import Artifact
from convertkit.converters.pytorch.model.check_inputs import check_feeds, hiding_feeds
from convertkit.converters.pytorch.model.interface import Interface
from convertkit.converters.pytorch.model.remote import RemoteModel
from convertkit.converters.pytorch.routes.attempts import Attempt, unrunnable
from convertkit.errors import ConvertKitError
from convertkit.onnx.runner import OnnxRunner
from convertkit.parity.feeds import proof_inputs
from convertkit.parity.flags import is_finite
from convertkit.parity.free_sizes import attempts
from convertkit.parity.replay import compare_recordings, record
from convertkit.parity.values import Recording
from convertkit.stage import Feed, Outputs, Runner, Tolerance
from convertkit.twins import Twins


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the results of routes are run on.

    The model computes for ``check``.  It may refuse the others: in ``hiding`` a mask leaves nothing of its first row,
    and ``edges``, which ``names`` names, are the edge inputs of the proof to come.
    """

    check: tuple[Feed, ...]
    hiding: tuple[Feed, ...]
    edges: tuple[Feed, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, interface: Interface, seed: int, *, edges: bool, brief: bool) -> Inputs:
        """Inputs for a model of this interface, with the edge inputs that its proof will run, ``brief`` or not.

        Without those for a model with state, and where several choices of sizes may have to be tried.
        """
        leaves, sizes, specs = interface.leaves, interface.sizes, interface.inputs
        check, hiding = check_feeds(leaves, sizes, seed), hiding_feeds(leaves, sizes, seed)
        if not edges or any(spec.is_state for spec in specs) or attempts(specs) > 1:
            return cls(check, hiding, (), ())
        later = proof_inputs(specs, None, seed, brief=brief)
        return cls(check, hiding, later.edge_feeds, later.edges)

    @property
    def trials(self) -> tuple[Feed, ...]:
        """What the model may refuse."""
        return (*self.hiding, *self.edges)

    @property
    def example(self) -> Feed:
        """The inputs to export with: a dynamic dimension that is 1 there would be taken for a constant."""
        return self.check[-1]


class Judge:
    """Holds ONNX against one model, whose own results are asked for once."""

    def __init__(self, remote: RemoteModel, interface: Interface, inputs: Inputs, twins: Twins) -> None:
        self._remote = remote
        self._interface = interface
        self.inputs = inputs
        self._twins = twins
        self._asked: Callable[[], tuple[Outputs, ...]] | None = None

    def ask(self) -> Callable[[], tuple[Outputs, ...]]:
        """Have the model compute for all inputs, in its worker; what is returned waits for that."""
        if self._asked is None:
            every = (*self.inputs.check, *self.inputs.trials)
            self._asked = cache(self._remote.computing(self._interface, every, len(self.inputs.trials)))
        return self._asked

    def judged(self, attempt: Attempt, artifact: Artifact, tolerance: Tolerance) -> Attempt:
        """The attempt that made ``artifact``, with its failure where that does not compute what the model does.

        Raises ``Unsupported`` where the model itself gives another result in each call.
        """
        made = _executed(artifact, self.inputs)
        if isinstance(made, str):
            self.ask()()  # which says so where the model itself takes no such input
            return unrunnable(attempt, artifact.path, made)
        expected, made = _compared(self.inputs, self.ask()(), made)
        failure = self._failure(expected, made, tolerance)
        return replace(attempt, failure=failure, mismatch=bool(failure))

    def _failure(self, expected: Sequence[Outputs], made: Recording, tolerance: Tolerance) -> str:
        """How the ONNX differs from the model, empty where it does not."""
        if not all(made.outputs):
            return "it fails on inputs that the model takes: all 0, or all 1, in the first row of a mask"
        failure = _difference(expected, made, tolerance, self._twins)
        if failure:
            self._remote.check_steady(self._interface, made.feeds[0])
        return failure


def _executed(artifact: Artifact, inputs: Inputs) -> Recording | str:
    """What the ONNX computes for all inputs, nothing for trials that it refuses; or why it does not run."""
    try:
        with OnnxRunner(artifact) as runner:
            if runner.refusal:
                return runner.refusal
            made = record("onnx", artifact, runner, inputs.check)
            tried = tuple(_answered(runner, feed) for feed in inputs.trials)
    except ConvertKitError as error:
        return str(error)
    if not tried:
        return made
    feeds, outputs = (*made.feeds, *inputs.trials), (*made.outputs, *tried)
    return replace(made, feeds=feeds, outputs=outputs, edges=inputs.names, states=())


def _answered(runner: Runner, feed: Feed) -> Outputs:
    try:
        return runner.run(feed)
    except ConvertKitError:
        return {}


def _compared(inputs: Inputs, expected: Sequence[Outputs], made: Recording) -> tuple[tuple[Outputs, ...], Recording]:
    """Both sides for the inputs that judge: those that the model takes, and of the hiding ones where it is finite."""
    certain, hiding = len(inputs.check), len(inputs.hiding)
    odd = {place for place in range(certain, certain + hiding) if not is_finite(expected[place])}
    places = [place for place, outputs in enumerate(expected) if outputs and place not in odd]
    names = tuple(name for place, name in enumerate(inputs.names, certain + hiding) if place in places)
    feeds, outputs = tuple(made.feeds[place] for place in places), tuple(made.outputs[place] for place in places)
    return tuple(expected[place] for place in places), replace(made, feeds=feeds, outputs=outputs, edges=names)


def _difference(expected: Sequence[Outputs], made: Recording, tolerance: Tolerance, twins: Twins) -> str:
    reference = replace(made, title="the model", outputs=tuple(expected))
    try:
        return "; ".join(compare_recordings(reference, made, tolerance, twins.ask(made.artifact)).failures)
    except ConvertKitError as error:
        return str(error)
