"""The zoo with weights of 4 bits: ``size_first.py ZOO OUT [--models A,B] [--write]``.

``--w4``, which takes 1/6.5 of float32's bytes of weights at most, and ``--w4 --size-first``, which goes for the
smallest: bytes beside the ONNX file's, and what 64 samples keep that no calibration saw.  Each finding is a line of
OUT/rows.jsonl, and what is in there is not done again; ``--write`` puts the table into docs/measurements/device-zoo.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from device_zoo import PAGE, PROBED, Book, exported, zoo_arguments
from page_rows import replace_between
from tflite_zoo import NAMES, measured

BEGIN, END = "<!-- bench/size_first.py -->", "<!-- end of 4 bits -->"
HEAD = "| model | flags | KB | of the ONNX | SNR dB: all, median, 5th percentile |\n|---|---|---|---|---|"
FORMS = {"`--w4`": ("--w4",), "`--w4 --size-first`": ("--w4", "--size-first")}


def measure(book: Book, zoo: Path, out: Path, name: str) -> None:
    """What is not in the book."""
    source = zoo / f"{name}.onnx"
    for label, flags in FORMS.items():
        folder = out / f"{name}.{'-'.join(flags).replace('--', '')}"
        if (name, label, "export") not in book.rows():
            calib = ("--calib", str(source.with_suffix(".calib.npz")))
            book.add(name, label, "export", exported(source, (*flags, *calib), folder))
        if book.rows()[name, label, "export"]["exit"] or (name, label, "probe") in book.rows():
            continue
        path = folder / "model.tflite"
        probed = measured("probe", path, source, source.with_suffix(".eval.npz"))
        told = {"bytes": path.stat().st_size, "share": path.stat().st_size / source.stat().st_size}
        book.add(name, label, "probe", {key: probed.get(key) for key in PROBED} | told)


def lines(book: Book) -> Iterator[str]:
    """The table."""
    known = book.rows()
    for (name, label, kind), row in known.items():
        if kind == "export" and row["exit"]:
            yield f"| {name} | {label} | not delivered: {row['said'].split(' | ')[0]} | | |"
        elif kind == "probe" and row["ok"]:
            snr = ", ".join(f"{row[key]:.1f}" for key in PROBED[1:4])
            share = f"{100 * row['share']:.1f} %, 1/{1 / row['share']:.1f}"
            yield f"| {name} | {label} | {row['bytes'] / 1000:,.0f} | {share} | {snr} |"


def main() -> None:
    """Measure, or write."""
    parser = zoo_arguments(__doc__, NAMES)
    args = parser.parse_args()
    book = Book.of(args.out)
    if args.write:
        replace_between(PAGE, "\n".join((BEGIN, HEAD, *lines(book), END)), BEGIN, END)
        return
    for name in args.models.split(","):
        measure(book, args.zoo, args.out, name)


if __name__ == "__main__":
    main()
