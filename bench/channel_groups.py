"""Channel groups of the zoo: what is found, and that removing equals masking.  ``channel_groups.py ZOO [NAME …]``.

For every model of ``make_zoo.py`` half of the units of every group are removed at once.  The outputs are held against
those of the whole model whose products ignore the same channels; what differs is rounding.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.onnx.load import load_model
from convertkit.quantization.graph.units import constant
from convertkit.quantization.pruning.channels import Channels
from convertkit.quantization.pruning.group import Group
from convertkit.quantization.pruning.rules import follow

Keep = dict[Group, np.ndarray]


def masked(model: ir.Model, channels: Channels, keep: Keep) -> ir.Model:
    """The model with zeros for the weights that are multiplied with channels that go."""
    copy = model.clone()
    nodes = dict(zip(model.graph, copy.graph, strict=True))
    for cut in channels.sums():
        node = nodes[cut.node]
        value = node.inputs[cut.index]
        assert value is not None
        array = np.moveaxis(constant(value).copy(), cut.axis, 0)
        array[np.setdiff1d(np.arange(cut.layout.size), cut.layout.kept(keep))] = 0
        zeroed = np.ascontiguousarray(np.moveaxis(array, 0, cut.axis))
        node.replace_input_with(cut.index, add_constant(copy.graph, f"{value.name}_masked", zeroed))
    drop_unused(copy.graph)
    return copy


def answers(model: ir.Model, feeds: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    """All outputs for each feed."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options, ["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def report(path: Path) -> None:
    """One row: groups, channels that can go, weights left with half of them, and the largest relative difference."""
    model = canonicalize(load_model(path))
    data = np.load(path.with_suffix(".calib.npz"))
    sizes = {value.name: [size if isinstance(size, int) else 1 for size in value.shape] for value in model.graph.inputs}
    feeds = [{name: data[name][place].reshape(shape) for name, shape in sizes.items()} for place in range(2)]
    channels = follow(model.graph)
    groups, random = channels.prunable(), np.random.default_rng(0)
    keep = {each: np.sort(random.choice(each.units, -(-each.units // 2), replace=False)) for each in groups}
    expected = answers(masked(model, channels, keep), feeds)
    before = sum(value.const_value.size for value in model.graph.initializers.values())
    channels.shrink(keep)
    drop_unused(model.graph)
    proto = ir.to_proto(model)
    del proto.graph.value_info[:]
    onnx.checker.check_model(proto, full_check=True)
    after = sum(value.const_value.size for value in model.graph.initializers.values())
    error = 0.0
    for wanted, found in zip(expected, answers(model, feeds), strict=True):
        for one, other in zip(wanted, found, strict=True):
            error = max(error, float(np.abs(one - other).max() / max(np.abs(one).max(), 1e-30)))
    units = Counter("one by one" if each.units == each.size else "tied" for each in groups)
    print(f"{path.stem:16s} {len(groups):3d} groups ({dict(units)}), {sum(each.size for each in groups):6d} channels, "
          f"{after / before:5.1%} of the weights left, {error:.1e}", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    for path in sorted(asked.zoo.glob("*.onnx")):
        if not asked.names or path.stem in asked.names:
            report(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
