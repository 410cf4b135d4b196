"""Run a package in our own evaluator, which reads it back from its bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, Artifact, TensorSpec
from convertkit.errors import FeedError
from convertkit.stage import Feed, Outputs
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.interface import images_in, pixels_of
from convertkit.targets.coreml.names import identifier
from convertkit.targets.coreml.package.program import Feature, Program, TensorType, read_package

_MOST_SHOWN = 8
"""Shapes in a refusal."""
RUNTIME = "MIL evaluator (evaluated, not run on Apple hardware)"


class CoreMLRunner:
    """Executes the ML program as its operations are documented, float16 rounded after each."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._program: Program | None = None
        self._evaluator: Evaluator | None = None

    def __enter__(self) -> Self:
        self._program = read_package(self._artifact.path)
        self._evaluator = Evaluator(self._program.block)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program = self._evaluator = None

    @property
    def runtime(self) -> str:
        """What executes the package."""
        return RUNTIME

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for what the package does not take.

        State that the package keeps is set to the feed's before, and answered as the call leaves it.
        """
        program, evaluator = self._program, self._evaluator
        assert program is not None, "the runner is used as a context manager"
        assert evaluator is not None
        inputs = encoded(self._artifact.inputs, program, feed)
        state = {feature.name: inputs.pop(feature.name) for feature in program.states}
        found = evaluator.run(inputs, state=state)
        return decoded(self._artifact.outputs, program, {**found, **state})


def encoded(specs: Sequence[TensorSpec], program: Program, feed: Feed) -> dict[str, Array]:
    """A feed as the package takes it, by the package's names; ``FeedError`` for what it does not take.

    For an image these are the pixels, real numbers, that become the feed's: the evaluator takes those, too.
    """
    images = images_in(program.metadata)
    features = {feature.name: feature for feature in program.inputs}
    found: dict[str, Array] = {}
    for spec, (name, kind) in zip(specs, program.block.inputs, strict=True):
        if spec.name not in feed:
            raise FeedError(f"the feed has no array for input {spec.name}")
        value = spec.encode(np.asarray(feed[spec.name]))
        fitting = as_package(spec.name, value, kind)
        _check_stated(spec.name, fitting, features.get(name))
        found[name] = pixels_of(images[name], fitting) if name in images else fitting
    return found


def _check_stated(name: str, value: Array, feature: Feature | None) -> None:
    """``FeedError`` for sizes between which the package's description does not reach."""
    if feature is None:
        return
    if feature.shapes and value.shape not in feature.shapes:
        raise FeedError(f"input {name} has the shape {value.shape}, the package states {_listed(feature.shapes)}")
    pairs = zip(value.shape, feature.ranges, strict=False)
    if any(not least <= size <= (size if most < 0 else most) for size, (least, most) in pairs):
        spans = ", ".join(str(least) if least == most else f"{least}..{most}" for least, most in feature.ranges)
        raise FeedError(f"input {name} has the shape {value.shape}, the package states ({spans})")


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    shown = [str(shape) for shape in shapes[:_MOST_SHOWN]]
    return ", ".join(shown) + (f" and {len(shapes) - len(shown)} more" if len(shapes) > len(shown) else "")


def decoded(specs: Sequence[TensorSpec], program: Program, found: Mapping[str, Array]) -> Outputs:
    """What the package gives, by the source's names; of a classifier the probabilities, in the order of the labels.

    ``found`` has the state that the package keeps, too, by the names of its buffers.
    """
    texts = {feature.name for feature in program.outputs if feature.kind == "text"}
    given = iter([name for name in program.block.outputs if name not in texts])
    states = {feature.name for feature in program.states}
    names = [_buffer(spec, states) or next(given) for spec in specs]
    assert next(given, None) is None, "the package has an output that its artifact does not tell"
    return {spec.name: spec.decode(_as_source(found[name], spec)) for spec, name in zip(specs, names, strict=True)}


def _buffer(spec: TensorSpec, states: Collection[str]) -> str | None:
    """Where the package keeps what the model calls ``spec``; None for an output of its own."""
    name = identifier(STATE_PREFIX + spec.name.removeprefix(NEXT_STATE_PREFIX))
    return name if spec.name.startswith(NEXT_STATE_PREFIX) and name in states else None


def as_package(name: str, value: Array, kind: TensorType) -> Array:
    """In the package's type and rank; ``FeedError`` for integers that it cannot hold, and for other sizes."""
    if kind.dtype == "int32" and value.dtype.kind in "iu" and value.size:
        limits = np.iinfo(np.int32)
        if int(value.min()) < limits.min or int(value.max()) > limits.max:
            raise FeedError(f"input {name} has integers beyond 32 bits, which is what Core ML holds")
    if value.ndim == 0 and kind.shape == (1,):
        value = value.reshape(1)
    fits = len(kind.shape) == value.ndim and all(a in (None, b) for a, b in zip(kind.shape, value.shape, strict=True))
    if not fits:
        raise FeedError(f"input {name} has the shape {value.shape}, the package {kind.shape}")
    return value.astype(kind.dtype)


def _as_source(value: Array, spec: TensorSpec) -> Array:
    if value.ndim == 1 and len(spec.shape) > 1:  # a dictionary's
        return value.reshape([int(dim) for dim in spec.shape]).astype(spec.dtype)
    return value.reshape(()) if not spec.shape and value.size == 1 else value
