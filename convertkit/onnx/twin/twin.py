"""The model in float64, and how sensitive each of its outputs is to the roundings of the model's own types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import TracebackType
from typing import Self

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common
from threadpoolctl import threadpool_limits

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.errors import Unsupported
from convertkit.onnx.contrib import decompose_contrib
from convertkit.onnx.load import load_model
from convertkit.onnx.ml import decompose_kernels
from convertkit.onnx.specs import following
from convertkit.onnx.twin.choices import Choices
from convertkit.onnx.twin.deviations import has_bare_variance, write_plainly
from convertkit.onnx.twin.frames import write_frames_plainly
from convertkit.onnx.twin.interpreter import Interpreter
from convertkit.onnx.twin.noise import Noise
from convertkit.onnx.twin.values import Tensor, Value, widened
from convertkit.stage import Feed, Outputs

RUNS = 3
"""Perturbed runs of one feed."""
THOROUGH = 12
"""So many where the few may have missed something: a value that lies a rounding from a tie goes the other way in one
run of five, and three miss it half the time; so do means of equal elements that are off in some rows alone."""

_PLACES = frozenset({"ArgMax", "ArgMin"})


@dataclass(frozen=True, slots=True)
class Truth:
    """What a model computes for one feed in float64, and how far roundings of its own dtypes move that.

    ``values`` holds the outputs by name, floats as float64, other dtypes as they are.  ``spread`` has the same names
    and shapes, float64: the largest ``|perturbed - value|`` elementwise over the perturbed runs; inf where a perturbed
    run is not finite and the value is, or where a discrete value flips beyond comparison.  ``calmest`` is, by name, the
    largest such change of that perturbed run which has the least; runs that round equal values alike do not count.
    ``ties`` computes, when it is called, what else the model may deliver where candidates tie; None for a model that
    chooses none.  ``thorough`` makes more perturbed runs, when it is called.  ``near_ties`` computes what the model
    delivers where integer kernels round their own way what lies within a part of a step from a tie, once for each of
    several runs.  ``placed`` are the outputs behind the place of a largest or least element: the next element is the
    largest by a rounding.
    """

    values: Outputs
    spread: Outputs
    calmest: Mapping[str, float]
    ties: Callable[[], Ties | None]
    thorough: Callable[[], Truth]
    near_ties: Callable[[float], tuple[Outputs, ...]]
    placed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Ties:
    """What a model delivers in float64 when its choices of best candidates take tied ones in other orders.

    ``runs`` begins with the values themselves, ``chosen`` tells the candidates of each run (booleans, the same
    candidate at the same place).  ``spread`` is how far roundings move the values while the same candidates are chosen.
    ``prefer`` makes one more run, in which the given candidates go before those that tie with them, and tells its
    outputs and candidates.
    """

    runs: tuple[Outputs, ...]
    chosen: tuple[Array, ...]
    spread: Outputs
    prefer: Callable[[Array], tuple[Outputs, Array]]


class Twin:
    """The float64 twin of an ONNX artifact, canonical or a source's own; a context manager.

    Raises ``Unsupported`` where an operator cannot be computed in double.  One element's spread comes from few runs and
    may be small by chance: a judge looks at elements together.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._model: ir.Model | None = None
        self._interpreter = Interpreter()

    def __enter__(self) -> Self:
        model = load_model(self._artifact.path)
        common.InlinePass()(model)
        decompose_contrib(model)
        decompose_kernels(model)
        write_plainly(model)
        write_frames_plainly(model)
        self._model, self._interpreter = model, Interpreter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model, self._interpreter = None, Interpreter()

    def run(self, feed: Feed) -> Truth:
        """The true outputs for one feed and their spread; the feed itself is exact."""
        specs = {spec.name: spec for spec in self._artifact.inputs}
        inputs = {name: widened(specs[name].encode(value)) for name, value in feed.items() if name in specs}
        with threadpool_limits(limits=1, user_api="blas"):  # threads sum in an order of their own, and wait busily
            return self._truth(inputs)

    def _truth(self, inputs: Mapping[str, Value]) -> Truth:
        values = self._outputs(inputs, Noise(0))
        moved = _Moved.of(values).by(self._outputs, inputs, self._noises())
        ties, near_ties = cache(partial(self._ties, inputs)), cache(partial(self._near_ties, inputs))
        placed = self._placed()

        @cache
        def thorough() -> Truth:
            more = map(Noise, range(RUNS + 2, THOROUGH + 2))
            with threadpool_limits(limits=1, user_api="blas"):
                wider = moved.by(self._outputs, inputs, more)
            return Truth(values, wider.spread, wider.calmest, ties, thorough, near_ties, placed)

        return Truth(values, moved.spread, moved.calmest, ties, thorough, near_ties, placed)

    def _placed(self) -> frozenset[str]:
        assert self._model is not None, "the twin is used as a context manager"
        found = following(self._model.graph, _PLACES)
        pairs = zip(self._artifact.outputs, self._model.graph.outputs, strict=True)
        return frozenset(spec.name for spec, value in pairs if value in found)

    def _near_ties(self, inputs: Mapping[str, Value], steps: float) -> tuple[Outputs, ...]:
        with threadpool_limits(limits=1, user_api="blas"):
            noises = (Noise(run, steady=True, near_ties=steps) for run in range(1, THOROUGH + 1))
            return tuple(self._outputs(inputs, noise) for noise in noises)

    def _ties(self, inputs: Mapping[str, Value]) -> Ties | None:
        """Only what follows from a choice is computed again for each order."""
        assert self._model is not None, "the twin is used as a context manager"
        model, interpreter, choices = self._model, self._interpreter, Choices()
        if not interpreter.behind(model).nodes:
            return None
        with threadpool_limits(limits=1, user_api="blas"):
            ahead = interpreter.ahead(model, inputs, Noise(0))
            choices.watch()
            found = [self._named(interpreter.rest(model, ahead, Noise(0), choices))]
            chosen = [choices.now()]
            spread = {name: np.zeros(np.shape(value)) for name, value in found[0].items()}
            for run in range(1, RUNS + 1):
                noise = Noise(run)
                choices.watch()
                perturbed = interpreter.rest(model, interpreter.ahead(model, inputs, noise), noise, choices)
                for name, value in self._named(perturbed).items():
                    spread[name] = np.maximum(spread[name], distance(value, found[0][name]))
            while choices.turn():
                found.append(self._named(interpreter.rest(model, ahead, Noise(0), choices)))
                chosen.append(choices.now())

        def prefer(candidates: Array) -> tuple[Outputs, Array]:
            choices.prefer(candidates)
            return self._named(interpreter.rest(model, ahead, Noise(0), choices)), choices.now()

        return Ties(tuple(found), tuple(chosen), spread, prefer)

    def _noises(self) -> Iterator[Noise]:
        """Of the perturbed runs: one more for a variance, in which equal elements have none, as in PyTorch."""
        assert self._model is not None, "the twin is used as a context manager"
        yield from map(Noise, range(1, RUNS + 1))
        if has_bare_variance(self._model):
            yield Noise(RUNS + 1, steady=True)

    def _outputs(self, inputs: Mapping[str, Value], noise: Noise) -> Outputs:
        assert self._model is not None, "the twin is used as a context manager"
        return self._named(self._interpreter.run(self._model, inputs, noise))

    def _named(self, results: Sequence[Value]) -> Outputs:
        return {spec.name: _decoded(spec, value) for spec, value in zip(self._artifact.outputs, results, strict=True)}


@dataclass(frozen=True, slots=True)
class _Moved:
    """How far perturbed runs are from the values: the furthest elementwise, and the calmest run as a whole."""

    values: Outputs
    spread: Outputs
    calmest: Mapping[str, float]

    @classmethod
    def of(cls, values: Outputs) -> Self:
        """Before any run."""
        nothing = {name: np.zeros(np.shape(value)) for name, value in values.items()}
        return cls(values, nothing, dict.fromkeys(values, np.inf))

    def by(
        self, run: Callable[[Mapping[str, Value], Noise], Outputs], inputs: Mapping[str, Value], noises: Iterable[Noise]
    ) -> Self:
        """The same after more runs."""
        spread, calmest = dict(self.spread), dict(self.calmest)
        for noise in noises:
            perturbed = run(inputs, noise)
            for name, value in self.values.items():
                change = distance(perturbed[name], value)
                spread[name] = np.maximum(spread[name], change)
                if not noise.is_steady:
                    calmest[name] = min(calmest[name], float(change.max(initial=0.0)))
        return replace(self, spread=spread, calmest=calmest)


def distance(perturbed: Array, value: Array) -> Array:
    """``|perturbed - value|`` elementwise as float64; inf where the two cannot be compared."""
    if perturbed.shape != value.shape:
        return np.full(value.shape, np.inf)
    if value.dtype.kind in "OUS":
        return np.where(perturbed == value, 0.0, np.inf)
    first, second = perturbed.astype(np.float64), value.astype(np.float64)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(first - second)
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _decoded(spec: TensorSpec, value: Value) -> Array:
    if not isinstance(value, Tensor):
        raise Unsupported(f"output {spec.name} is not a tensor")
    array = value.array
    if spec.quantization is not None:
        array = (array.astype(np.float64) - spec.quantization.zero_point) * spec.quantization.scale
    return array.transpose(np.argsort(spec.perm)) if spec.perm else array
