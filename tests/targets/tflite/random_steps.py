"""Random small graphs of supported operators: Hypothesis draws every choice."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.targets.tflite.compiled import numbers
from tests.targets.tflite.random_bodies import branch, loop, recurrent, scan
from tests.targets.tflite.random_graphs import BOOL, FLOAT, INT32, INT64, LARGEST, ROUNDS, Free, Graph, same
from tests.targets.tflite.random_moves import any_axis, fixed_axis, moves, replaced

UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "LeakyRelu", "HardSwish", "Elu", "Softplus", "Floor", "Identity"),
    *("Erf", "Gelu", "Selu", "Round", "Sign", "Softsign", "Sin", "HardSigmoid", "ThresholdedRelu"),
)
OF_NO_NUMBERS = ("Relu", "Tanh", "Abs", "Neg", "LeakyRelu", "Floor", "Identity", "Erf", "Round", "Sign", "Softsign")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
INTEGER = ("Add", "Sub", "Mul", "Max", "Min", "Div", "Mod")
COMPARISONS = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
SHAPES = [(1, 3, 5, 4), (2, 4, 4, 4), (1, 1, 6, 6), (2, 3, 4), (3, 3, 3), (2, 2, 3, 4, 3), (3, 5), (4,), (2, 3, 3, 3)]
EMPTY = [(0, 3), (2, 0, 4), (0, 3, 4, 4)]
WHOLE = (INT32, INT64)
NARROW = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16)


def grow(draw, graph: Graph) -> None:
    """Add a node, or a few that belong together, to an existing value."""
    name = draw(st.sampled_from(sorted(graph.shapes)))
    shape, kind = graph.shapes[name], graph.kinds[name]
    steps = _steps(graph, shape, kind)
    draw(st.sampled_from(steps))(draw, graph, name, shape)


def _steps(graph: Graph, shape: tuple[int, ...], kind: int) -> list:
    if kind == BOOL:
        return [_flags, _flags, _flags, *moves(shape)]
    if kind in NARROW:
        return [_cast, _cast, *moves(shape)]
    if kind != FLOAT:
        return [_integers, _integers, _integers, _compare_integers, _cast, _reduce_integers, _arg, *moves(shape)]
    if graph.special:
        images = [_norm] if len(shape) in (3, 4, 5) else []
        return [_unary, _unary, _binary, _binary, _binary, _compare, *images, *moves(shape)]
    everywhere = [_unary, _unary, _clip, _compare, branch, loop, _binary, _binary, _cast]
    if not shape:
        return everywhere
    steps = [
        *everywhere,
        *moves(shape),
        _softmax,
        _reduce,
        _matmul,
        _square,
        _topk,
        _arg,
        _cumsum,
        _layer_norm,
        _dropout,
    ]
    if len(shape) in (3, 4, 5):
        steps += [_conv, _conv, _depthwise, _pool, _global, _norm, _instance_norm, _resize, recurrent, scan]
    return steps


def _seed(draw) -> int:
    return draw(st.integers(0, 99))


def _unary(draw, graph, name, shape):
    graph.add(draw(st.sampled_from(OF_NO_NUMBERS if graph.special else UNARY)), [name], shape)


def _binary(draw, graph, name, shape):
    """With a value that broadcasts, or a constant of fewer, shorter or more axes, on either side."""
    fitting = [
        other
        for other, sizes in graph.shapes.items()
        if graph.kinds[other] == FLOAT and len(sizes) <= len(shape)
        and all(same((a,), (b,)) or same((a,), (1,)) for a, b in zip(sizes[::-1], shape[::-1]))
    ]  # fmt: skip
    other = draw(st.sampled_from([*sorted(fitting), None, None]))
    result = shape
    if other is None:
        axes = [1 if isinstance(size, Free) or draw(st.booleans()) else size for size in shape]
        axes = axes[draw(st.integers(0, len(shape))) :]
        if len(axes) == len(shape) < 4 and draw(st.integers(0, 3)) == 0:
            axes, result = [2, *axes], (2, *shape)
        other = graph.constant(numbers(*axes, seed=_seed(draw)))
    pair = [name, other] if draw(st.booleans()) else [other, name]
    graph.add(draw(st.sampled_from(BINARY[:3] if graph.special else BINARY)), pair, result, FLOAT)


def _softmax(draw, graph, name, shape):
    graph.add(draw(st.sampled_from(["Softmax", "LogSoftmax"])), [name], shape, axis=any_axis(draw, shape))


def _reduce(draw, graph, name, shape):
    axis = any_axis(draw, shape)
    keep = draw(st.booleans()) or len(shape) == 1
    op = draw(st.sampled_from(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceMin"]))
    if shape[axis] != 0:
        after = replaced(shape, axis, *([1] if keep else []))
        graph.add(op, [name, graph.constant(np.array([axis]))], after, keepdims=int(keep))


def _matmul(draw, graph, name, shape):
    if len(shape) >= 2 and not isinstance(shape[-1], Free) and shape[-1]:
        weight = graph.constant(numbers(shape[-1], 3, seed=_seed(draw)))
        graph.add("MatMul", [name, weight], [*shape[:-1], 3])


def _square(draw, graph, name, shape):
    """A value times itself transposed, as attention's scores are."""
    if 2 <= len(shape) <= 4 and 0 not in shape:
        perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        turned = graph.add("Transpose", [name], [shape[axis] for axis in perm], perm=perm)
        graph.add("MatMul", [name, turned], [*shape[:-1], shape[-2]])


def _compare(draw, graph, name, shape):
    graph.add(draw(st.sampled_from(COMPARISONS)), [name, graph.constant(np.float32(0.25))], shape, BOOL)


def _clip(draw, graph, name, shape):
    low, high = draw(st.sampled_from([(0.0, 6.0), (-1.0, 1.0), (None, 0.5), (-0.25, None), (0.0, None)]))
    bounds = ["" if bound is None else graph.constant(np.float32(bound)) for bound in (low, high)]
    graph.add("Clip", [name, *bounds], shape)


def _topk(draw, graph, name, shape):
    axis = fixed_axis(draw, shape)
    if axis is None or 0 in shape:
        return
    count = draw(st.integers(1, shape[axis]))
    kept = replaced(shape, axis, count)
    values = graph.add(
        "TopK", [name, graph.constant(np.array([count]))], kept, axis=axis, largest=draw(st.integers(0, 1))
    )
    graph.also(values, "i", kept, INT64)


def _arg(draw, graph, name, shape):
    axis, keep = any_axis(draw, shape), draw(st.integers(0, 1))
    if axis is not None and 0 not in shape and graph.kinds[name] != INT64:
        op = draw(st.sampled_from(["ArgMax", "ArgMin"]))
        graph.add(op, [name], replaced(shape, axis, *[1] * keep), INT64, axis=axis, keepdims=keep)


def _cumsum(draw, graph, name, shape):
    axis = graph.constant(np.array(any_axis(draw, shape)))
    graph.add("CumSum", [name, axis], shape, exclusive=draw(st.integers(0, 1)), reverse=draw(st.integers(0, 1)))


def _layer_norm(draw, graph, name, shape):
    if isinstance(shape[-1], Free) or 0 in shape or shape[-1] == 1:
        return
    scale = graph.constant(numbers(shape[-1], seed=_seed(draw)))
    made = graph.add("LayerNormalization", [name, scale], shape)
    if draw(st.booleans()):
        graph.also(made, "m", [*shape[:-1], 1], FLOAT)


def _dropout(draw, graph, name, shape):
    made = graph.add("Dropout", [name], shape)
    if draw(st.booleans()):
        graph.also(made, "m", shape, BOOL)


def _window(draw, graph, shape, kernels: tuple[int, int], strides: tuple[int, int]):
    """Kernel, strides, pads and resulting sizes of the spatial axes; free ones are padded, so that a window fits."""
    free = any(isinstance(size, Free) for size in shape[2:])
    stride, pad = draw(st.integers(*strides)), 1 if free else draw(st.integers(0, 1))
    kernel = [min(draw(st.integers(*kernels)), size + 2 * pad) for size in shape[2:]]
    sizes = [graph.sized((size + 2 * pad - k) // stride + 1, size) for size, k in zip(shape[2:], kernel)]
    spatial = len(shape) - 2
    return {"kernel_shape": kernel, "strides": [stride] * spatial, "pads": [pad] * 2 * spatial}, kernel, sizes


def _conv(draw, graph, name, shape):
    if isinstance(shape[1], Free) or 0 in shape:
        return
    how, kernel, sizes = _window(draw, graph, shape, (1, 3), (1, 2))
    out = draw(st.integers(1, 5))
    inputs = [name, graph.constant(numbers(out, shape[1], *kernel, seed=_seed(draw)))]
    if draw(st.booleans()):
        inputs.append(graph.constant(numbers(out, seed=_seed(draw))))
    graph.add("Conv", inputs, [shape[0], out, *sizes], **how)


def _depthwise(draw, graph, name, shape):
    if isinstance(shape[1], Free) or 0 in shape:
        return
    how, kernel, sizes = _window(draw, graph, shape, (2, 2), (1, 1))
    many = draw(st.integers(1, 2))
    weight = graph.constant(numbers(shape[1] * many, 1, *kernel, seed=_seed(draw)))
    graph.add("Conv", [name, weight], [shape[0], shape[1] * many, *sizes], group=shape[1], **how)


def _pool(draw, graph, name, shape):
    if 0 in shape:
        return
    how, _, sizes = _window(draw, graph, shape, (2, 2), (2, 2))
    graph.add(draw(st.sampled_from(["MaxPool", "AveragePool"])), [name], [*shape[:2], *sizes], **how)


def _global(draw, graph, name, shape):
    op = draw(st.sampled_from(["GlobalAveragePool", "GlobalMaxPool"]))
    if 0 not in shape:
        graph.add(op, [name], [*shape[:2], *[1] * (len(shape) - 2)])


def _norm(draw, graph, name, shape):
    if not isinstance(shape[1], Free):
        parts = [graph.constant(np.abs(numbers(shape[1], seed=_seed(draw) + place)) + 0.5) for place in range(4)]
        graph.add("BatchNormalization", [name, *parts], shape)


def _instance_norm(draw, graph, name, shape):
    if not isinstance(shape[1], Free) and 0 not in shape and min(shape[2:]) > 1:
        parts = [graph.constant(numbers(shape[1], seed=_seed(draw) + place)) for place in range(2)]
        graph.add("InstanceNormalization", [name, *parts], shape)


def _resize(draw, graph, name, shape):
    scales = [1.0, 1.0, *[2.0] * (len(shape) - 2)]
    after = [*shape[:2], *(graph.sized(2 * size, size) for size in shape[2:])]
    if 0 < np.prod(after) < LARGEST:
        mode = draw(st.sampled_from(["nearest", "linear"]))
        inputs = [name, "", graph.constant(np.array(scales, np.float32))]
        graph.add("Resize", inputs, after, coordinate_transformation_mode="asymmetric", nearest_mode="floor", mode=mode)


def _cast(draw, graph: Graph, name: str, shape) -> None:
    """To integers of any width, numbers that fit all of them first; or back to floats."""
    kind = graph.kinds[name]
    to = FLOAT if kind in NARROW else draw(st.sampled_from([FLOAT, *WHOLE, *NARROW]))
    if kind == FLOAT:
        to = to if to != FLOAT else INT32
        bounds = [graph.constant(np.float32(bound)) for bound in (0, 100)]
        name = graph.add("Clip", [name, *bounds], shape)
    graph.add("Cast", [name], shape, to, to=to)


def _integers(draw, graph: Graph, name: str, shape) -> None:
    """Arithmetic with a constant that divides, or with another value."""
    kind = graph.kinds[name]
    if draw(st.integers(0, 3)) == 0:
        graph.add(draw(st.sampled_from(["Abs", "Neg", "Sign"])), [name], shape)
        return
    number = draw(st.sampled_from([-3, -2, -1, 1, 2, 4]))
    operand = graph.constant(np.array(number, helper.tensor_dtype_to_np_dtype(kind)))
    op = draw(st.sampled_from(INTEGER))
    others = sorted(n for n, k in graph.kinds.items() if k == kind and same(graph.shapes[n], shape))
    if op not in ("Div", "Mod", "Mul"):
        operand = draw(st.sampled_from([operand, operand, *others]))
    graph.add(op, [name, operand], shape)


def _compare_integers(draw, graph: Graph, name: str, shape) -> None:
    number = np.array(draw(st.integers(-3, 4)), helper.tensor_dtype_to_np_dtype(graph.kinds[name]))
    graph.add(draw(st.sampled_from(COMPARISONS)), [name, graph.constant(number)], shape, BOOL)


def _reduce_integers(draw, graph: Graph, name: str, shape) -> None:
    axis = any_axis(draw, shape)
    if axis is not None and shape[axis]:
        op = draw(st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"]))
        graph.add(op, [name, graph.constant(np.array([axis]))], replaced(shape, axis, 1))


def _flags(draw, graph: Graph, name: str, shape) -> None:
    """Logic with another value or a constant, numbers of it, or a choice between numbers."""
    step = draw(st.sampled_from(["Not", "And", "Or", "Xor", "Cast", "Where", "Equal"]))
    if step == "Not":
        graph.add("Not", [name], shape)
    elif step == "Cast":
        to = draw(st.sampled_from([FLOAT, *WHOLE, *NARROW]))
        graph.add("Cast", [name], shape, to, to=to)
    elif step == "Where":
        numbers_ = [graph.constant(np.float32(value)) for value in (1.5, -2.0)]
        graph.add("Where", [name, *numbers_], shape, FLOAT)
    else:
        others = sorted(n for n, k in graph.kinds.items() if k == BOOL and same(graph.shapes[n], shape))
        other = draw(st.sampled_from([*others, graph.constant(np.array(draw(st.booleans())))]))
        graph.add(step, [name, other], shape)


def _input(draw, *, special: bool) -> tuple[int, ...]:
    """The shape of the first input: fixed, with a free first axis, with any axes free, or without elements."""
    shape = draw(st.sampled_from(SHAPES))
    form = draw(st.sampled_from(["fixed", "fixed", "batch", "batch", "free", "free", "empty"]))
    if form == "empty" and not special:
        return draw(st.sampled_from(EMPTY))
    places = {"fixed": [], "batch": [0], "empty": []}.get(form)
    if places is None:
        places = draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1, max_size=2))
    labels = dict(zip(places, draw(st.permutations(sorted(ROUNDS)))))
    return tuple(Free(ROUNDS[labels[axis]][0], labels[axis]) if axis in labels else size
                 for axis, size in enumerate(shape))  # fmt: skip


@st.composite
def graphs(draw, *, special: bool = False) -> onnx.ModelProto:
    """One to eight nodes behind a tensor, H = W = C now and then; other inputs are integers, flags and scalars.

    ``special`` leaves out what no two runtimes do alike with NaN and infinities.
    """
    shape = _input(draw, special=special)
    graph = Graph({"x": shape}, {"x": FLOAT}, special)
    if draw(st.booleans()):
        graph.shapes["xi"], graph.kinds["xi"] = shape, draw(st.sampled_from([INT32, INT64]))
    if draw(st.booleans()):
        graph.shapes["xc"], graph.kinds["xc"] = (), BOOL
    for _ in range(draw(st.integers(1, 8))):
        grow(draw, graph)
    if not graph.nodes:
        graph.add("Relu", ["x"], shape)
    inner = sorted(name for name in graph.shapes if name[0] == "v")
    return graph.model(draw(st.sampled_from([[]] * 8 + [inner[:1], inner[-1:], graph.some_constant()])))
