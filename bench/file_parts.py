"""What the bytes of TFLite files are: ``file_parts.py FILE.tflite=SOURCE.onnx … [--write]``, a row for each.

Scales and zero points that several tensors share count once, as they are stored.  The rest is what describes the graph:
tensors, shapes, names, operators, and what aligns buffers.  ``numbers`` are all but notes and rest: what no file with
these weights, scales and zero points is smaller than.  ``least`` is the same with one byte for each float.  ``--write``
puts the table into docs/measurements/device-zoo.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ai_edge_litert import schema_py_generated as schema
from page_rows import replace_between

PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "device-zoo.md"
BEGIN, END = "<!-- bench/file_parts.py -->", "<!-- end of bytes -->"
COLUMNS = ("int8", "int32", "float32", "float16", "scales", "zero points", "notes", "rest")
TYPES = {
    schema.TensorType.INT8: "int8",
    schema.TensorType.INT32: "int32",
    schema.TensorType.FLOAT32: "float32",
    schema.TensorType.FLOAT16: "float16",
}
FLOATS = {"float32": 4, "float16": 2}


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


def row(path: Path, source: Path) -> str:
    """Bytes, and which share of the source's the file, its numbers and the least of them are."""
    found, whole, size = parts(path), source.stat().st_size, path.stat().st_size
    numbers = size - found["notes"] - found["rest"]
    least = numbers - sum(found[name] * (width - 1) // width for name, width in FLOATS.items())
    shares = " | ".join(f"{100 * each / whole:.2f} %" for each in (size, numbers, least))
    return f"| {path.parent.name} | {size:,} | {shares} | {' | '.join(f'{count:,}' for count in found.values())} |"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE=SOURCE")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    pairs = [each.partition("=")[::2] for each in args.files]
    head = f"| file | bytes | of the ONNX | its numbers | least | {' | '.join(COLUMNS)} |"
    rows = [row(Path(path), Path(source)) for path, source in pairs]
    made = "\n".join((BEGIN, head, "|---" * (len(COLUMNS) + 5) + "|", *rows, END))
    if not args.write:
        print(made)
        return
    replace_between(PAGE, made, BEGIN, END)


if __name__ == "__main__":
    main()
