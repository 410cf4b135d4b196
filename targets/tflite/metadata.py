"""TFLite metadata: what the model does, how its inputs were normalised, what its classes are called.

A FlatBuffer of its own in the model's metadata buffer ``TFLITE_METADATA``; the labels are a file in an
uncompressed ZIP archive behind the model, which ZIP readers find from the end of the file.
Source: ``metadata_schema.fbs`` 1.5.0 of tflite-support, file identifier ``M001``.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import flatbuffers

from convertkit.artifact import TensorSpec
from convertkit.model_flags import check_normalization, labelled, labels
from convertkit.recipe import ExportOptions, Normalization

BUFFER = "TFLITE_METADATA"
LABELS = "labels.txt"
_IDENTIFIER = b"M001"
_PARSER = "1.0.0"
"""The oldest metadata parser that knows all that is written here."""

_EARLIEST = (1980, 1, 1, 0, 0, 0)
_AXIS_LABELS, _VALUE_LABELS = 2, 3  # AssociatedFileType.TENSOR_AXIS_LABELS, TENSOR_VALUE_LABELS
_NORMALIZATION_OPTIONS = 1  # ProcessUnitOptions.NormalizationOptions
_UNIX, _READABLE = 3, 0o644 << 16


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the user says about the model; ``labelled`` is the output that ``labels`` (one per line) belong to.

    They name its values where it tells classes (``by_value``), else the elements of its last axis.
    """

    description: str = ""
    normalization: tuple[Normalization, ...] = ()
    labels: bytes = b""
    labelled: str = ""
    by_value: bool = False

    @property
    def says_something(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.description or self.normalization or self.labels)


def metadata_of(options: ExportOptions, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Metadata:
    """The metadata that ``options`` ask for; ``UsageError`` where they do not fit the interface."""
    check_normalization(options.normalization, inputs)
    if options.label_file is None:
        return Metadata(options.description, options.normalization)
    content = labels(Path(options.label_file))
    name = labelled(options.label_file, content, outputs)
    by_value = any(spec.name == name and spec.classes is not None for spec in outputs)
    return Metadata(options.description, options.normalization, content, name, by_value)


def packed(metadata: Metadata, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """The metadata FlatBuffer for a model whose inputs and outputs have these names, in order."""
    builder = flatbuffers.Builder(1024)
    units = {each.input: each for each in metadata.normalization}
    ins = [_input(builder, name, units.get(name)) for name in inputs]
    kind = _VALUE_LABELS if metadata.by_value else _AXIS_LABELS
    outs = [_output(builder, name, kind if name == metadata.labelled else None) for name in outputs]
    graph = _table(builder, {2: _tables(builder, ins), 3: _tables(builder, outs)})
    fields = {3: _tables(builder, [graph]), 7: builder.CreateString(_PARSER)}
    if metadata.description:
        fields[1] = builder.CreateString(metadata.description)
    builder.Finish(_table(builder, fields), _IDENTIFIER)
    return bytes(builder.Output())


def append_labels(path: Path, labels: bytes) -> None:
    """Put ``labels`` into a ZIP archive behind the model; offsets count from the start of the whole file."""
    with path.open("r+b") as stream:
        _append(stream, labels)


def labels_behind(model: bytes) -> bytes:
    """The labels behind a model; nothing where there are none."""
    stream = io.BytesIO(model)
    if not zipfile.is_zipfile(stream):
        return b""
    with zipfile.ZipFile(stream) as archive:
        return archive.read(LABELS) if LABELS in archive.namelist() else b""


def with_labels(model: bytes, labels: bytes) -> bytes:
    """``model`` with ``labels`` behind it, as :func:`append_labels` writes them."""
    stream = io.BytesIO(model)
    _append(stream, labels)
    return stream.getvalue()


def _append(stream: BinaryIO, labels: bytes) -> None:
    entry = zipfile.ZipInfo(LABELS, _EARLIEST)
    entry.create_system, entry.external_attr = _UNIX, _READABLE
    stream.seek(0, 2)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(entry, labels)


def _input(builder: flatbuffers.Builder, name: str, normalization: Normalization | None) -> int:
    fields = {0: builder.CreateString(name)}
    if normalization is not None:
        numbers = {0: _floats(builder, normalization.mean), 1: _floats(builder, normalization.std)}
        unit = _table(builder, {1: _table(builder, numbers)}, {0: _NORMALIZATION_OPTIONS})
        fields[4] = _tables(builder, [unit])
    return _table(builder, fields)


def _output(builder: flatbuffers.Builder, name: str, labels: int | None) -> int:
    """``labels`` says what the labels are of, as an AssociatedFileType; None where there are none for this output."""
    fields = {0: builder.CreateString(name)}
    if labels is not None:
        file = _table(builder, {0: builder.CreateString(LABELS)}, {2: labels})
        fields[6] = _tables(builder, [file])
    return _table(builder, fields)


def _table(builder: flatbuffers.Builder, offsets: Mapping[int, int], bytes_: Mapping[int, int] | None = None) -> int:
    """A table from its offset fields and its byte-sized ones, by slot number of the schema."""
    small = bytes_ or {}
    builder.StartObject(max(*offsets, *small, 0) + 1)
    for slot, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    for slot, value in small.items():
        builder.PrependUint8Slot(slot, value, 0)
    return int(builder.EndObject())


def _tables(builder: flatbuffers.Builder, items: Sequence[int]) -> int:
    builder.StartVector(4, len(items), 4)
    for item in reversed(items):
        builder.PrependUOffsetTRelative(item)
    return int(builder.EndVector())


def _floats(builder: flatbuffers.Builder, values: Sequence[float]) -> int:
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependFloat32(value)
    return int(builder.EndVector())
