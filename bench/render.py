"""The page of benchmarks: ``render.py OUT/zoo.json [--peers peers.json] [--conversion J] [--large J] > PAGE.md``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

NAMES = (
    *("mobilenetv2", "mobilenetv3s", "resnet18", "efficientnet_b0", "convnext_t", "vit_tiny"),
    *("bert_small", "unet", "yolo_head", "lstm", "gru", "gpt_block"),
)
Record = dict
HEAD = """# Benchmarks beside peers

Twelve architectures with seeded random weights and sane statistics (`bench/make_zoo.py`; each has 32 calibration and 8
evaluation samples), through `convertkit export --target tflite` and through each peer's own command
([how](../../bench/peers/README.md)). LiteRT 2.3 with XNNPACK, one thread.

- **Latency**: all artifacts of a model are loaded into one process and called in turns, in a shuffled order. A
  round's value is the fastest of three calls, in CPU milliseconds of the calling thread (nothing runs elsewhere), so
  that a busy machine does not count as a slow model; the table has the median over rounds with its 95 % bootstrap
  interval. *Ratio* pairs rounds: ours / theirs, below 1 is faster.
- **Error**: largest difference from ONNX Runtime's float32 output over the evaluation samples, relative to the
  largest value; eight calls of one interpreter, so that state that leaks from call to call shows.
- **SNR**: signal over noise of all outputs against the float model. Weights are random: it is a stress test, not an
  accuracy.

Reproduce: `bench/make_zoo.py zoo`, `bench/peers/make_peers.py zoo peers …`, then
`make bench ZOO=zoo PEERS=peers ONNX2TF=P/onnx2tf/bin/python`, which writes `build/bench/benchmarks.md`.
"""


def runner(results: Record, name: str, race: str, label: str) -> tuple[float, list[float]] | None:
    record = results.get(f"{name}.race.{race}", {})
    if label not in record.get("runners", []) or "ms" not in record:
        return None
    place = record["runners"].index(label)
    return record["ms"][place], record["interval"][place]


def ratio(results: Record, name: str, race: str, ours: str, theirs: str) -> float | None:
    record = results.get(f"{name}.race.{race}", {})
    if "ratio" not in record or ours not in record["runners"] or theirs not in record["runners"]:
        return None
    return record["ratio"][record["runners"].index(ours)][record["runners"].index(theirs)]


def cell(results: Record, name: str, race: str, label: str) -> str:
    found = runner(results, name, race, label)
    return "–" if found is None else f"{found[0]:.3g} [{found[1][0]:.3g}, {found[1][1]:.3g}]"


def fastest(results: Record, name: str, race: str, precisions: tuple[str, ...]) -> str | None:
    """The peer's .tflite with the best median, right ones only (float: relative error below 1e-3)."""
    best: tuple[float, str] | None = None
    for label in results.get(f"{name}.race.{race}", {}).get("runners", []):
        peer, precision = label.rsplit(".", 1)
        if peer in ("convertkit", "onnxruntime") or precision not in precisions:
            continue
        wrong = precision == "float32" and results[f"{name}.{label}"].get("relative_error", 1) > 1e-3
        found = runner(results, name, race, label)
        if found and not wrong and (best is None or found[0] < best[0]):
            best = (found[0], label)
    return best[1] if best else None


def mean_line(text: str, ratios: list[float]) -> str:
    if not ratios:
        return ""
    return f"\nGeometric mean of {text} over {len(ratios)} models: **{float(np.exp(np.mean(np.log(ratios)))):.3f}**.\n"


def float_table(results: Record) -> str:
    rows = [
        "## float32",
        "",
        "| model | convertkit ms | best peer ms | peer | ratio | ONNX Runtime ms | ratio | error | peer's | operators "
        "| peer's | transposes | peer's |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for name in NAMES:
        mine = results.get(f"{name}.convertkit.float32", {})
        peer = fastest(results, name, "float32", ("float32",))
        theirs = results.get(f"{name}.{peer}", {}) if peer else {}
        against = ratio(results, name, "float32", "convertkit.float32", peer) if peer else None
        onnx = ratio(results, name, "float32", "convertkit.float32", "onnxruntime.float32")
        ratios += [against] if against else []
        rows.append(
            f"| {name} | {cell(results, name, 'float32', 'convertkit.float32')} "
            f"| {cell(results, name, 'float32', peer) if peer else 'none right'} "
            f"| {peer.rsplit('.', 1)[0] if peer else ''} "
            f"| {number(against)} | {cell(results, name, 'float32', 'onnxruntime.float32')} | {number(onnx)} "
            f"| {scientific(mine)} | {scientific(theirs)} | {mine.get('operators', '–')} "
            f"| {theirs.get('operators', '–')} "
            f"| {mine.get('transposes', '–')} | {theirs.get('transposes', '–')} |"
        )
    return "\n".join(rows) + "\n" + mean_line("ours / best peer", ratios)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def scientific(record: Record) -> str:
    return f"{record['relative_error']:.0e}" if "relative_error" in record else "–"


def decibels(record: Record) -> str:
    return f"{record['snr_db']:.1f}" if "snr_db" in record else "–"


def eight_bit_table(results: Record) -> str:
    rows = [
        "## 8 bits",
        "",
        "`--int8` (integer where it pays) and `--w8` (integer weights) beside the fastest 8-bit artifact of any peer "
        "(static or dynamic range) and beside our own float32.",
        "",
        "| model | int8 ms | dB | w8 ms | dB | fastest peer ms | peer | dB | int8 / peer | w8 / peer "
        "| int8 / our float32 |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for name in NAMES:
        eight, weights = (results.get(f"{name}.convertkit.{p}", {}) for p in ("int8", "w8"))
        peer = fastest(results, name, "8bit", ("int8", "w8"))
        theirs = results.get(f"{name}.{peer}", {}) if peer else {}
        pairs = [ratio(results, name, "8bit", f"convertkit.{p}", peer) if peer else None for p in ("int8", "w8")]
        ratios += [pairs[0]] if pairs[0] else []
        own = ratio(results, name, "8bit", "convertkit.int8", "convertkit.float32")
        rows.append(
            f"| {name} | {cell(results, name, '8bit', 'convertkit.int8')} | {decibels(eight)} "
            f"| {cell(results, name, '8bit', 'convertkit.w8')} | {decibels(weights)} "
            f"| {cell(results, name, '8bit', peer) if peer else 'none'} | {peer or ''} | {decibels(theirs)} "
            f"| {number(pairs[0])} | {number(pairs[1])} | {number(own)} |"
        )
    return "\n".join(rows) + "\n" + mean_line("int8 / fastest peer", ratios)


def peer_table(results: Record, peers: Record) -> str:
    """What became of every peer's attempt."""
    kinds = sorted({key.split(".", 1)[1] for key in peers})
    rows = ["## Every peer's artifact", "", "Milliseconds and SNR, or what went wrong.", ""]
    rows += [f"| model | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for name in NAMES:
        cells = []
        for kind in kinds:
            attempt, record = peers.get(f"{name}.{kind}"), results.get(f"{name}.{kind}", {})
            race = "float32" if kind.endswith("float32") else "8bit"
            found = runner(results, name, race, kind)
            if attempt is None:
                cells.append("not tried")
            elif not attempt["ok"]:
                cells.append("conversion fails")
            elif record.get("error"):
                cells.append("does not run")
            else:
                cells.append(f"{found[0]:.3g} ms, {decibels(record)} dB" if found else "not raced")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def conversion_table(conversion: Record) -> str:
    rows = [
        "## Conversion",
        "",
        "`convertkit export` from ONNX with every verification, against onnx2tf 2.6's bare conversion; each a process "
        "of its own, in turns, the best of each. CPU seconds, wall seconds in brackets; peak RSS.",
        "",
        "| model | ONNX → TFLite stage | whole export | onnx2tf | CPU ratio | our RSS | onnx2tf RSS |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, record in conversion.items():
        ours, theirs, stage = record.get("convertkit"), record.get("onnx2tf"), record["stage"]
        seconds = [f"{r['cpu_s']:.2f} ({r['wall_s']:.2f}) s" if r else "–" for r in (stage, ours, theirs)]
        memory = [f"{r['peak_rss'] / 1e6:.0f} MB" if r else "–" for r in (ours, theirs)]
        share = f"{ours['cpu_s'] / theirs['cpu_s']:.2f}" if ours and theirs else "–"
        rows.append(f"| {name} | {' | '.join(seconds)} | {share} | {' | '.join(memory)} |")
    return "\n".join(rows) + "\n"


def large_text(large: Record) -> str:
    size, converted, ran = large["model_bytes"], large["convert"], large["run"]
    bar = 1.5 * size + 250e6
    return (
        f"## A model past 2 GB\n\n{size / 1e9:.2f} GB of weights: the conversion stage peaks at "
        f"{converted['peak_rss'] / 1e9:.2f} GB (bar: 1.5 × model + 250 MB = {bar / 1e9:.2f} GB), the file runs in "
        f"LiteRT with a relative error of {ran['relative_error']:.0e} (`bench/large_model.py`).\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("zoo", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--conversion", type=Path)
    parser.add_argument("--large", type=Path)
    args = parser.parse_args()
    results = json.loads(args.zoo.read_text())
    parts = [HEAD, float_table(results), eight_bit_table(results)]
    parts += [peer_table(results, json.loads(args.peers.read_text()))] if args.peers else []
    parts += [conversion_table(json.loads(args.conversion.read_text()))] if args.conversion else []
    parts += [large_text(json.loads(args.large.read_text()))] if args.large else []
    sys.stdout.write("\n".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
