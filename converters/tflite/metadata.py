"""What a ``.tflite`` file says about itself in words: description, normalisation, labels.

Source: ``metadata_schema.fbs`` 1.5.0 of tflite-support; the numbers are its slots.
"""

from __future__ import annotations

from collections.abc import Iterator

from convertkit.artifact import Array
from convertkit.converters.tflite import flatbuffer
from convertkit.converters.tflite.flatbuffer import Table

BUFFER = "TFLITE_METADATA"
_IDENTIFIER = b"M001"
_DESCRIPTION, _SUBGRAPHS = 1, 3
_INPUTS, _OUTPUTS = 2, 3
_NAME, _PROCESS_UNITS, _FILES = 0, 4, 6
_NORMALIZATION, _VALUE_LABELS = 1, 3


def described(metadata: Array) -> tuple[str, ...]:
    """Sentences for the report; none where the buffer is of another version. ``SourceError`` where it is broken."""
    data = metadata.tobytes()
    if data[4:8] != _IDENTIFIER:
        return ()
    model = flatbuffer.root(memoryview(data))
    found = [f"the file describes itself: {text}"] if (text := model.text(_DESCRIPTION)) else []
    for graph in model.tables(_SUBGRAPHS)[:1]:
        for tensor in graph.tables(_INPUTS):
            found += _normalization(tensor)
        for tensor in graph.tables(_OUTPUTS):
            found += [_labels(tensor, file) for file in tensor.tables(_FILES)]
    return tuple(found)


def _labels(tensor: Table, file: Table) -> str:
    values = " of its values" if file.scalar(2, "u8", 0) == _VALUE_LABELS else ""
    return f"output {tensor.text(_NAME)} has labels{values} in {file.text(0)}"


def _normalization(tensor: Table) -> Iterator[str]:
    for unit in tensor.tables(_PROCESS_UNITS):
        options = unit.table(1)
        if unit.scalar(0, "u8", 0) == _NORMALIZATION and options is not None:
            mean, std = (", ".join(f"{x:g}" for x in options.array(slot, "<f4").tolist()) for slot in (0, 1))
            yield f"input {tensor.text(_NAME)} was normalised: mean {mean}, deviation {std}"
