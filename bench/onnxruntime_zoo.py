"""The zoo in int8 for ONNX Runtime, beside its own tools' files: ``onnxruntime_zoo.py ZOO OUT --peers DIR [--write]``.

Ours is what ``--int8`` delivers; SNR on the samples of NAME.eval.npz, times in turns on one thread.  Findings are kept
in OUT/rows.jsonl as ``device_zoo.py`` does; ``--write`` makes docs/measurements/onnxruntime-zoo.md of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from device_zoo import FLOAT, PROBED, Book, exported, zoo_arguments
from page_rows import replace_between
from tflite_zoo import NAMES, measured, peers_of

PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "onnxruntime-zoo.md"
BEGIN, END = "<!-- bench/onnxruntime_zoo.py -->", "<!-- end -->"
OURS = "`--int8`"
HEAD = "| model | file | KB | SNR dB: all, median, 5th percentile | ms | over the fastest 8-bit file of the peer |\n"


def measure(book: Book, zoo: Path, out: Path, peers: Path, name: str, seconds: float) -> None:
    """Everything about one model that is not in the book."""
    source, folder = zoo / f"{name}.onnx", out / name
    if (name, OURS, "export") not in book.rows():
        book.add(name, OURS, "export", exported(source, ("--int8",), folder, "onnxruntime"))
    if book.rows()[name, OURS, "export"]["exit"]:
        return
    others = {label: path for label, path in peers_of(name, peers, {"int8", "w8"}).items() if path.suffix == ".onnx"}
    files = {OURS: folder / "model.onnx", FLOAT: source, **others}
    data = zoo / f"{name}.eval.npz"
    for label, path in files.items():
        if (name, label, "probe") not in book.rows():
            probed = measured("probe", path, source, data)
            book.add(name, label, "probe", {key: probed.get(key) for key in PROBED} | {"bytes": path.stat().st_size})
    if (name, "", "race") not in book.rows():
        right = [label for label in files if book.rows()[name, label, "probe"]["ok"]]
        race = measured("latency", seconds, 1, data, *(files[label] for label in right))
        book.add(name, "", "race", {"files": right, "ms": race.get("ms"), "interval": race.get("interval")})


def section(book: Book) -> str:
    """The table."""
    known, made, ratios = book.rows(), [HEAD + "|---|---|---|---|---|---|"], []
    for name in dict.fromkeys(model for model, *_ in known):
        race = known.get((name, "", "race"))
        if race is None:
            continue
        times = dict(zip(race["files"], race["ms"], strict=True))
        fastest = min((ms for label, ms in times.items() if label not in (OURS, FLOAT)), default=None)
        for label, ms in times.items():
            probe = known[name, label, "probe"]
            snr = "–" if label == FLOAT else ", ".join(f"{probe[key]:.1f}" for key in PROBED[1:4])
            over = f"{ms / fastest:.2f}" if label == OURS and fastest else ""
            made.append(f"| {name} | {label} | {probe['bytes'] / 1000:,.0f} | {snr} | {ms:.3g} | {over} |")
        if fastest:
            ratios.append(times[OURS] / fastest)
    mean = float(np.exp(np.mean(np.log(ratios))))
    return "\n".join((BEGIN, *made, "", f"Geometric mean of the {len(ratios)}: {mean:.2f}.", END))


def main() -> None:
    """Make, measure and write."""
    parser = zoo_arguments(__doc__, NAMES)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--seconds", type=float, default=8.0)
    args = parser.parse_args()
    book = Book.of(args.out)
    if args.write:
        replace_between(PAGE, section(book), BEGIN, END)
        return
    for name in args.models.split(","):
        measure(book, args.zoo, args.out, args.peers, name, args.seconds)


if __name__ == "__main__":
    main()
