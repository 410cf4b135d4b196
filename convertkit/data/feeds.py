"""Calibration and evaluation data: what the user has, as a stream of feeds that fit the model.

Data is read sample by sample, as often as it is asked for; nothing but labels is kept in memory.
Every feed is checked once, before any stage runs: names, shapes, dtypes, NaN, infinity.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.data.files import LABEL, Columns, Items, Raw
from convertkit.data.paths import DEFAULT_IMAGES, DEFAULT_WAV, open_path
from convertkit.errors import FeedError
from convertkit.recipe import ImageOptions, WavOptions
from convertkit.stage import Feed

__all__ = ["Feeds", "ImageOptions", "load_feeds"]


_IMAGE_RANK, _GREATEST_PIXEL = 4, 255


@dataclass(frozen=True, slots=True)
class Feeds:
    """Checked feeds of one sample each (batch 1 where the model has a batch dimension).

    ``labels`` holds the truth of every feed, in order, where it was asked for.  ``warnings`` are
    sentences about data that can be used but should make its owner think.
    """

    description: str
    sha256: str
    warnings: tuple[str, ...]
    labels: Array | None
    count: int
    stream: Callable[[], Iterator[Feed]]
    notes: tuple[str, ...] = ()
    """What was done to the data, as its owner did not say it: told once, no reason to doubt."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Feed]:
        return self.stream()


def load_feeds(
    source: object,
    inputs: tuple[TensorSpec, ...],
    *,
    samples: int | None = None,
    label: bool = False,
    images: ImageOptions = DEFAULT_IMAGES,
    wav: WavOptions = DEFAULT_WAV,
) -> Feeds:
    """Feeds for ``inputs`` from a path, ``pkg.mod:func``, arrays or an iterable; ``FeedError`` where they do not fit.

    ``source`` is an ``.npz`` with arrays named after the inputs, an ``.npy`` or a folder of images, of ``.wav``
    or of ``.npy`` for a model with one input, ``pkg.mod:func`` or a callable that yields feeds, a
    mapping of arrays, one array, or an iterable of samples.  ``samples`` takes that many, evenly
    spread.  ``label`` demands the array ``label`` (or, for images, one sub-folder per class) and adds
    each sample's part of it to the feed.
    State inputs may be missing: they are carried from call to call.
    """
    raw = _open(source, inputs, images, wav, samples)
    chosen = raw.chosen(samples)
    known = raw.labels if label else None
    if label and known is None:
        raise FeedError(f"{raw.description} has no array {LABEL!r}, which evaluation needs")
    check = _Examination(raw.description, inputs)
    count = sum(1 for feed in raw.stream(chosen) if check.feed(feed))
    if count == 0:
        raise FeedError(f"{raw.description} holds no sample")
    labels = known if known is None or chosen is None else known[list(chosen)]
    if labels is not None and len(labels) != count:
        raise FeedError(f"{raw.description}: {len(labels)} values in {LABEL!r} for {count} samples")

    def stream() -> Iterator[Feed]:
        for index, feed in enumerate(raw.stream(chosen)):
            truth = {} if labels is None else {LABEL: labels[index : index + 1]}
            yield {**check.fit(feed), **truth}

    return Feeds(
        raw.description, check.digest.hexdigest(), check.warnings(count), labels, count, stream, tuple(raw.notes)
    )


def _numpy_dtype(name: str) -> np.dtype[np.generic]:
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def _open(
    source: object, inputs: tuple[TensorSpec, ...], images: ImageOptions, wav: WavOptions, samples: int | None
) -> Raw:
    if isinstance(source, str | Path):
        return open_path(str(source), inputs, images, wav)
    if isinstance(source, np.ndarray):
        return Columns.of_arrays("the given array", {_only(inputs, "one array").name: source}, inputs)
    if isinstance(source, Mapping):
        return Columns.of_arrays("the given mapping", source, inputs)
    if callable(source):
        return Items(getattr(source, "__qualname__", "the given function"), source, inputs)
    if isinstance(source, Sequence):
        return Items("the given sequence", lambda: iter(source), inputs)
    if isinstance(source, Feeds) or (hasattr(source, "__iter__") and hasattr(source, "sha256")):
        return Items(str(getattr(source, "description", "the given iterable")), lambda: iter(source), inputs)
    if isinstance(source, Iterator):
        kept = list(itertools.islice(source, samples))  # it can be walked once, calibration walks several times
        return Items("the given iterator", lambda: iter(kept), inputs)
    if hasattr(source, "__iter__"):
        return Items("the given iterable", lambda: iter(source), inputs)
    raise FeedError(
        f"calibration data of type {type(source).__name__}; expected a path, arrays or an iterable of samples"
    )


def _only(inputs: tuple[TensorSpec, ...], what: str) -> TensorSpec:
    plain = [spec for spec in inputs if not spec.is_state]
    if len(plain) != 1:
        names = ", ".join(spec.name for spec in plain)
        raise FeedError(f"{what} for a model with {len(plain)} inputs; give arrays named {names}")
    return plain[0]


def fitted(title: str, inputs: Sequence[TensorSpec], given: Feed | Array) -> Feed:
    """One call's inputs in the dtypes that the source takes; an array alone is that of the only input.

    Raises ``FeedError``, which ``title`` begins, where names, shapes or dtypes do not fit.
    """
    plain = [spec.name for spec in inputs if not spec.is_state]
    if not isinstance(given, Mapping):
        if len(plain) != 1:
            raise FeedError(f"{title} takes arrays by name: {_names(plain)}")
        given = {plain[0]: given}
    return _Examination(title, tuple(inputs)).fit(given)


class _Examination:
    """Checks feeds against the model's inputs and gathers what is worth a warning."""

    def __init__(self, title: str, inputs: tuple[TensorSpec, ...]) -> None:
        self._title = title
        self._specs = {spec.name: spec for spec in inputs}
        self._first: dict[str, Array] = {}
        self._varies: set[str] = set()
        self._nonzero: set[str] = set()
        self._cast: dict[str, str] = {}
        self._no_pixels: set[str] = set()
        self.digest = hashlib.sha256()

    def feed(self, feed: Feed) -> bool:
        """Check one feed and remember it in the digest; always True, so that it can be counted."""
        for name, value in self.fit(feed).items():
            self._look(name, value)
            self.digest.update(f"{name}:{value.dtype}:{value.shape}".encode())
            self.digest.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
        return True

    def fit(self, feed: Feed) -> Feed:
        """The feed in the model's dtypes; ``FeedError`` where names, shapes or dtypes do not fit."""
        missing = [name for name, spec in self._specs.items() if name not in feed and not spec.is_state]
        if missing or any(name not in self._specs for name in feed):
            raise FeedError(
                f"{self._title} gives {_names(feed)}; the model's inputs are "
                f"{_names([name for name, spec in self._specs.items() if not spec.is_state])}"
            )
        return {name: self._fitting(self._specs[name], value) for name, value in feed.items()}

    def warnings(self, count: int) -> tuple[str, ...]:
        """Sentences about data that is valid and suspicious."""
        found = [f"{self._title}: {name} is {was}, the model takes {self._specs[name].dtype}; converted"
                 for name, was in self._cast.items()]  # fmt: skip
        if count == 1:
            found.append(f"{self._title} holds one sample only: ranges measured on it will be too narrow")
        for name in self._first:
            if name not in self._nonzero:
                found.append(f"{self._title}: {name} is zero throughout")
            elif name not in self._varies and count > 1:
                found.append(f"{self._title}: {name} is the same in all {count} samples")
            elif name not in self._no_pixels:
                found.append(f"{self._title}: {name} holds whole numbers of 0 to 255, as pixels do; right only if the "
                             f"model scales them itself")  # fmt: skip
        return tuple(found)

    def _look(self, name: str, value: Array) -> None:
        if np.issubdtype(value.dtype, np.inexact) and not np.isfinite(value).all():
            raise FeedError(f"{self._title}: {name} holds NaN or infinity")
        if name not in self._no_pixels and not self._are_pixels(value):
            self._no_pixels.add(name)
        if name not in self._nonzero and np.any(value):
            self._nonzero.add(name)
        if name not in self._varies:
            first = self._first.setdefault(name, value)
            if first is not value and not np.array_equal(first, value):
                self._varies.add(name)

    def _are_pixels(self, value: Array) -> bool:
        """Whether an image of floats looks as if nobody had scaled it."""
        if value.ndim != _IMAGE_RANK or not np.issubdtype(value.dtype, np.floating) or value.size == 0:
            return False
        return bool(value.min() >= 0 and 1 < value.max() <= _GREATEST_PIXEL and np.array_equal(value, np.rint(value)))

    def _fitting(self, spec: TensorSpec, value: Array) -> Array:
        value = np.asarray(value)
        want = spec.source_shape
        fits = len(want) == value.ndim and all(
            isinstance(dim, str) or dim == size for dim, size in zip(want, value.shape)
        )
        if not fits:
            raise FeedError(f"{self._title}: {spec.name} has samples of shape {_shape(value.shape)}, "
                            f"the model takes {_shape(want)}{_layout_hint(want, value.shape)}")  # fmt: skip
        return self._in_dtype(spec, value)

    def _in_dtype(self, spec: TensorSpec, value: Array) -> Array:
        if spec.dtype == "string":
            return value
        want = np.dtype("float32") if spec.quantization is not None else _numpy_dtype(spec.dtype)
        if value.dtype == want:
            return np.asarray(value, order="C")  # ascontiguousarray would give a scalar an axis
        both_float = np.issubdtype(value.dtype, np.floating) and np.issubdtype(want, np.floating)
        both_int = np.issubdtype(value.dtype, np.integer) and np.issubdtype(want, np.integer)
        cast = value.astype(want) if both_float or both_int else None
        if cast is None or (both_int and not np.array_equal(cast, value)):
            raise FeedError(
                f"{self._title}: {spec.name} is {value.dtype}, the model takes {want}; "
                f"store it with .astype({want.name!r}), scaled as in training"
            )
        self._cast[spec.name] = value.dtype.name
        return cast


def _layout_hint(want: tuple[int | str, ...], got: tuple[int, ...]) -> str:
    moved = {"NHWC": (0, 3, 1, 2), "NCHW": (0, 2, 3, 1)}
    if len(want) == len(got) == 4:
        for layout, perm in moved.items():
            if all(isinstance(dim, str) or dim == got[axis] for dim, axis in zip(want, perm)):
                return f"; the data looks {layout}, store it with .transpose{perm}"
    return ""


def _names(names: object) -> str:
    listed = [repr(str(name)) for name in names] if isinstance(names, Mapping | Sequence) else []
    return ", ".join(listed) or "nothing"


def _shape(shape: Sequence[int | str]) -> str:
    return "×".join(str(size) for size in shape) or "()"
