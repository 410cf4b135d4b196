"""ONNX Runtime's int8 files on an A76 that is not here: ``onnxruntime_arm.py ZOO OUT --peers DIR [--write]``.

Ours as ``--int8`` delivers them for servers and for ``--device arm64-a76``, beside float32 and the files of ONNX
Runtime's own quantizers; SNR on the samples of NAME.eval.npz, milliseconds by emulation (``arm_costs.py``, whose root
has to have ONNX Runtime's wheel) and by the tables, as ``convertkit bench --device`` tells them.  Findings are lines
of OUT/rows.jsonl, and what is in there is not done again; ``--write`` puts the table into
docs/measurements/device-costs.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from arm.cores import cores
from arm.emulator import counted
from arm.schedule import Schedule
from device_zoo import FLOAT, PROBED, Book, exported, zoo_arguments
from page_rows import replace_between
from tflite_zoo import measured, peers_of

from convertkit.errors import Unsupported
from convertkit.targets.onnxruntime.estimate import estimates

PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "device-costs.md"
BEGIN, END = "<!-- bench/onnxruntime_arm.py -->", "<!-- end of ONNX Runtime -->"
CORE = "arm64-a76"
OURS = {"`--int8`": ("--int8",), f"`--int8 --device {CORE}`": ("--int8", "--device", CORE)}
NAMES = ("bert_small", "gru", "unet", "mobilenetv2", "mobilenetv3s")
HEAD = f"| model | file | KB | SNR dB: all, median, 5th percentile | `{CORE}` ms, emulated | by the tables | ratio |"
HEAD += "\n|---|---|---|---|---|---|---|"
TABLES = "tables"


def measure(book: Book, zoo: Path, out: Path, peers: Path, name: str) -> None:
    """Everything about one model that is not in the book; its files by one start of the emulator."""
    source = zoo / f"{name}.onnx"
    files = {FLOAT: source}
    for label, flags in OURS.items():
        folder = out / f"{name}.{len(flags)}"
        if (name, label, "export") not in book.rows():
            book.add(name, label, "export", exported(source, flags, folder, "onnxruntime"))
        if not book.rows()[name, label, "export"]["exit"]:
            files[label] = folder / "model.onnx"
    others = peers_of(name, peers, {"int8", "w8"})
    files |= {label: path for label, path in others.items() if path.suffix == ".onnx"}
    for label, path in files.items():
        if (name, label, "probe") not in book.rows():
            probed = measured("probe", path, source, zoo / f"{name}.eval.npz")
            book.add(name, label, "probe", {key: probed.get(key) for key in PROBED} | {"bytes": path.stat().st_size})
        if (name, label, TABLES) not in book.rows():
            book.add(name, label, TABLES, {"ms": _by_tables(path)})
    missing = {label: path for label, path in files.items() if (name, label, CORE) not in book.rows()}
    if missing:
        core = cores()[CORE]
        counts, _ = counted(list(missing.values()), core)
        for label, found in zip(missing, Schedule(core).estimates(counts), strict=True):
            book.add(name, label, CORE, {"ms": found.nanoseconds / 1e6})


def _by_tables(path: Path) -> float | None:
    try:
        (found,) = estimates(path, (CORE,))
    except Unsupported:
        return None
    return found.ms


def section(book: Book) -> str:
    """The table, and ours over the fastest of the peers'."""
    known, made, ratios, errors = book.rows(), [HEAD], [], []
    for name in dict.fromkeys(model for model, *_ in known):
        times = {label: row["ms"] for (model, label, kind), row in known.items() if (model, kind) == (name, CORE)}
        for label, ms in times.items():
            probe = known[name, label, "probe"]
            snr = "–" if label == FLOAT else ", ".join(f"{probe[key]:.1f}" for key in PROBED[1:4])
            told = known[name, label, TABLES]["ms"]
            beside = "– | –" if told is None else f"{told:.3g} | {told / ms:.2f}"
            errors += [] if told is None else [max(told / ms, ms / told) - 1]
            made.append(f"| {name} | {label} | {probe['bytes'] / 1000:,.0f} | {snr} | {ms:.3g} | {beside} |")
        own = times.get(list(OURS)[-1])
        others = [ms for label, ms in times.items() if label not in OURS and label != FLOAT]
        if own is not None and others:
            ratios.append(own / min(others))
    mean = float(np.exp(np.mean(np.log(ratios))))
    told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    best = f"For that core over the fastest file of the peer: {told}; mean {mean:.2f}."
    error = f"The tables beside emulation: median error {np.median(errors):.0%}, worst {max(errors):.0%}.".replace(
        "%", " %"
    )
    return "\n".join((BEGIN, *made, "", best, error, END))


def main() -> None:
    """Make, measure and write."""
    parser = zoo_arguments(__doc__, NAMES)
    parser.add_argument("--peers", type=Path)
    args = parser.parse_args()
    book = Book.of(args.out)
    if args.write:
        replace_between(PAGE, section(book), BEGIN, END)
        return
    for name in args.models.split(","):
        measure(book, args.zoo, args.out, args.peers, name)


if __name__ == "__main__":
    main()
