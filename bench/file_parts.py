"""What the bytes of TFLite files are: ``file_parts.py FILE.tflite …`` prints a row of a Markdown table for each.

Scales and zero points that several tensors share count once, as they are stored.  The rest is what describes the graph:
tensors, shapes, names, operators, and what aligns buffers.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from ai_edge_litert import schema_py_generated as schema

COLUMNS = ("int8", "int32", "float32", "scales", "zero points", "notes", "rest")
TYPES = {schema.TensorType.INT8: "int8", schema.TensorType.INT32: "int32", schema.TensorType.FLOAT32: "float32"}


def parts(path: Path) -> dict[str, int]:
    """Bytes of each column."""
    data = path.read_bytes()
    model = schema.Model.GetRootAs(data, 0)
    found: Counter[str] = Counter()
    seen: set[int] = set()
    for place in range(model.SubgraphsLength()):
        graph = model.Subgraphs(place)
        for index in range(graph.TensorsLength()):
            tensor = graph.Tensors(index)
            stored = model.Buffers(tensor.Buffer())
            _once(found, seen, TYPES.get(tensor.Type(), "rest"), stored.DataAsNumpy())
            params = tensor.Quantization()
            if params is not None:
                _once(found, seen, "scales", params.ScaleAsNumpy())
                _once(found, seen, "zero points", params.ZeroPointAsNumpy())
    for index in range(model.MetadataLength()):
        _once(found, seen, "notes", model.Buffers(model.Metadata(index).Buffer()).DataAsNumpy())
    found["rest"] += len(data) - found.total()
    return {name: found[name] for name in COLUMNS}


def _once(found: Counter[str], seen: set[int], name: str, array: object) -> None:
    """Count an array of the file where none before it lies at the same place."""
    if not hasattr(array, "__array_interface__"):
        return
    place = array.__array_interface__["data"][0]
    if place not in seen:
        seen.add(place)
        found[name] += array.nbytes  # type: ignore[attr-defined]


def main() -> None:
    """Print the table."""
    print(f"| file | bytes | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for path in map(Path, sys.argv[1:]):
        numbers = " | ".join(f"{count:,}" for count in parts(path).values())
        print(f"| {path.parent.name}/{path.name} | {path.stat().st_size:,} | {numbers} |")


if __name__ == "__main__":
    main()
