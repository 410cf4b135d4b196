"""Our files for servers beside those of other tools, from the same calibration data: SNR, size, latency in turns.

    python bench/server_peers.py OUT FOLDER [FOLDER …] [--olive PY] [--nncf PY] [--modelopt PY] [--tf PY]
                                 [--models A,B] [--families onnxruntime,openvino,tf-serving,tensorrt] [--seconds S]
    python bench/server_peers.py OUT --page docs/measurements/server-peers.md

FOLDER holds NAME.onnx, NAME.calib.npz and NAME.eval.npz.  PY are interpreters of the peers' environments
(bench/peers/README.md); a peer without one is left out.  Files that exist in OUT are kept, and of a family of a model
whose line stands in ``OUT/rows.jsonl`` nothing is done again.  Latency: all files of a family in one process, on one
thread, in interleaved rounds, three such processes; of the TensorRT form none is measured, as that takes a GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from server_page import APART
from server_zoo import FORMS, Row, Rows, exported, size, told

PEERS = Path(__file__).parent / "peers"
OURS = {
    "onnxruntime": ("onnxruntime.int8",),
    "openvino": ("openvino.int8", "openvino.int8-any"),
    "tf-serving": ("tf-serving.float32",),
    "tensorrt": ("tensorrt.int8",),
}
TITLES = {
    "onnxruntime": "ONNX Runtime, int8",
    "openvino": "OpenVINO, int8",
    "tf-serving": "TensorFlow Serving, float32",
    "tensorrt": "The TensorRT form, int8",
}
INSISTING: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("mobilenetv2", "openvino"): ("openvino.int8-loss",),
    ("efficientnet_b0", "openvino"): ("openvino.int8-loss",),
    ("unet", "onnxruntime"): ("onnxruntime.int8-vnni",),
}
"""Integers everywhere, where these lose more than is delivered unasked; weights without the bound that processors
without VNNI need, which the peers' files do not keep."""
OWN = "convertkit"
LABELS = {
    "int8-any": f"{OWN}, any x86",
    "int8-loss": f"{OWN}, --accept-loss",
    "int8-vnni": f"{OWN}, --onnxruntime-cpu vnni",
}
TURNS = 3
RACED = ("rounds", "ms", "interval", "ratio", "ratio_interval")
TRANSFORMERS = frozenset({"bert_small", "vit_tiny", "gpt_block"})
FORMS |= {
    "openvino.int8-any": ("--int8",),
    "onnxruntime.int8-vnni": ("--int8", "--onnxruntime-cpu", "vnni"),
    "openvino.int8-loss": ("--int8", "--openvino-cpu", "vnni", "--accept-loss"),
    "tensorrt.int8": ("--int8",),
}


def commands(model: Path, out: Path, pythons: Mapping[str, str]) -> dict[str, dict[str, tuple[Path, list[str | Path]]]]:
    """By family and peer: the file, and the command that makes it."""
    calibration, name = model.with_name(f"{model.stem}.calib.npz"), model.stem

    def file(peer: str, suffix: str) -> Path:
        return out / f"{name}.{peer}{suffix}"

    found: dict[str, dict[str, tuple[Path, list[str | Path]]]] = {family: {} for family in OURS}
    for way in ("MinMax", "Percentile"):
        path = file(f"onnxruntime-{way.lower()}", ".onnx")
        found["onnxruntime"][f"onnxruntime.quantization, {way}"] = (
            path,
            [sys.executable, PEERS / "ort_qdq.py", model, path, way, calibration],
        )
    if python := pythons.get("olive"):
        path = file("olive", ".onnx")
        found["onnxruntime"]["Olive"] = path, [python, PEERS / "olive_quantize.py", model, path, calibration]
    if python := pythons.get("nncf"):
        kind = "transformer" if name in TRANSFORMERS else "none"
        for preset in ("performance", "mixed"):
            path = file(f"nncf-{preset}", ".xml")
            command: list[str | Path] = [python, PEERS / "nncf_quantize.py", model, path, calibration, preset, kind]
            found["openvino"][f"NNCF, {preset}"] = path, command
    if python := pythons.get("tf"):
        path = file("onnx2tf", ".folder")
        found["tf-serving"]["onnx2tf"] = path, [python, PEERS / "onnx2tf_cli.py", model, path, "--saved-model"]
    if python := pythons.get("modelopt"):
        path = file("modelopt", ".onnx")
        found["tensorrt"]["ModelOpt"] = path, [python, PEERS / "modelopt_quantize.py", model, path, calibration]
    return found


def made(model: Path, family: str, out: Path, pythons: Mapping[str, str]) -> tuple[dict[str, Path], dict[str, str]]:
    """The files of one family, ours first, and why others are not there."""
    files, failures = dict[str, Path](), dict[str, str]()
    for form in (*OURS[family], *INSISTING.get((model.stem, family), ())):
        path, refusal = exported(model, form, out)
        label = LABELS.get(form.split(".")[1], OWN)
        if path is None:
            failures[label] = refusal
        else:
            files[label] = path
    for label, (path, command) in commands(model, out, pythons)[family].items():
        if not path.exists():
            quiet = os.environ | {"OLIVE_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
            ran = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
            if ran.returncode or not path.exists():
                failures[label] = next(iter(ran.stderr.strip().splitlines()[-1:]), f"exit code {ran.returncode}")[:300]
                continue
        files[label] = path
    return files, failures


def measured(model: Path, family: str, files: Mapping[str, Path], seconds: float) -> Row:
    data = model.with_name(f"{model.stem}.eval.npz")
    found: Row = {"files": {}}
    if family == "tensorrt":
        os.environ["MEASURE_PLAIN"] = "1"
    for label, path in files.items():
        probed = told("probe", path, model, data)
        kept = ("snr_db", "snr_median_db", "relative_error", "top1", "transposes", "operators", "error")
        found["files"][label] = {**{key: probed.get(key) for key in kept}, "bytes": size(path)}
    os.environ.pop("MEASURE_PLAIN", None)
    running = [label for label in files if found["files"][label]["error"] is None]
    if family != "tensorrt" and len(running) > 1:
        ours = sum(label.startswith(OWN) for label in running)
        paths = [files[label] for label in running]
        turns = [told("latency", seconds / TURNS, ours, data, *paths) for _ in range(TURNS)]
        found["latency"] = {"turns": [{key: each[key] for key in RACED} for each in turns], "files": running}
    return found


def page(rows: Mapping[tuple[str, str], Row]) -> str:
    """The page in Markdown: a table for each family, a row for each of our forms, a column for each peer."""
    lines = [_HEAD]
    for family, title in TITLES.items():
        chosen = {model: row for (model, what), row in sorted(rows.items()) if what == family}
        labels = list(dict.fromkeys(label for row in chosen.values() for label in (*row["files"], *row["failures"])))
        if not chosen:
            continue
        peers = [label for label in labels if not label.startswith(OWN)]
        lines += [f"## {title}", "", _WHAT[family], "", f"| model | {' | '.join((OWN, *peers))} |"]
        lines.append("|---" * (len(peers) + 2) + "|")
        for model, row in chosen.items():
            lines += _forms(model, row, family, peers)
        failed = [
            f"- {model}, {label}: {each}" for model, row in chosen.items() for label, each in row["failures"].items()
        ]
        lines += ["", *failed, *([""] if failed else [])]
    return "\n".join(lines)


def _forms(model: str, row: Row, family: str, peers: list[str]) -> list[str]:
    """A row for each of our forms; the peers' numbers stand in the first."""
    lines = []
    for own in (label for label in (*row["files"], *row["failures"]) if label.startswith(OWN)):
        first = not lines
        cells = [_cell(own, row, family), *(_beside(own, peer, row, family, whole=first) for peer in peers)]
        lines.append(f"| {model}{own.removeprefix(OWN)} | {' | '.join(cells)} |")
    return lines


def _cell(label: str, row: Row, family: str) -> str:
    """Signal or error, accuracy, size and time of one file."""
    found: dict[str, Any] | None = row["files"].get(label)
    if found is None or found["snr_db"] is None:
        return "–" if found is None and label not in row["failures"] else "failed"
    parts = [f"{found['relative_error']:.1e}" if family == "tf-serving" else _signal(found)]
    if found["top1"] is not None:
        parts.append(f"{found['top1']:.2f} %")
    parts.append(f"{found['bytes'] / 1000:,.0f} KB")
    if family == "tf-serving":
        parts.append(f"{found['transposes']} transposes")
    times = row.get("latency", {})
    if label in times.get("files", ()):
        place = times["files"].index(label)
        parts.append(f"{statistics.median(turn['ms'][place] for turn in times['turns']):.3g} ms")
    return ", ".join(parts)


def _signal(found: Mapping[str, Any]) -> str:
    """Signal over noise of all samples, and the median sample's where a few loud samples decide the sum."""
    sum_db, median_db = found["snr_db"], found.get("snr_median_db", found["snr_db"])
    return f"{sum_db:.1f} dB" + (f" (median {median_db:.1f})" if median_db - sum_db >= APART else "")


def _beside(own: str, peer: str, row: Row, family: str, *, whole: bool) -> str:
    """A peer's file and our time over its, or of a further form of ours the ratio alone."""
    parts = [_cell(peer, row, family)] if whole else []
    times = row.get("latency", {})
    if {own, peer} <= set(times.get("files", ())):
        here, there = times["files"].index(own), times["files"].index(peer)
        middle = statistics.median(turn["ratio"][here][there] for turn in times["turns"])
        spans = [turn["ratio_interval"][here][there] for turn in times["turns"]]
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        parts.append(f"ours {middle:.3f} × [{low:.3f}, {high:.3f}]")
    return ", ".join(parts) or "–"


_HEAD = """# Servers beside peers

Written by `bench/server_peers.py`: every tool with its defaults, from the same calibration samples, on the zoo's
networks (random weights, so that SNR is a stress test) and on trained models. SNR over the evaluation samples against
ONNX Runtime's float32. Latency: the process's own time for a call on one thread, all files of a row in turns in one
process, three processes (some rows of ONNX Runtime and TensorFlow: one). *Ours* is convertkit's time over the peer's:
the median of the processes' medians of ratios within a round, and in brackets the least and the greatest end of their
95 % intervals. Where these hold 1 the two are equally fast as far as this run can tell. The processor has VNNI.
On keyword spotting ours stores the weights as integers for ONNX Runtime and computes in float, as integers would save
less than the 30 % that convertkit asks for, on maps [lying on their side](onnxruntime-sideways.md): they are as fast as
floats on a processor with AMX, and take 0.84 of their time here, at 20 dB less.
"""
_WHAT = {
    "onnxruntime": "onnxruntime.quantization 1.31.1 (QDQ, per channel, signed) and Olive 0.13.0\n"
    "(`OnnxStaticQuantization`). Their weights take the full range, whose products overflow on x86 without VNNI; ours\n"
    "do not by default, and take it, too, with `--onnxruntime-cpu vnni`, of which U-Net has a row.",
    "openvino": "NNCF 3.4.0, both presets (mixed is its default for a transformer), `model_type` transformer where it\n"
    "is one. convertkit with `--openvino-cpu vnni`, and with its default, *any x86*, which is exact on processors\n"
    "without VNNI, too. `--accept-loss`: integers everywhere, also where they keep less than is delivered unasked.\n"
    "[Why](openvino.md#where-nncfs-files-are-faster) some rows are above 1. Where the median sample keeps 3 dB\n"
    "more than all together, it is told.",
    "tf-serving": "onnx2tf 2.6.9 (its TensorFlow converter). The largest difference over an output's largest value:\n"
    "onnx2tf's GPT block computes something else.",
    "tensorrt": "ModelOpt 0.47.0 (entropy). Both run as QDQ in ONNX Runtime without optimisations: what TensorRT\n"
    "makes of them, and how fast, takes a GPU and was not executed. ModelOpt's float parts are float16, ours float32.\n"
    "Of a GRU, whose classifier is narrower than a GPU's tiles, neither makes integers.",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="*")
    for peer in ("olive", "nncf", "modelopt", "tf"):
        parser.add_argument(f"--{peer}", metavar="PY")
    parser.add_argument("--models", default="")
    parser.add_argument("--families", default=",".join(OURS))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--make-only", action="store_true", help="make the files, and measure nothing")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = Rows(options.out / "rows.jsonl")
    pythons = {peer: getattr(options, peer) for peer in ("olive", "nncf", "modelopt", "tf")}
    models = {each.stem: each for folder in options.folders for each in sorted(folder.glob("*.onnx"))}
    for name in options.models.split(",") if options.models else models:
        for family in options.families.split(","):
            if (name, family) not in rows.known:
                files, failures = made(models[name], family, options.out, pythons)
                if options.make_only:
                    continue
                found = measured(models[name], family, files, options.seconds)
                rows.add(name, family, {**found, "failures": failures})
    if options.page:
        options.page.write_text(page(rows.known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
