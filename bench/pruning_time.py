"""How long pruning with reconstruction takes: ``pruning_time.py OUT ZOO [--models A,B] [--samples 128]``.

ZOO holds NAME.onnx of ``make_zoo.py``; samples are drawn as there.  What is timed is what ``--prune 0.8 --calib`` does
between loading the model and writing it: how much each layer bears, which weights go, and the reconstruction of those
that stay.  Every row is a line of ``OUT/pruning_time.jsonl``, and what is in there is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import zoo

from convertkit.onnx.load import load_model
from convertkit.progress import Silent
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.patterns import Pattern
from convertkit.quantization.pruning.products import find_products, total
from convertkit.quantization.pruning.removal import explicit_biases
from convertkit.quantization.pruning.sparsify import Sparsifier

SHARE = 0.8


def samples_of(name: str, count: int) -> list[dict[str, np.ndarray]]:
    names = zoo.input_names(name)
    return [dict(zip(names, (array.numpy() for array in zoo.sample(name, seed)), strict=True)) for seed in range(count)]


def row(folder: Path, name: str, count: int) -> dict[str, object]:
    """Seconds of each part on the wall, the processor's seconds, and the most memory in MB of 1,000,000 bytes."""
    feeds = samples_of(name, count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begun, used = time.perf_counter(), time.process_time()
    model = load_model(folder / f"{name}.onnx")
    prepare(model)
    explicit_biases(model.graph)
    worker = Sparsifier(model, feeds, {}, 0, Silent())
    curves = worker.curves()
    measured = time.perf_counter() - begun
    worker.pruned(Pattern(SHARE), curves)
    whole = time.perf_counter() - begun
    return {
        "name": name, "samples": count, "measured_on": len(worker.feeds), "weights": total(find_products(model.graph)),
        "curves_s": round(measured, 1), "pruned_s": round(whole - measured, 1), "wall_s": round(whole, 1),
        "processor_s": round(time.process_time() - used, 1), "before_mb": round(before / 1e6),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("--models", default="resnet18,vit_tiny")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--here", action="store_true", help="one model in this process, its row as JSON")
    args = parser.parse_args()
    if args.here:
        print(json.dumps(row(args.zoo, args.models, args.samples)))
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "pruning_time.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for name in args.models.split(","):
        if any((each["name"], each["samples"]) == (name, args.samples) for each in rows):
            continue
        command = [sys.executable, __file__, str(args.out), str(args.zoo), "--models", name, "--here"]
        done = subprocess.run(
            [*command, "--samples", str(args.samples)], check=True, stdout=subprocess.PIPE, text=True
        )  # a process of its own, so that memory is each model's own
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        with path.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    print("| model | weights | samples, measured on | how much layers bear | pruning | together | processor | memory |")
    print("|---|---|---|---|---|---|---|---|")
    for each in rows:
        print(
            f"| {each['name']} | {each['weights']:,} | {each['samples']}, {each['measured_on']} | {each['curves_s']} s "
            f"| {each['pruned_s']} s | {each['wall_s']} s | {each['processor_s']} s | {each['peak_mb']:,} MB |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
