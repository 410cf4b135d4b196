"""A model that a worker holds: which one it is, and the worker's calls as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.converters.pytorch.model.interface import Interface
from convertkit.converters.pytorch.model.leaves import Leaf, from_json, to_json
from convertkit.converters.pytorch.model.opening import Opening
from convertkit.errors import WorkerError
from convertkit.stage import Feed, Outputs
from convertkit.state import save_arrays, saved_arrays, started, state_sizes


class RemoteModel:
    """The model, after :meth:`loaded`; every call may raise what the service raises, and ``WorkerError``."""

    def __init__(self, opening: Opening) -> None:
        self.model = opening.model
        self._worker = opening.worker
        self._loading = opening.loaded

    def close(self) -> None:
        """End the worker."""
        self._worker.__exit__(None, None, None)

    def loaded(self) -> Mapping[str, float]:
        """Wait until it is; the seconds that importing torch and loading the model took."""
        seconds: Mapping[str, float] = self._loading().value
        return seconds

    def described(self, seed: int, folder: Path) -> tuple[Interface, ...]:
        """Its interfaces: the one with the most dynamic dimensions first, and that with the sizes it came with.

        They are found by running it.  Start values of state are written below ``folder``.
        """
        reply = self._worker.call("describe", {**self.model.params(), "seed": seed}, isolated=True)
        found, state = reply.value, reply.arrays
        leaves, fixed = from_json(found["leaves"]), from_json(found["fixed"])
        outputs = tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in found["outputs"])
        dynamic = Interface(
            leaves,
            outputs,
            tuple(found["sizes"]),
            tuple(found["slots"]),
            _kept(state, folder),
            tuple(found["notes"]),
            found["rebatched"],
        )
        if leaves == fixed:
            return (dynamic,)
        as_it_came = Interface(
            fixed,
            outputs,
            ({},),
            tuple(found["fixed_slots"]),
            _kept(_spread(fixed, state), folder / "fixed"),
            tuple(found["fixed_notes"]),
            found["rebatched"],
        )
        return dynamic, as_it_came

    def exported(self, route: str, interface: Interface, example: Feed, target: Path) -> Mapping[str, Any]:
        """Take a route to the file ``target``; the ``seconds`` of torch, or why the route has ``failed``.

        A route that takes its process with it has failed like any other.
        """
        params = {**self._params(interface), "route": route, "outputs": interface.output_names, "target": str(target)}
        shapes = {leaf.name: leaf.shape for leaf in interface.leaves}
        state = started(saved_arrays(interface.initial_state), shapes, state_sizes(shapes, example))
        self._worker.call("prepare", {"route": route})
        try:
            value: Mapping[str, Any] = self._worker.call("attempt", params, {**example, **state}, isolated=True).value
        except WorkerError as error:
            return {"failed": str(error)}
        return value

    def computing(
        self, interface: Interface, feeds: Sequence[Feed], trials: int = 0, kind: str = ""
    ) -> Callable[[], tuple[Outputs, ...]]:
        """Begin to compute its outputs for each of ``feeds``; what is returned waits for them.

        There is nothing for those of the last ``trials`` that it refuses.  ``kind`` asks another form of it: the module
        that an archive was made from.
        """
        arrays = {f"{place}/{name}": value for place, feed in enumerate(feeds) for name, value in feed.items()}
        params = {**self._params(interface), "count": len(feeds), "trials": trials}
        params |= {"kind": kind or self.model.kind}
        asked = self._worker.begin("reference", params, arrays, isolated=True)
        return lambda: _by_feed(asked().arrays, len(feeds))

    def check_steady(self, interface: Interface, feed: Feed) -> None:
        """Raise ``Unsupported`` where one feed gives another result in each call."""
        self._worker.call("steady", self._params(interface), feed, isolated=True)

    def run(self, interface: Interface, feed: Feed, *, fresh: bool) -> Mapping[str, Array]:
        """Its outputs for one feed, in the worker's own process, from which no other call may be forked from then on.

        ``fresh`` begins a sequence anew.
        """
        return self._worker.call("run", {**self._params(interface), "fresh": fresh}, feed).arrays

    def _params(self, interface: Interface) -> dict[str, Any]:
        return {**self.model.params(), "leaves": to_json(interface.leaves), "slots": list(interface.slots)}


def _by_feed(arrays: Mapping[str, Array], count: int) -> tuple[Outputs, ...]:
    """Outputs for each feed; the arrays are named ``<place>/<output>``."""
    results: list[dict[str, Array]] = [{} for _ in range(count)]
    for key, value in arrays.items():
        place, _, name = key.partition("/")
        results[int(place)][name] = value
    return tuple(results)


def _kept(values: Mapping[str, Array], folder: Path) -> Path | None:
    """The file of ``folder`` that holds start values of state; None where there are none."""
    if not values:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    save_arrays(folder / "initial_state.npz", values)
    return folder / "initial_state.npz"


def _spread(fixed: Sequence[Leaf], state: Mapping[str, Array]) -> dict[str, Array]:
    """State for a batch of one, in the shapes of ``fixed``."""
    shapes = {leaf.name: [dim for dim in leaf.shape if isinstance(dim, int)] for leaf in fixed}
    return {name: np.array(np.broadcast_to(value, shapes[name])) for name, value in state.items()}
