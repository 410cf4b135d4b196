"""Export the zoo: ``make_zoo.py DIR [NAME …]`` writes NAME.onnx (opset 18), NAME.calib.npz and NAME.eval.npz.

The .npz files hold 32 and 64 samples under the names of the inputs, stacked along the batch dimension: with eight to
evaluate on, one loud sample made nine tenths of EfficientNet's power and decided which artifact was better.  ConvNeXt-T
has 8, because some artifacts of it take seconds for each.
``--dynamic`` leaves the batch dimension open, named N.
"""

from __future__ import annotations

import argparse
import collections
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import zoo


def export(name: str, folder: Path, dynamic: bool) -> onnx.ModelProto:
    module, inputs = zoo.build(name)
    names = zoo.input_names(name)
    batch = torch.export.Dim("N", min=1, max=64)
    if dynamic:
        inputs = tuple(torch.cat([value] * 3) for value in inputs)  # torch takes a batch of one for a constant
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            inputs,
            dynamo=True,
            opset_version=18,
            input_names=names,
            output_names=["y"],
            verbose=False,
            dynamic_shapes=tuple({0: batch} for _ in names) if dynamic else None,
        )
    path = folder / f"{name}.onnx"
    program.save(path, external_data=False)
    return onnx.load(path)


def save_samples(name: str, live: list[str], path: Path, seeds: range) -> None:
    names = zoo.input_names(name)
    feeds = [dict(zip(names, (a.numpy() for a in zoo.sample(name, seed)), strict=True)) for seed in seeds]
    np.savez(path, **{key: np.concatenate([feed[key] for feed in feeds]) for key in live})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dynamic", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # torch's exporter says of every model which optional packages it has not got
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or zoo.MODELS:
        model = export(name, args.folder, args.dynamic)
        live = [value.name for value in model.graph.input]
        save_samples(name, live, args.folder / f"{name}.calib.npz", range(100, 132))
        save_samples(name, live, args.folder / f"{name}.eval.npz", range(900, 908 if name == "convnext_t" else 964))
        kinds = collections.Counter(node.op_type for node in model.graph.node)
        print(f"{name}: {sum(kinds.values())} nodes, {dict(kinds.most_common(8))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
