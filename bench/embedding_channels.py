"""What embedding dimensions of a transformer are worth: ``embedding_channels.py MODEL.onnx [--removed 4,8,12]``.

Dimensions of the trunk, those that layer normalisations look at, are masked one after the other, each time the one that
the outputs miss least on calibration data, in two ways: *kept mean*, where a normalisation still divides by all of
them, and *own mean*, as in a smaller model that is written with a LayerNormalization of fewer channels.  Then all
layers are fitted together as behind ``--prune-channels``.  Told are top-1, and the share of the weights that a smaller
model would have.  MODEL.calib.npz and MODEL.eval.npz lie beside it (``compression_models.py``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from compression import top1

from convertkit.onnx.edit import drop_unused
from convertkit.onnx.load import load_model
from convertkit.progress import Silent
from convertkit.quantization.graph.replay import open_session
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.joint import fit_jointly
from convertkit.quantization.pruning.products import find_products, total
from convertkit.quantization.pruning.surgery import explicit_biases

SAMPLES = 32
Feeds = Sequence[dict[str, np.ndarray]]


def trunk(model: ir.Model) -> tuple[list[ir.Node], int]:
    """The layer normalisations, and over how many dimensions they go."""
    nodes = [node for node in model.graph if node.op_type == "LayerNormalization"]
    return nodes, int(nodes[0].inputs[1].const_value.size)


def masked(model: ir.Model, gone: Sequence[int], own_mean: bool) -> ir.Model:
    """A copy whose normalisations do not see these dimensions, and give nothing for them."""
    copy = model.clone()
    norms, size = trunk(copy)
    mask = np.ones(size, np.float32)
    mask[list(gone)] = 0
    share = float(mask.mean())
    for place, norm in enumerate(norms):
        new, (x, scale, bias) = _Writer(copy.graph, norm, f"mask{place}"), norm.inputs
        seen = new.constant(mask)
        read, epsilon = new.op("Mul", [x, seen], x.shape), norm.attributes.get_float("epsilon", 1e-5)
        if own_mean:  # what is gone takes the mean of what stays, so that only the variance is a share too small
            mean = new.op("ReduceMean", [read, new.constant(np.array([-1]))], ir.Shape([*x.shape[:-1], 1]))
            filled = new.op("Mul", [mean, new.constant((1 - mask) / np.float32(share))], x.shape)
            read = new.op("Add", [read, filled], x.shape)
            scale, epsilon = new.constant(scale.const_value.numpy() * np.float32(share**0.5)), epsilon * share
        made = new.op("LayerNormalization", [read, scale, bias], x.shape, epsilon=epsilon)
        norm.outputs[0].replace_all_uses_with(new.op("Mul", [made, seen], x.shape))
        copy.graph.remove(norm, safe=True)
    drop_unused(copy.graph)
    return copy


class _Writer:
    """Nodes and constants in front of a node."""

    def __init__(self, graph: ir.Graph, before: ir.Node, name: str) -> None:
        self._graph, self._before, self._name, self._count = graph, before, name, 0

    def op(self, kind: str, inputs: Sequence[ir.Value], shape: ir.Shape, **attributes: float) -> ir.Value:
        node = ir.node(kind, inputs, attributes=attributes, name=self._next())
        made = node.outputs[0]
        made.name, made.shape, made.type = f"{node.name}_y", shape, ir.TensorType(ir.DataType.FLOAT)
        self._graph.insert_before(self._before, node)
        return made

    def constant(self, array: np.ndarray) -> ir.Value:
        name = self._next()
        value = ir.Value(name=name, shape=ir.Shape(array.shape), const_value=ir.Tensor(array, name=name))
        value.dtype = ir.DataType.from_numpy(array.dtype)
        self._graph.initializers[name] = value
        return value

    def _next(self) -> str:
        self._count += 1
        return f"{self._name}_{self._count}"


def answers(model: ir.Model, feeds: Feeds) -> np.ndarray:
    session = open_session(model)
    return np.concatenate([session.run(None, feed)[0] for feed in feeds])


def least_missed(model: ir.Model, feeds: Feeds, count: int, own_mean: bool) -> list[int]:
    """Dimensions in the order in which they go."""
    wanted, gone = answers(model.clone(), feeds), list[int]()
    while len(gone) < count:
        left = [each for each in range(trunk(model)[1]) if each not in gone]
        errors = [np.square(answers(masked(model, [*gone, each], own_mean), feeds) - wanted).mean() for each in left]
        gone.append(left[int(np.argmin(errors))])
    return gone


def weights_left(model: ir.Model, removed: int) -> float:
    """Of a smaller model: rows or columns of every product that has the trunk's size."""
    size, left = trunk(model)[1], 0.0
    for product in find_products(model.graph):
        groups, rows, columns = product.rows.shape
        rows -= removed if rows * groups == size else 0
        columns -= removed if columns == size else 0
        left += groups * rows * columns
    return left / total(find_products(model.graph))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--removed", default="4,8,12")
    args = parser.parse_args()
    model, data = load_model(args.model), np.load(args.model.with_suffix(".calib.npz"))
    prepare(model)
    explicit_biases(model.graph)
    name = data.files[0]
    shape = [int(size) for size in model.graph.inputs[0].shape]
    feeds = [{name: sample.reshape(shape)} for sample in data[name]]
    held_out, fitted = feeds[3::4], [feed for place, feed in enumerate(feeds) if place % 4 != 3]
    counts = [int(count) for count in args.removed.split(",")]
    print("| mean | dimensions removed | weights left | top-1 masked | top-1 fitted |\n|---|---|---|---|---|")
    for own_mean in (False, True):
        order = least_missed(model, fitted[:SAMPLES], max(counts), own_mean)
        for count in counts:
            copy, told = masked(model, order[:count], own_mean), []
            for fit in (False, True):
                if fit:
                    fit_jointly(model, copy, fitted, held_out, {}, 0, Silent())
                path = args.model.with_name("masked.onnx")
                ir.save(copy, path)
                told.append(top1(path, args.model.with_suffix("")))
            kind, left = "own" if own_mean else "kept", weights_left(model, count)
            print(f"| {kind} | {count} | {100 * left:.0f} % | {told[0]:.1f} % | {told[1]:.1f} % |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
