"""Data at a path: NumPy files, and folders of NumPy files, images or sounds."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.data.files import LABEL, NO_ARRAY, Columns, Folder, Items, Raw, reading, stored
from convertkit.data.images import ImageReader
from convertkit.data.kinds import IMAGE_SUFFIXES, WAV_SUFFIXES
from convertkit.data.sounds import Sounds
from convertkit.data.user_functions import data_function
from convertkit.errors import FeedError
from convertkit.recipe import ImageOptions, WavOptions

DEFAULT_IMAGES, DEFAULT_WAV = ImageOptions(), WavOptions()


def open_path(source: str, inputs: tuple[TensorSpec, ...], images: ImageOptions, wav: WavOptions) -> Raw:
    """The data at a path or behind ``pkg.mod:func``."""
    path = Path(source)
    if path.is_dir():
        return _folder(path, inputs, images, wav)
    if path.is_file():
        return _file(path, inputs)
    return Items(source, data_function(source), inputs)


def _files_of_kind(folder: Path, suffixes: frozenset[str]) -> tuple[Path, ...]:
    """Files below a folder by their suffix, in order; ``FeedError`` for what only has such a name."""
    return _regular(file for file in folder.rglob("*") if file.suffix.lower() in suffixes)


def _single(inputs: tuple[TensorSpec, ...], path: Path) -> TensorSpec:
    plain = [spec for spec in inputs if not spec.is_state]
    if len(plain) != 1:
        names = ", ".join(spec.name for spec in plain)
        raise FeedError(f"{path} holds one array and the model has {len(plain)} inputs; give an .npz with {names}")
    return plain[0]


def _file(path: Path, inputs: tuple[TensorSpec, ...]) -> Raw:
    if path.suffix == ".npy":
        return Columns.matched(str(path), {_single(inputs, path).name: stored(path, None)}, inputs, None)
    if not zipfile.is_zipfile(path):
        raise FeedError(f"{path} is neither an .npz nor an .npy")
    with reading(path), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    columns = {name: stored(path, name) for name in names}
    labels = None
    if LABEL in columns and LABEL not in {spec.name for spec in inputs}:
        del columns[LABEL]
        with reading(path), np.load(path, allow_pickle=False) as archive:
            labels = np.asarray(archive[LABEL])
    return Columns.matched(str(path), columns, inputs, labels)


def _folder(path: Path, inputs: tuple[TensorSpec, ...], images: ImageOptions, wav: WavOptions) -> Raw:
    spec = _single(inputs, path)
    arrays = _regular(path.glob("*.npy"))
    if arrays:
        first = _load_npy(arrays[0])
        columns = {spec.name: Folder(arrays, _load_npy, (len(arrays), *first.shape))}
        return Columns.matched(str(path), columns, inputs, None)
    if sounds := _files_of_kind(path, WAV_SUFFIXES):
        column = Sounds.of_files(sounds, spec, wav)
        labels = _classes(path, sounds)
        repeated = None if labels is None else np.repeat(labels, column.windows)
        return Columns.matched(str(path), {spec.name: column}, inputs, repeated, column.notes)
    files = _files_of_kind(path, IMAGE_SUFFIXES)
    if not files:
        raise FeedError(f"{path} holds no .npy, no image and no .wav")
    reader = ImageReader(spec, images)
    column_of_images = Folder(files, reader, (len(files), *reader.shape))
    return Columns.matched(str(path), {spec.name: column_of_images}, inputs, _classes(path, files), reader.notes)


def _classes(folder: Path, files: tuple[Path, ...]) -> Array | None:
    """The place of each file's sub-folder among all, in the order of their names; None where there is at most one."""
    names = sorted({file.relative_to(folder).parts[0] for file in files if file.parent != folder})
    if len(names) < 2:
        return None
    return np.array([names.index(file.relative_to(folder).parts[0]) for file in files], np.int64)


def _regular(files: Iterable[Path]) -> tuple[Path, ...]:
    """In order; ``FeedError`` for what only has such a name: a pipe would be waited for."""
    found = tuple(sorted(files))
    for file in found:
        if not file.is_file():
            raise FeedError(f"{file} is not a file that can be read")
    return found


def _load_npy(file: Path) -> Array:
    try:
        with file.open("rb") as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except NO_ARRAY as error:
        raise FeedError(f"{file} holds no NumPy array: {error}") from error
