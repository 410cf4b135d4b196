"""What ``--prune 2:4`` gains by another order of channels: ``channel_orders.py CASES [NAME …]``.

Each model of ``make_cases.py`` or ``compression_models.py`` is pruned with its channels as they are and in the order
that keeps more, each time with all layers fitted together.  Told is the SNR in dB in front of a softmax, on samples of
NAME.calib.npz that are held out, of which nothing was fitted.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from convertkit.data.held_out import held_out_positions
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.progress import Silent
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.joint import JointFit
from convertkit.quantization.pruning.order import better_orders, reordered
from convertkit.quantization.pruning.patterns import Pattern
from convertkit.quantization.pruning.sparsify import Sparsifier
from convertkit.quantization.pruning.surgery import explicit_biases
from convertkit.quantization.search.reference import Reference

TWO_OF_FOUR = Pattern(0.5, 2, 4)


def row(path: Path) -> str:
    model = canonicalize(load_model(path))
    prepare(model)
    explicit_biases(model.graph)
    data = np.load(path.with_suffix(".calib.npz"))
    (entry,) = model.graph.inputs
    shape = [size if isinstance(size, int) else 1 for size in entry.shape]
    feeds = [{str(entry.name): each.reshape(shape)} for each in data[data.files[0]]]
    apart = set(held_out_positions(len(feeds)))
    parts = [[feed for place, feed in enumerate(feeds) if (place in apart) == wanted] for wanted in (False, True)]
    fit = JointFit(model, *parts, {}, 0, Silent())
    worker = Sparsifier(model.clone(), fit.feeds, {}, 0, Silent())
    orders = better_orders(worker.model, TWO_OF_FOUR, worker.scores())
    reference = Reference(model.clone(), fit.held_out, {})
    levels = []
    for original in (worker.model, reordered(worker.model, orders)):
        made, _ = Sparsifier(original.clone(), fit.feeds, {}, 0, Silent()).pruned(TWO_OF_FOUR, {})
        plain = reference.quality(made.clone()).before_db
        replace(fit, original=original).run(made)
        levels += [plain, max(plain, reference.quality(made.clone()).before_db)]
    return f"| {path.stem} | {len(orders)} | " + " | ".join(f"{each:.1f}" for each in levels) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    names = args.names or sorted(each.stem for each in args.cases.glob("*.onnx"))
    print("| model | groups | as they are, dB | fitted together | in another order, dB | fitted together |")
    print("|---|---|---|---|---|---|")
    for name in names:
        print(row(args.cases / f"{name}.onnx"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
