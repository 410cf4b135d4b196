"""Steps of random graphs that move elements of any kind about."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.targets.tflite.random_graphs import BOOL, FLOAT, INT32, INT64, LARGEST, Free, Graph, fixed, same


def any_axis(draw, shape: tuple[int, ...]) -> int | None:
    return draw(st.integers(0, len(shape) - 1)) if shape else None


def fixed_axis(draw, shape: tuple[int, ...]) -> int | None:
    return draw(st.sampled_from(fixed(shape))) if fixed(shape) else None


def replaced(shape: tuple[int, ...], axis: int, *sizes: int) -> list[int]:
    """``shape`` with other sizes in the place of one axis."""
    return [*shape[:axis], *sizes, *shape[axis + 1 :]]


def transpose(draw, graph: Graph, name: str, shape):
    perm = draw(st.permutations(range(len(shape))))
    graph.add("Transpose", [name], [shape[axis] for axis in perm], perm=perm)


def reshape(draw, graph: Graph, name: str, shape):
    """Sizes stated, copied by 0, or left to -1."""
    if 0 in shape:
        return
    size, free = int(np.prod(shape)), [axis for axis, each in enumerate(shape) if isinstance(each, Free)]
    if not free:
        new = draw(st.sampled_from([(shape[0], size // shape[0]), (*shape, 1), (size,), shape[::-1], (1, size)]))
        wanted = list(new)
        if draw(st.booleans()) and len(new) > 1:
            wanted[-1] = -1
    else:
        kept = free[-1] + 1
        rest = int(np.prod(shape[kept:]))
        forms = [((*shape, 1), [0] * len(shape) + [1]), ((*shape[:kept], rest), [0] * kept + [rest])]
        if kept < len(shape):
            merged = graph.sized(size // shape[-1], *shape)
            forms += [((merged, shape[-1]), [-1, shape[-1]])]
        new, wanted = draw(st.sampled_from(forms))
    if len(new) <= 5:
        graph.add("Reshape", [name, graph.constant(np.array(wanted))], new)


def concat(draw, graph: Graph, name: str, shape):
    axis = any_axis(draw, shape)
    alike = sorted(
        other for other, sizes in graph.shapes.items()
        if same(sizes, shape) and graph.kinds[other] == graph.kinds[name]
    )  # fmt: skip
    if axis is not None and np.prod(shape) * 2 < LARGEST:
        doubled = graph.sized(2 * shape[axis], shape[axis])
        graph.add("Concat", [name, draw(st.sampled_from(alike))], replaced(shape, axis, doubled), axis=axis)


def cut(draw, graph: Graph, name: str, shape):
    axis = any_axis(draw, shape)
    if axis is None or shape[axis] == 0:
        return
    size = shape[axis]
    step = draw(st.sampled_from([1, 1, 2, -1]))
    start = draw(st.integers(0, size - 1)) if not isinstance(size, Free) else 0 if step > 0 else -1
    end = np.iinfo(np.int32).max if step > 0 else -(2**31)
    count = len(range(*slice(start, None, step).indices(size)))
    bounds = [graph.constant(np.array([bound])) for bound in (start, end, axis, step)]
    graph.add("Slice", [name, *bounds], replaced(shape, axis, graph.sized(count, size)))


def gather(draw, graph: Graph, name: str, shape):
    axis = any_axis(draw, shape)
    if axis is None or shape[axis] == 0:
        return
    reach = 1 if isinstance(shape[axis], Free) else shape[axis]
    places = draw(st.lists(st.integers(-reach, reach - 1), min_size=1, max_size=3))
    scalar = len(places) == 1 and len(shape) > 1 and draw(st.booleans())
    indices = graph.constant(np.array(places[0] if scalar else places))
    graph.add("Gather", [name, indices], replaced(shape, axis, *([] if scalar else [len(places)])), axis=axis)


def split(draw, graph: Graph, name: str, shape):
    axis = fixed_axis(draw, shape)
    if axis is None or shape[axis] < 2:
        return
    first = draw(st.integers(1, shape[axis] - 1))
    sizes = graph.constant(np.array([first, shape[axis] - first]))
    part = graph.add("Split", [name, sizes], replaced(shape, axis, first), axis=axis)
    graph.also(part, "b", replaced(shape, axis, shape[axis] - first), graph.kinds[name])


def pad(draw, graph: Graph, name: str, shape):
    pads = draw(st.lists(st.integers(0, 2), min_size=2 * len(shape), max_size=2 * len(shape)))
    mode = draw(st.sampled_from(["constant", "constant", "edge"]))
    if graph.kinds[name] in (BOOL, TensorProto.INT16) or 0 in shape:  # ONNX Runtime has no such Pad
        return
    grown = [
        graph.sized(size + pads[axis] + pads[axis + len(shape)], size) if pads[axis] + pads[axis + len(shape)] else size
        for axis, size in enumerate(shape)
    ]
    if shape and np.prod(grown) < LARGEST and len(shape) <= 4:
        graph.add("Pad", [name, graph.constant(np.array(pads))], grown, mode=mode)


def tile(draw, graph: Graph, name: str, shape):
    counts = [draw(st.sampled_from([1, 1, 2])) for _ in shape]
    grown = [graph.sized(size * count, size) if count > 1 else size for size, count in zip(shape, counts)]
    if shape and np.prod(grown) < LARGEST and 0 not in shape:
        graph.add("Tile", [name, graph.constant(np.array(counts))], grown)


def expand(draw, graph: Graph, name: str, shape):
    """A constant in the shape of a value."""
    sizes = graph.add("Shape", [name], [len(shape)], INT64)
    kind = draw(st.sampled_from([FLOAT, graph.kinds[name]]))
    narrow = [1 if isinstance(size, Free) or draw(st.booleans()) else size for size in shape]
    drawn = np.random.default_rng(len(shape)).integers(0, 3, narrow).astype(helper.tensor_dtype_to_np_dtype(kind))
    graph.add("Expand", [graph.constant(np.asarray(drawn)), sizes], shape, kind)


def where(draw, graph: Graph, name: str, shape):
    flags = sorted(n for n, kind in graph.kinds.items() if kind == BOOL and same(graph.shapes[n], shape))
    kind = graph.kinds[name]
    if flags and kind in (FLOAT, INT32, INT64):  # ONNX Runtime has no others
        number = np.array(draw(st.sampled_from([0, 2]))).astype(helper.tensor_dtype_to_np_dtype(kind))
        pair = [name, graph.constant(number)]
        graph.add("Where", [draw(st.sampled_from(flags)), *(pair if draw(st.booleans()) else pair[::-1])], shape, kind)


def moves(shape: tuple[int, ...]) -> tuple:
    """The steps of this module that a value of this shape can take."""
    return (transpose, reshape, concat, cut, gather, split, pad, tile, expand, where) if shape else (expand, where)
