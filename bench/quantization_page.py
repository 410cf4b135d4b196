"""The page of ``quantization.py``: ``quantization_page.py OUT/quantization.json > PAGE.md``, in docs/measurements."""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from pathlib import Path

Records = dict[str, dict]
KINDS = {"int8": "Static int8", "w8": "8-bit weights", "w4": "4-bit weights"}
EXACT_DB = 90.0
"""Beyond this nothing was quantized."""
RUNTIMES = {"tflite": "LiteRT", "onnxruntime": "ONNX Runtime"}
HEAD = """# Quantization beside peers

Written by `bench/quantization.py` and `bench/quantization_page.py`; what the peers ran is in
[bench/peers](../../bench/peers/README.md). Every tool got the same calibration samples and is judged by its best file.
SNR: signal over noise of all outputs against ONNX Runtime's float32, over the evaluation samples, run by the runtime
that the file is for (XNNPACK, one thread). The zoo has random weights, so its SNR is a stress test and no accuracy; the
four trained models carry their accuracy.
ONNX Runtime's files were measured again later than LiteRT's, on another processor (x86-64 with VNNI), so that times of
the two do not compare; a file of ONNX Runtime without a time was not timed again. convertkit's integers for ONNX
Runtime are right on processors without VNNI, too, which the peers' overflow; where that bound costs U-Net 0.03 dB,
`--onnxruntime-cpu vnni` is 0.13 dB above the best peer ([beside peers](server-peers.md#onnx-runtime-int8)).

*Gain* is our SNR less the best peer's at the same kind of file, in dB. *Behind* names a peer's file that is better in
SNR and in size at once{latency}. A file that no one made is a dash. A peer's file counts as quantized when it has less
than 90 % of the float file's bytes and less than 90 dB.
"""


def kind(label: str) -> str:
    """``int8`` for ``onnxruntime.int8-entropy``."""
    return label.rsplit(".", 1)[1].split("-", maxsplit=1)[0]


def runtime(label: str) -> str:
    return "onnxruntime" if label.split(".", maxsplit=1)[0].removeprefix("convertkit ") == "onnxruntime" else "tflite"


def rivals(records: Records, which: str, where: str) -> Records:
    """The peers' quantized files of one kind for one runtime."""
    whole = records.get("convertkit tflite.float32", {}).get("bytes", math.inf)
    return {
        label: found
        for label, found in records.items()
        if not label.startswith("convertkit")
        and kind(label) == which
        and runtime(label) == where
        and found.get("ok")
        and -math.inf < found["snr_db"] < EXACT_DB
        and found["bytes"] < 0.9 * whole
    }


def at_hand(book: dict[str, Records]) -> dict[str, Records]:
    """The models that something was measured of."""
    return {name: records for name, records in book.items() if any(found.get("ok") for found in records.values())}


def ahead(one: dict, other: dict) -> bool:
    """Whether ``one`` is better in everything that was measured of both."""
    better = one["snr_db"] > other["snr_db"] and one["bytes"] < other["bytes"]
    return better and ("ms" not in one or "ms" not in other or one["ms"] < other["ms"])


def cell(found: dict | None) -> str:
    if not found or not found.get("ok"):
        return "–"
    time = f", {found['ms']:.3g} ms [{found['interval'][0]:.3g}, {found['interval'][1]:.3g}]" if "ms" in found else ""
    accuracy = f", {found['top1']:.2f} %" if found.get("top1") is not None else ""
    return f"{found['snr_db']:.1f} dB, {found['bytes'] / 1000:,.0f} KB{accuracy}{time}"


def table(book: dict[str, Records], which: str, where: str) -> list[str]:
    lines = [
        f"### {KINDS[which]}, {RUNTIMES[where]}",
        "",
        "| model | convertkit | best peer by SNR | | gain | behind |",
        "|---|---|---|---|---|---|",
    ]
    gains = []
    for name, records in book.items():
        mine, others = records.get(f"convertkit {where}.{which}"), rivals(records, which, where)
        best = max(others, key=lambda label: others[label]["snr_db"], default=None)
        done = bool(mine and mine.get("ok"))
        gain, behind = "", ""
        if done and best:
            gains.append(mine["snr_db"] - others[best]["snr_db"])
            gain = f"{gains[-1]:+.1f}"
            behind = ", ".join(label for label, other in others.items() if ahead(other, mine))
        theirs = cell(others[best]) if best else "–"
        lines.append(f"| {name} | {cell(mine)} | {theirs} | {best or ''} | {gain} | {behind} |")
    if gains:
        mean, middle = statistics.mean(gains), statistics.median(gains)
        lines += [
            "",
            f"Gain over {len(gains)}: mean {mean:+.1f} dB, median {middle:+.1f} dB, least {min(gains):+.1f} dB.",
        ]
    return [*lines, ""]


def races(book: dict[str, Records]) -> list[str]:
    """8-bit files in LiteRT against the fastest of the peers' that are no noisier, and against our own float32."""
    lines = [
        "### Latency of 8-bit files, LiteRT",
        "",
        "Milliseconds of one call, ours against the fastest 8-bit file of any peer at no worse SNR.",
        "",
        "| model | float32 | `--int8` | its rival | ratio | `--w8` | its rival | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, records in book.items():
        cells = [timing(records.get("convertkit tflite.float32"))]
        for which in ("int8", "w8"):
            mine = records.get(f"convertkit tflite.{which}", {})
            others = {**rivals(records, "int8", "tflite"), **rivals(records, "w8", "tflite")}
            equal = {key: each for key, each in others.items() if mine.get("ok") and each["snr_db"] >= mine["snr_db"]}
            timed = {key: each["ms"] for key, each in equal.items() if "ms" in each}
            rival = min(timed, key=lambda key: timed[key], default=None)
            ratio = f"{mine['ms'] / timed[rival]:.2f}" if rival and "ms" in mine else ""
            cells += [timing(mine), f"{timed[rival]:.3g} ({rival})" if rival else "none as exact", ratio]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def timing(found: dict | None) -> str:
    return f"{found['ms']:.3g}" if found and "ms" in found else "–"


def everything(book: dict[str, Records]) -> list[str]:
    """Every file, and what went wrong where there is none."""
    lines = ["## Every file", ""]
    for name, records in book.items():
        lines += [f"**{name}**", "", "| file | |", "|---|---|"]
        for label, found in sorted(records.items()):
            said = cell(found) if found.get("ok") else _short(str(found.get("error", "")))
            lines.append(f"| {label} | {said} |")
        lines.append("")
    return lines


def _short(error: str) -> str:
    """An error's beginning, fit for a table, without the folders of the machine it happened on."""
    return re.sub(r"/\S*site-packages/", "", error).replace("|", "/")[:140]


def main() -> int:
    book = at_hand(json.loads(Path(sys.argv[1]).read_text()))
    timed = any("ms" in found for records in book.values() for found in records.values())
    note = ", and in latency" if timed else " (latency is not measured on this page)"
    text = [HEAD.format(latency=note)]
    for which in KINDS:
        for where in RUNTIMES:
            text += table(book, which, where)
    print("\n".join([*text, *(races(book) if timed else ()), *everything(book)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
