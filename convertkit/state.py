"""Start values of ``state.*`` inputs: kept in one file, for a batch of one where the batch is dynamic."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convertkit.artifact import STATE_FILE, STATE_PREFIX, Array, Artifact, Dim, TensorSpec
from convertkit.errors import SourceError
from convertkit.stage import Feed

"""What lies beside a delivered model that has state."""


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an ``.npz`` whose bytes depend on the arrays alone (``np.savez`` stamps the time)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)


def saved_arrays(path: Path | None) -> Mapping[str, Array]:
    """What :func:`save_arrays` wrote, nothing where there is no file."""
    if path is None:
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def state_beside(model: Path, inputs: Sequence[TensorSpec]) -> Path | None:
    """The start values that lie beside a model which was delivered with them, None for a model without state.

    Raises ``SourceError`` where they are missing: a sequence that starts with other values gives another result.
    """
    wanted = {spec.name for spec in inputs if spec.name.startswith(STATE_PREFIX)}
    if not wanted:
        return None
    beside = model.with_name(STATE_FILE)
    if zipfile.is_zipfile(beside):
        with zipfile.ZipFile(beside) as archive:
            if {name.removesuffix(".npy") for name in archive.namelist()} == wanted:
                return beside
    raise SourceError(
        f"{model.name} has state ({', '.join(sorted(wanted))}), and no {STATE_FILE} with its start values beside it\n"
        "  try   the folder that it was delivered in, or np.savez with an array for each"
    )


def carried(source: Artifact, sizes: Mapping[str, int], folder: Path) -> Path | None:
    """The start values of ``source`` at these sizes, in a file of ``folder``; None where it has no state."""
    values = initial_state(source)
    if not values:
        return None
    shapes = {spec.name: spec.source_shape for spec in source.inputs}
    save_arrays(folder / STATE_FILE, started(values, shapes, sizes))
    return folder / STATE_FILE


def initial_state(artifact: Artifact) -> Mapping[str, Array]:
    """Start values of the artifact's ``state.*`` inputs by name; empty where it has none.

    They are for a batch of one where the batch is dynamic: :func:`started` gives those for any other.
    """
    return saved_arrays(artifact.initial_state)


def with_state(artifact: Artifact, feed: Feed) -> Feed:
    """``feed`` with the start values of the artifact's state at its sizes; state that it gives stays."""
    shapes = {spec.name: spec.source_shape for spec in artifact.inputs}
    return {**started(initial_state(artifact), shapes, state_sizes(shapes, feed)), **feed}


def state_sizes(shapes: Mapping[str, Sequence[Dim]], feed: Feed) -> dict[str, int]:
    """The named dimensions of state, with the sizes that the other inputs in ``feed`` give them."""
    wanted = {dim for name, shape in shapes.items() if name.startswith(STATE_PREFIX) for dim in shape}
    return {
        dim: size
        for name, shape in shapes.items()
        if name in feed and not name.startswith(STATE_PREFIX)
        for dim, size in zip(shape, np.shape(feed[name]), strict=True)
        if isinstance(dim, str) and dim in wanted
    }


def started(
    initial: Mapping[str, Array], shapes: Mapping[str, Sequence[Dim]], sizes: Mapping[str, int]
) -> dict[str, Array]:
    """Initial values at these sizes: repeated along each named dimension."""
    return {name: repeated(value, shapes.get(name, value.shape), sizes) for name, value in initial.items()}


def repeated(value: Array, shape: Sequence[Dim], sizes: Mapping[str, int]) -> Array:
    """``value`` along the dimensions of ``shape`` that are named in ``sizes``, and as it is along the others."""
    full = [
        sizes.get(dim, size) if isinstance(dim, str) else size for dim, size in zip(shape, value.shape, strict=True)
    ]
    return np.ascontiguousarray(np.broadcast_to(value, full)).reshape(full)
