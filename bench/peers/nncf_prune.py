"""NNCF's pruning without training, beside ours: ``nncf_prune.py CASES OUT.json [--models A,B]``.

CASES holds NAME.onnx, NAME.calib.npz and NAME.eval.npz.  Needs torch, nncf and onnx2torch: NNCF prunes PyTorch's
modules alone, so the ONNX file becomes one.  Its modes without training go by magnitude: ``local`` takes the share from
every layer, ``global`` from all together.  Top-1 in percent is of samples that are not in the calibration data.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import nncf
import numpy as np
import onnx
import torch
from onnx2torch import convert

MODES = {
    "local": nncf.PruneMode.UNSTRUCTURED_MAGNITUDE_LOCAL,
    "global": nncf.PruneMode.UNSTRUCTURED_MAGNITUDE_GLOBAL,
}
SHARES = (0.8, 0.9)


class Wrapped(torch.nn.Module):
    """A module around a traced one, which NNCF does not prune."""

    def __init__(self, made: onnx.ModelProto) -> None:
        super().__init__()
        self.inner = convert(made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def top1(model: torch.nn.Module, shape: tuple[int, ...], path: Path) -> float:
    """One sample at a time, since the file has a batch of one."""
    data, used = np.load(f"{path}.eval.npz"), np.load(f"{path}.calib.npz")
    name = next(each for each in data.files if each != "label")
    seen = {sample.tobytes() for sample in used[name]}
    right = []
    with torch.no_grad():
        for sample, label in zip(data[name], data["label"], strict=True):
            if sample.tobytes() not in seen:
                given = torch.from_numpy(np.ascontiguousarray(sample, np.float32).reshape(shape))
                right.append(int(model(given).reshape(-1).argmax()) == int(label))
    return 100 * float(np.mean(right))


def row(path: Path) -> dict[str, object]:
    """Top-1 of the module as it is and pruned in every way; a text where NNCF or the conversion fails."""
    made = onnx.load(f"{path}.onnx")
    shape = tuple(each.dim_value for each in made.graph.input[0].type.tensor_type.shape.dim)
    try:
        found: dict[str, object] = {"float32": top1(Wrapped(made).eval(), shape, path)}
    except NotImplementedError as error:
        return {"float32": str(error)}
    for mode, value in MODES.items():
        for share in SHARES:
            try:
                pruned = nncf.prune(Wrapped(made).eval(), mode=value, ratio=share, examples_inputs=torch.zeros(shape))
                found[f"{share} {mode}"] = top1(pruned, shape, path)
            except (RuntimeError, ValueError, NotImplementedError) as error:
                found[f"{share} {mode}"] = str(error).splitlines()[0]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    book = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name in args.models.split(",") if args.models else sorted(each.stem for each in args.cases.glob("*.onnx")):
        if name not in book:
            book[name] = row(args.cases / name)
            args.out.write_text(json.dumps(book, indent=1))
            print(name, book[name], file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
