"""Which road from PyTorch to ONNX works for this model: tried in order, accepted by numbers alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from convertkit.artifact import Array, Artifact
from convertkit.converters.pytorch.model.check_inputs import check_feeds, hiding_feeds
from convertkit.converters.pytorch.model.leaves import Leaf, from_json, to_json
from convertkit.converters.pytorch.operators.halves import tolerance_of, widen
from convertkit.converters.pytorch.operators.indices import widen_indices
from convertkit.converters.pytorch.operators.integers import judged
from convertkit.converters.pytorch.operators.spectra import exact_transforms
from convertkit.converters.pytorch.read.opening import Opening
from convertkit.converters.pytorch.routes.attempts import Attempt, defeat, doing, failed, unrunnable
from convertkit.converters.pytorch.routes.free_sizes import at_fixed, implied, is_dynamic
from convertkit.converters.pytorch.routes.lengths import forget_growth, forget_steps
from convertkit.converters.pytorch.routes.restoring import settle_interface
from convertkit.errors import ConvertKitError, ParityError, WorkerError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.plain_constants import fold_plain_constants
from convertkit.onnx.resampling import float32_tolerance
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.parity import Recording, compare_recordings, record
from convertkit.parity.feeds import ProofInputs, foreseen
from convertkit.parity.flags import is_finite
from convertkit.progress import Progress
from convertkit.stage import FLOAT32, Feed, Outputs, Runner, Tolerance
from convertkit.state import save_arrays, saved_arrays, started, state_sizes
from convertkit.twins import Twins
from convertkit.workers.process import Call, Reply

_ROUTES = {
    "torchscript": ("torchscript-exporter", "replay"),
    "pt2": ("program", "torch.export"),
    "eager": ("torch.export", "script", "script-replay", "trace-replay", "trace"),
}
_FOR_STATE = {"torchscript": ("replay",), "pt2": ("torch.export",), "eager": ("torch.export", "script-replay")}
_AHEAD = frozenset({"torchscript", "pt2"})
"""Kinds of files that tell enough for a road to begin before the model has run."""
_LIGHT = frozenset({"torchscript-exporter", "script", "trace"})
"""Roads that do without what ``prepare`` imports."""
_EXPORTED = "exported.onnx"
MADE_BY = "pytorch-to-onnx 1"
_NOTHING: Mapping[str, Array] = MappingProxyType({})
_Computed = tuple[Outputs, ...]
"""Outputs for each of several feeds."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Canonical ONNX that computes what the model computes, and the interface that this settled."""

    artifact: Artifact
    tolerance: Tolerance
    route: str
    leaves: tuple[Leaf, ...]
    outputs: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    notes: tuple[str, ...]
    seconds: Mapping[str, float]
    """What importing torch and loading the model took."""
    slots: Sequence[Mapping[str, Any]] = ()
    implied_sizes: Mapping[str, int] = field(default_factory=dict)
    """What dimensions that nobody asked to be free were in the model's example."""
    foreseen: tuple[tuple[Feed, Outputs], ...] = ()
    """What the model computes for feeds that it will be asked for."""


@dataclass(frozen=True, slots=True)
class _Interface:
    """What one round of attempts must deliver."""

    leaves: tuple[Leaf, ...]
    outputs: tuple[str, ...]
    sizes: tuple[Mapping[str, int], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Feeds for one interface: those that judge a road, and those that the proof will run.

    The edge inputs of the proof judge a road, too, where the model takes them; so do ``hiding`` where it computes
    finite numbers for them.
    """

    leaves: tuple[Leaf, ...]
    sizes: tuple[Mapping[str, int], ...]
    check: tuple[Feed, ...]
    later: ProofInputs
    hiding: tuple[Feed, ...]

    def every(self) -> tuple[Feed, ...]:
        return (*self.check, *self.later.feeds, *self.hiding)

    @property
    def trials(self) -> int:
        """How many of :meth:`every`, the last ones, the model may refuse."""
        return len(self.later.edges) + len(self.hiding)


_Ran = tuple[Recording, Tolerance] | str
"""What a road's result computes, or why it does not run; of feeds that hide it may compute nothing."""


@dataclass(frozen=True, slots=True)
class _Tried:
    """A road taken for one interface: the canonical ONNX that it led to, or why it led to none.

    ``ran`` is what that computes for some feeds, where it has been executed already.
    """

    attempt: Attempt
    leaves: tuple[Leaf, ...]
    outputs: tuple[str, ...]
    made: tuple[Artifact, Tolerance] | None = None
    ran: tuple[_Drawn, _Ran] | None = None

    def fits(self, route: str, wanted: _Interface) -> bool:
        """Whether this is what taking the road for ``wanted`` would be."""
        return (self.attempt.route, self.leaves, self.outputs) == (route, wanted.leaves, wanted.outputs)


class Ladder:
    """Tries roads for one model until one matches it.

    ``foresees`` says that the proof will run the feeds of :func:`foreseen`, ``brief`` or not: they are computed while
    an exporter works.  ``announce`` is told of each result before it is judged, ``progress`` what is being done.
    """

    def __init__(
        self,
        opening: Opening,
        workdir: Path,
        seed: int,
        *,
        foresees: bool,
        brief: bool,
        announce: Callable[[Artifact], None],
        progress: Progress,
    ) -> None:
        self._worker = opening.worker
        self._model = opening.model
        self._loaded = opening.loaded
        self._workdir = workdir
        self._seed = seed
        self._foresees = foresees
        self._announce = announce
        self._progress = progress
        self._brief = brief
        self._twins = Twins()
        self._attempts: list[Attempt] = []
        self._prepared = opening.model.kind == "pt2"
        self._seconds: Mapping[str, float] = {}
        self._slots: list[dict[str, Any]] = []
        self._initial_state: Path | None = None
        self._drawn: _Drawn | None = None
        self._steady = False

    def climb(self) -> Accepted:
        """The first road whose result matches, with a free batch before a fixed one.

        Raises ``ParityError`` where roads led to ONNX and none of it matches, ``Unsupported`` where none led there.
        """
        with self._twins:
            return self._climbed()

    def _climbed(self) -> Accepted:
        self._seconds = self._loaded().value
        reply, ahead = self._described()
        described = reply.value
        state, known = (reply.arrays, _NOTHING) if described["slots"] else (_NOTHING, reply.arrays)
        self._keep_state(described["slots"], state, self._workdir)
        leaves, fixed = from_json(described["leaves"]), from_json(described["fixed"])
        notes, outputs = tuple(described["notes"]), tuple(described["outputs"])
        wanted = _Interface(leaves, outputs, tuple(described["sizes"]), notes)
        accepted = self._first_match(wanted, ahead, known)
        if accepted is not None:
            accepted = replace(accepted, implied_sizes=implied(leaves, fixed))
        elif leaves != fixed:
            why = next((each.failure for each in reversed(self._attempts)), "")
            note = f"the batch is fixed: no route to ONNX keeps it free ({why})"
            self._keep_state(described["fixed_slots"], at_fixed(fixed, state), self._workdir / "fixed")
            accepted = self._first_match(_Interface(fixed, outputs, ({},), (*described["fixed_notes"], note)))
        if accepted is None:
            raise defeat(self._attempts, [".".join(slot["path"]) for slot in self._slots if slot["unset"]])
        if self._model.kind == "torchscript" and self._model.factory is not None:
            self._compare_with_twin(accepted, described["sizes"])
        return accepted

    def _keep_state(self, slots: list[dict[str, Any]], values: Mapping[str, Array], folder: Path) -> None:
        """What the next attempts know of state."""
        self._slots = slots
        if values:
            folder.mkdir(exist_ok=True)
            self._initial_state = folder / "initial_state.npz"
            save_arrays(self._initial_state, values)

    def _compare_with_twin(self, accepted: Accepted, sizes: Sequence[Mapping[str, int]]) -> None:
        """Hold an archive against the module that it was made from: a trace may have kept one path of several."""
        feeds = tuple(check_feeds(accepted.leaves, sizes, self._seed))
        kinds = ("torchscript", "torchscript-twin")
        calls = [self._references(accepted.leaves, feeds, kind) for kind in kinds]
        own, twins = (_by_feed(reply().arrays, len(feeds)) for reply in self._worker.begin_together(calls))
        archive = Recording("the archive", accepted.artifact, feeds, tuple(own))
        twin = Recording("its module", accepted.artifact, feeds, tuple(twins))
        if failures := compare_recordings(twin, archive, accepted.tolerance).failures:
            raise ParityError(
                f"{Path(self._model.source).name} departs from {self._model.factory} on varied inputs: {failures[0]}; "
                "a trace keeps one path of Python branches and loops that depend on data\n"
                "  try   torch.jit.script(model), torch.cond or torch.while_loop"
            )

    def _described(self) -> tuple[Reply, _Tried | None]:
        """The model's interface, and what was made meanwhile of the one that its file tells."""
        params = {**self._model.params(), "seed": self._seed, "foreseen": self._foresees, "brief": self._brief}
        if self._model.kind not in _AHEAD:  # a module, whose first road is torch.export's
            self._progress.status("running the model to find its inputs and outputs")
            describe = Call("describe", {**params, "ahead": True})
            describing, preparing = self._worker.begin_beside(describe, Call("prepare"))
            reply = describing()
            self._draw(from_json(reply.value["leaves"]), tuple(reply.value["sizes"]))
            preparing()
            self._prepared = True
            return reply, None
        try:
            said = self._worker.call("guess", params).value
        except WorkerError:  # it may have ended the worker; an attempt whose interface is settled is judged, not this
            return self._worker.call("describe", {**params, "ahead": False}, isolated=True), None
        except ConvertKitError:  # nothing can be said before the model has run
            return self._worker.call("describe", {**params, "ahead": True}, isolated=True), None
        place = self._workdir / "ahead"
        place.mkdir()
        begun = time.perf_counter()
        attempt = Call("attempt_guess", {**params, **said, "target": str(place / _EXPORTED)})
        attempting, describing = self._worker.begin_together((attempt, Call("describe", {**params, "ahead": True})))
        leaves, outputs = from_json(said["leaves"]), tuple(said["outputs"])
        self._progress.status(doing(said["route"], dynamic=is_dynamic(leaves)))
        drawn = self._draw(leaves, tuple(said["trials"]))  # while the worker exports and computes
        try:
            reply = attempting().value
        except WorkerError:
            return self._worker.call("describe", {**params, "ahead": False}, isolated=True), None
        except ConvertKitError:
            return describing(), None
        tried = self._ended(said["route"], place, reply, leaves, outputs, begun)
        if tried.made is not None:
            tried = replace(tried, ran=(drawn, self._executed(*tried.made, drawn)))
        return describing(), tried

    def _draw(self, leaves: tuple[Leaf, ...], sizes: tuple[Mapping[str, int], ...]) -> _Drawn:
        if self._drawn is None or (self._drawn.leaves, self._drawn.sizes) != (leaves, sizes):
            specs = [leaf.spec() for leaf in leaves]
            later = foreseen(specs, self._seed, brief=self._brief) if self._foresees else ProofInputs((), ())
            check, hiding = check_feeds(leaves, sizes, self._seed), hiding_feeds(leaves, sizes, self._seed)
            self._drawn = _Drawn(leaves, sizes, check, later, hiding)
        return self._drawn

    def _first_match(
        self, wanted: _Interface, ahead: _Tried | None = None, known: Mapping[str, Array] = _NOTHING
    ) -> Accepted | None:
        """``known`` is what the model is known to compute for all feeds, empty where it still is to be asked."""
        drawn = self._draw(wanted.leaves, wanted.sizes)
        feeds = drawn.check
        computed = _by_feed(known, len(drawn.every())) if known else None
        pending: Callable[[], Reply] | None = None
        group = self._model.kind if self._model.kind in _ROUTES else "eager"
        begun = None if ahead is None else ahead.attempt.route
        for route in sorted((_FOR_STATE if self._slots else _ROUTES)[group], key=lambda each: each != begun):
            if ahead is not None and ahead.fits(route, wanted):
                tried = ahead
            else:
                asked = () if pending or computed else (self._asked(drawn),)
                # The last feed is the example: a free dimension that is 1 there would be taken for a constant.
                tried, beside = self._tried(route, wanted, feeds[-1], asked)
                pending = pending or next(iter(beside), None)
            if tried.made is None:
                self._attempts.append(tried.attempt)
                continue
            if tried.ran is not None and tried.ran[0] is drawn:
                made = tried.ran[1]
            else:
                made = self._executed(*tried.made, drawn)  # while the worker may still compute the references
            if computed is None:
                assert pending is not None, "asked for beside the first attempt"
                computed = _by_feed(pending().arrays, len(drawn.every()))
            if isinstance(made, str):
                self._attempts.append(unrunnable(tried.attempt, tried.made[0].path, made))
                continue
            departure = self._departure(wanted, *_judged(drawn, computed, made[0]), made[1])
            self._attempts.append(replace(tried.attempt, failure=departure, mismatch=bool(departure)))
            if not departure:
                accepted = self._accepted(made[0].artifact, made[1], route, wanted)
                later = computed[len(feeds) : len(feeds) + len(drawn.later.feeds)]
                pairs = zip(drawn.later.feeds, later, strict=True)
                return replace(accepted, foreseen=tuple((feed, outputs) for feed, outputs in pairs if outputs))
        return None

    def _tried(
        self, route: str, wanted: _Interface, example: Feed, beside: Sequence[Call]
    ) -> tuple[_Tried, tuple[Callable[[], Reply], ...]]:
        """Take a road, and begin the calls ``beside`` it."""
        place = self._workdir / f"attempt-{len(self._attempts)}"
        place.mkdir()
        begun = time.perf_counter()
        self._progress.status(doing(route, dynamic=is_dynamic(wanted.leaves)))
        attempted, *others = self._begun(route, wanted, place, example, beside)
        reply = _outcome(attempted)
        return self._ended(route, place, reply, wanted.leaves, wanted.outputs, begun), tuple(others)

    def _ended(
        self,
        route: str,
        place: Path,
        reply: Mapping[str, Any],
        leaves: tuple[Leaf, ...],
        outputs: tuple[str, ...],
        begun: float,
    ) -> _Tried:
        attempt = Attempt(route, is_dynamic(leaves), time.perf_counter() - begun, reply.get("seconds", 0.0))
        if "failed" in reply:
            return _Tried(failed(attempt, reply), leaves, outputs)
        made = self._canonical(place, leaves, outputs)
        if isinstance(made, str):
            return _Tried(replace(attempt, failure=made), leaves, outputs)
        return _Tried(attempt, leaves, outputs, made)

    def _departure(self, wanted: _Interface, references: _Computed, made: Recording, tolerance: Tolerance) -> str:
        """How what a road made departs from the model, empty where it does not."""
        if not all(made.outputs):
            return "it fails on inputs that the model takes: all 0, or all 1, in the first row of a mask"
        departure = _departure(references, made, tolerance, self._twins)
        if departure:
            self._check_steady(wanted, made.feeds[0])
        return departure

    def _check_steady(self, wanted: _Interface, feed: Feed) -> None:
        """Raise ``Unsupported`` where the model itself departs from one call to the next; asked once."""
        if not self._steady:
            params = {**self._model.params(), "leaves": to_json(wanted.leaves), "slots": self._slots}
            self._worker.call("steady", params, feed, isolated=True)
            self._steady = True

    def _accepted(self, artifact: Artifact, tolerance: Tolerance, route: str, wanted: _Interface) -> Accepted:
        return Accepted(
            artifact,
            tolerance,
            route,
            wanted.leaves,
            wanted.outputs,
            tuple(self._attempts),
            wanted.notes,
            self._seconds,
            self._slots,
        )

    def _begun(
        self, route: str, wanted: _Interface, place: Path, feed: Feed, beside: Sequence[Call]
    ) -> tuple[Callable[[], Reply], ...]:
        """Start an attempt, and at the same time the calls ``beside`` it."""
        params = {
            **self._model.params(),
            "route": route,
            "leaves": to_json(wanted.leaves),
            "outputs": wanted.outputs,
            "slots": self._slots,
            "target": str(place / _EXPORTED),
        }
        if route not in _LIGHT:
            self._prepare()
        shapes = {leaf.name: leaf.shape for leaf in wanted.leaves}
        state = started(saved_arrays(self._initial_state), shapes, state_sizes(shapes, feed))
        return self._worker.begin_together((Call("attempt", params, {**feed, **state}), *beside))

    def _prepare(self) -> None:
        if not self._prepared:
            self._worker.call("prepare")
            self._prepared = True

    def _asked(self, drawn: _Drawn) -> Call:
        """What makes the worker compute the model for all that was drawn."""
        return self._references(drawn.leaves, drawn.every(), trials=drawn.trials)

    def _references(self, leaves: Sequence[Leaf], feeds: Sequence[Feed], kind: str = "", trials: int = 0) -> Call:
        """What makes the worker compute the model for ``feeds``, the last ``trials`` of which it may refuse."""
        arrays = {f"{place}/{name}": value for place, feed in enumerate(feeds) for name, value in feed.items()}
        params = {**self._model.params(), "leaves": to_json(leaves), "slots": self._slots, "count": len(feeds)}
        params |= {"kind": kind or self._model.kind, "trials": trials}
        return Call("reference", params, arrays)

    def _canonical(
        self, place: Path, leaves: Sequence[Leaf], outputs: Sequence[str]
    ) -> tuple[Artifact, Tolerance] | str:
        """The canonical form of an exporter's file and how exactly it should compute, or why it does not work."""
        self._progress.status("simplifying the exported model")
        try:
            model = load_model(place / _EXPORTED)
            settle_interface(model, leaves, outputs)
            fold_plain_constants(model)
            widen_indices(model)
            forget_steps(model, leaves)
            forget_growth(model)
            tolerance = tolerance_of(model)
            if tolerance is not FLOAT32:
                widen(model)
            tolerance = judged(model, tolerance)
            model = canonicalize(model)
            if exact_transforms(model):
                model = canonicalize(model)
            if tolerance is FLOAT32:
                tolerance = float32_tolerance(model)
            return save_model(model, place / "canonical.onnx", MADE_BY, self._initial_state), tolerance
        except ConvertKitError as error:
            return str(error)

    def _executed(self, artifact: Artifact, tolerance: Tolerance, drawn: _Drawn) -> _Ran:
        """What an artifact computes for the feeds that judge it, or why it does not run."""
        self._progress.status("checking the exported model on varied inputs")
        self._announce(artifact)
        try:
            with OnnxRunner(artifact) as runner:
                if runner.refusal:
                    return runner.refusal
                made = record("onnx", artifact, runner, drawn.check)
                trials = (*drawn.hiding, *drawn.later.edge_feeds)
                tried = tuple(_answered(runner, feed) for feed in trials)
            if not trials:
                return made, tolerance
            feeds, outputs = (*made.feeds, *trials), (*made.outputs, *tried)
            return replace(made, feeds=feeds, outputs=outputs, edges=drawn.later.edges, states=()), tolerance
        except ConvertKitError as error:
            return str(error)


def _outcome(attempted: Callable[[], Reply]) -> Mapping[str, Any]:
    """How an attempt ended; one that took its process with it has failed like any other."""
    try:
        value: dict[str, Any] = attempted().value
    except WorkerError as error:
        return {"failed": str(error)}
    return value


def _by_feed(arrays: Mapping[str, Array], count: int) -> _Computed:
    """Outputs for each of ``count`` feeds; the arrays are named ``<place>/<output>``."""
    results: list[dict[str, Array]] = [{} for _ in range(count)]
    for key, value in arrays.items():
        place, _, name = key.partition("/")
        results[int(place)][name] = value
    return tuple(results)


def _answered(runner: Runner, feed: Feed) -> Outputs:
    """What an artifact makes of a feed, nothing where it refuses it."""
    try:
        return runner.run(feed)
    except ConvertKitError:
        return {}


def _judged(drawn: _Drawn, computed: _Computed, made: Recording) -> tuple[_Computed, Recording]:
    """What the model computes for the feeds that judge a road, and what the road's artifact makes of the same feeds."""
    certain, edges, hiding = len(drawn.check), len(drawn.later.edges), len(drawn.hiding)
    trials = computed[certain + len(drawn.later.usual) :]
    references = (*computed[:certain], *trials[edges:], *trials[:edges])
    refused = {place for place, outputs in enumerate(references) if not outputs}
    odd = {place for place in range(certain, certain + hiding) if not is_finite(references[place])}
    places = [place for place in range(len(references)) if place not in refused | odd]
    names = tuple(name for place, name in enumerate(drawn.later.edges, certain + hiding) if place in places)
    feeds, outputs = tuple(made.feeds[place] for place in places), tuple(made.outputs[place] for place in places)
    return tuple(references[place] for place in places), replace(made, feeds=feeds, outputs=outputs, edges=names)


def _departure(references: _Computed, made: Recording, tolerance: Tolerance, twins: Twins) -> str:
    """How what a road made departs from the model, empty where it does not."""
    try:
        reference = replace(made, title="the model", outputs=references)
        return "; ".join(compare_recordings(reference, made, tolerance, twins.ask(made.artifact)).failures)
    except ConvertKitError as error:
        return str(error)
