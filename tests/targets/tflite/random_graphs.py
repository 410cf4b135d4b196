"""Random small graphs of supported operators, for the property tests: Hypothesis draws every choice."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.targets.tflite.compiled import numbers

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "LeakyRelu", "HardSwish", "Elu", "Softplus", "Floor", "Identity"),
    *("Erf", "Gelu", "Selu", "Round", "Sign", "Softsign", "Sin", "HardSigmoid", "ThresholdedRelu"),
)
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
INTEGER = ("Add", "Sub", "Mul", "Max", "Min")
COMPARISONS = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
SHAPES = [(1, 3, 5, 4), (2, 4, 4, 4), (1, 1, 6, 6), (2, 3, 4), (3, 3, 3), (2, 2, 3, 4, 3), (3, 5), (4,), (2, 3, 3, 3)]
_LARGEST = 4000


@dataclass
class Graph:
    """A graph that grows by one node at a time; ``free`` keeps the first axis of every value as the free batch."""

    shapes: dict[str, tuple[int, ...]]
    kinds: dict[str, int]
    free: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, array: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(
        self, op: str, inputs: list[str], shape: list[int] | tuple[int, ...], kind: int | None = None, **attributes
    ):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.shapes[name] = tuple(shape)
        self.kinds[name] = self.kinds[inputs[0]] if kind is None else kind
        return name

    def some_constant(self) -> list[str]:
        """The name of a float constant that may be an output, too."""
        floats = [tensor for tensor in self.constants if tensor.data_type == FLOAT and tensor.dims and not self.free]
        for tensor in floats[:1]:
            self.shapes[tensor.name], self.kinds[tensor.name] = tuple(tensor.dims), FLOAT
        return [tensor.name for tensor in floats[:1]]

    def info(self, name: str) -> onnx.ValueInfoProto:
        shape = list(self.shapes[name])
        return helper.make_tensor_value_info(name, self.kinds[name], ["n", *shape[1:]] if self.free else shape)

    def model(self, extra: list[str]) -> onnx.ModelProto:
        """All unused values are outputs; ``extra`` are outputs too, inputs and constants among them."""
        used = {name for node in self.nodes for name in node.input}
        outputs = [name for name in self.shapes if name not in used and name[0] == "v"]
        outputs += [name for name in extra if name not in outputs]
        inputs = [self.info(name) for name in self.shapes if name[0] == "x"]
        results = [self.info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", inputs, results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def grow(draw, graph: Graph) -> None:
    """Add a node, or a few that belong together, to an existing value."""
    name = draw(st.sampled_from(sorted(graph.shapes)))
    shape, kind = graph.shapes[name], graph.kinds[name]
    if kind != FLOAT:
        _of_integers(draw, graph, name)
        return
    if not shape:
        draw(st.sampled_from([_unary, _clip, _compare, _branch, _loop]))(draw, graph, name, shape)
        return
    steps = [_unary, _binary, _binary, _transpose, _reshape, _concat, _softmax, _reduce, _pad, _slice, _matmul]
    steps += [_compare, _gather, _clip, _split, _branch, _loop, _where]
    if len(shape) in (3, 4, 5):
        steps += [_conv, _conv, _depthwise, _pool, _global, _norm, _resize]
    draw(st.sampled_from(steps))(draw, graph, name, shape)


def _seed(draw) -> int:
    return draw(st.integers(0, 99))


def _axis(draw, graph: Graph, shape: tuple[int, ...]) -> int | None:
    first = int(graph.free)
    return draw(st.integers(first, len(shape) - 1)) if len(shape) > first else None


def _unary(draw, graph, name, shape):
    graph.add(draw(st.sampled_from(UNARY)), [name], shape)


def _binary(draw, graph, name, shape):
    """With a value that broadcasts, or a constant of fewer or shorter axes, on either side."""
    fitting = [
        other
        for other, sizes in graph.shapes.items()
        if graph.kinds[other] == FLOAT and len(sizes) <= len(shape) and not (graph.free and len(sizes) < len(shape))
        and all(a in (1, b) for a, b in zip(sizes[::-1], shape[::-1]))
        and not (graph.free and sizes[:1] != shape[:1])
    ]  # fmt: skip
    other = draw(st.sampled_from([*sorted(fitting), None, None]))
    if other is None:
        axes = [size if draw(st.booleans()) else 1 for size in shape]
        axes[:1] = [1] if graph.free else axes[:1]
        axes = axes[draw(st.integers(0, len(shape))) :]
        other = graph.constant(numbers(*axes, seed=_seed(draw)))
    pair = [name, other] if draw(st.booleans()) else [other, name]
    graph.add(draw(st.sampled_from(BINARY)), pair, shape, FLOAT)


def _transpose(draw, graph, name, shape):
    first = [0] if graph.free else []
    perm = [*first, *draw(st.permutations(range(len(first), len(shape))))]
    graph.add("Transpose", [name], [shape[axis] for axis in perm], perm=perm)


def _reshape(draw, graph, name, shape):
    size = int(np.prod(shape))
    kept = [(shape[0], size // shape[0]), (*shape, 1), (shape[0], *shape[:0:-1])]
    choices = kept if graph.free else [*kept, (size,), shape[::-1], (1, size)]
    new = draw(st.sampled_from(choices))
    if len(new) <= 5:
        wanted = [0, *new[1:]] if graph.free else list(new)
        if draw(st.booleans()) and len(new) > 1:
            wanted[-1] = -1
        graph.add("Reshape", [name, graph.constant(np.array(wanted))], new)


def _concat(draw, graph, name, shape):
    axis = _axis(draw, graph, shape)
    same = sorted(other for other, sizes in graph.shapes.items() if sizes == shape and graph.kinds[other] == FLOAT)
    if axis is not None and np.prod(shape) * 2 < _LARGEST:
        other = draw(st.sampled_from(same))
        graph.add("Concat", [name, other], [*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]], axis=axis)


def _softmax(draw, graph, name, shape):
    axis = _axis(draw, graph, shape)
    if axis is not None:
        graph.add(draw(st.sampled_from(["Softmax", "LogSoftmax"])), [name], shape, axis=axis)


def _reduce(draw, graph, name, shape):
    axis = _axis(draw, graph, shape)
    if axis is None:
        return
    keep = draw(st.booleans()) or len(shape) == 1
    after = [1 if place == axis else size for place, size in enumerate(shape) if keep or place != axis]
    op = draw(st.sampled_from(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceMin"]))
    graph.add(op, [name, graph.constant(np.array([axis]))], after, keepdims=int(keep))


def _pad(draw, graph, name, shape):
    pads = draw(st.lists(st.integers(0, 2), min_size=2 * len(shape), max_size=2 * len(shape)))
    mode = draw(st.sampled_from(["constant", "constant", "edge"]))
    if graph.free:
        pads[0] = pads[len(shape)] = 0
    grown = [size + pads[axis] + pads[axis + len(shape)] for axis, size in enumerate(shape)]
    if np.prod(grown) < _LARGEST and len(shape) <= 4:
        graph.add("Pad", [name, graph.constant(np.array(pads))], grown, mode=mode)


def _slice(draw, graph, name, shape):
    axis = _axis(draw, graph, shape)
    if axis is None:
        return
    start, step = draw(st.integers(0, shape[axis] - 1)), draw(st.sampled_from([1, 1, 2, -1]))
    end = shape[axis] if step > 0 else -shape[axis] - 1
    count = len(range(*slice(start, end if step > 0 else None, step).indices(shape[axis])))
    bounds = [graph.constant(np.array([bound])) for bound in (start, end, axis, step)]
    graph.add("Slice", [name, *bounds], [*shape[:axis], count, *shape[axis + 1 :]])


def _matmul(draw, graph, name, shape):
    if len(shape) >= 2:
        weight = graph.constant(numbers(shape[-1], 3, seed=_seed(draw)))
        graph.add("MatMul", [name, weight], [*shape[:-1], 3])


def _compare(draw, graph, name, shape):
    graph.add(draw(st.sampled_from(COMPARISONS)), [name, graph.constant(np.float32(0.25))], shape, BOOL)


def _gather(draw, graph, name, shape):
    axis = _axis(draw, graph, shape)
    if axis is not None:
        places = draw(st.lists(st.integers(-shape[axis], shape[axis] - 1), min_size=1, max_size=3))
        scalar = len(places) == 1 and len(shape) > 1 and draw(st.booleans())
        indices = graph.constant(np.array(places[0] if scalar else places))
        graph.add("Gather", [name, indices], [*shape[:axis], *([] if scalar else [len(places)]), *shape[axis + 1 :]],
                  axis=axis)  # fmt: skip


def _clip(draw, graph, name, shape):
    low, high = draw(st.sampled_from([(0.0, 6.0), (-1.0, 1.0), (None, 0.5), (-0.25, None), (0.0, None)]))
    bounds = ["" if bound is None else graph.constant(np.float32(bound)) for bound in (low, high)]
    graph.add("Clip", [name, *bounds], shape)


def _split(draw, graph, name, shape):
    axis = _axis(draw, graph, shape)
    if axis is None or shape[axis] < 2:
        return
    first = draw(st.integers(1, shape[axis] - 1))
    sizes = graph.constant(np.array([first, shape[axis] - first]))
    part = graph.add("Split", [name, sizes], [*shape[:axis], first, *shape[axis + 1 :]], axis=axis)
    other = f"{part}b"
    graph.nodes[-1].output.append(other)
    graph.shapes[other], graph.kinds[other] = (*shape[:axis], shape[axis] - first, *shape[axis + 1 :]), FLOAT


def _inner(name: str, body: list[onnx.NodeProto], inputs: list, result: str, kind: int, shape) -> onnx.GraphProto:
    return helper.make_graph(body, name, inputs, [helper.make_tensor_value_info(result, kind, shape)])


def _branch(draw, graph, name, shape):
    """An If over captured values, whose condition is an input or a constant."""
    condition = "xc" if "xc" in graph.shapes else graph.constant(np.array(draw(st.booleans())))
    place = len(graph.nodes)
    sides = [
        _inner(side, [helper.make_node(op, [name], [f"{side}{place}"])], [], f"{side}{place}", FLOAT, None)
        for side, op in (("yes", draw(st.sampled_from(UNARY))), ("no", "Neg"))
    ]
    graph.add("If", [condition], shape, FLOAT, then_branch=sides[0], else_branch=sides[1])


def _loop(draw, graph, name, shape):
    """A Loop of a few turns over a carried value and a captured one."""
    turns, place = draw(st.integers(0, 3)), len(graph.nodes)
    body = [
        helper.make_node("Identity", [f"go{place}"], [f"on{place}"]),
        helper.make_node(draw(st.sampled_from(["Add", "Max", "Sub"])), [f"in{place}", name], [f"out{place}"]),
    ]
    infos = [(f"i{place}", INT64, []), (f"go{place}", BOOL, []), (f"in{place}", FLOAT, None)]
    inner = helper.make_graph(
        body,
        "body",
        [helper.make_tensor_value_info(*info) for info in infos],
        [helper.make_tensor_value_info(f"on{place}", BOOL, []),
         helper.make_tensor_value_info(f"out{place}", FLOAT, None)],
    )  # fmt: skip
    graph.add("Loop", [graph.constant(np.array(turns)), "", name], shape, FLOAT, body=inner)


def _where(draw, graph, name, shape):
    flags = sorted(n for n, kind in graph.kinds.items() if kind == BOOL and graph.shapes[n] == shape)
    if flags:
        other = graph.constant(np.float32(draw(st.sampled_from([0.0, -2.5]))))
        graph.add("Where", [draw(st.sampled_from(flags)), name, other], shape, FLOAT)


def _conv(draw, graph, name, shape):
    spatial = len(shape) - 2
    stride, pad = draw(st.integers(1, 2)), draw(st.integers(0, 1))
    kernel = [min(draw(st.integers(1, 3)), size + 2 * pad) for size in shape[2:]]
    out = draw(st.integers(1, 5))
    inputs = [name, graph.constant(numbers(out, shape[1], *kernel, seed=_seed(draw)))]
    if draw(st.booleans()):
        inputs.append(graph.constant(numbers(out, seed=_seed(draw))))
    sizes = [(size + 2 * pad - k) // stride + 1 for size, k in zip(shape[2:], kernel)]
    graph.add("Conv", inputs, [shape[0], out, *sizes], strides=[stride] * spatial, pads=[pad] * 2 * spatial)


def _depthwise(draw, graph, name, shape):
    spatial, many = len(shape) - 2, draw(st.integers(1, 2))
    kernel = [min(2, size) for size in shape[2:]]
    weight = graph.constant(numbers(shape[1] * many, 1, *kernel, seed=_seed(draw)))
    sizes = [size - k + 1 for size, k in zip(shape[2:], kernel)]
    graph.add("Conv", [name, weight], [shape[0], shape[1] * many, *sizes], group=shape[1], kernel_shape=kernel)
    assert len(sizes) == spatial


def _pool(draw, graph, name, shape):
    kernel = min(2, *shape[2:])
    sizes = [(size - kernel) // 2 + 1 for size in shape[2:]]
    op, spatial = draw(st.sampled_from(["MaxPool", "AveragePool"])), len(shape) - 2
    graph.add(op, [name], [*shape[:2], *sizes], kernel_shape=[kernel] * spatial, strides=[2] * spatial)


def _global(draw, graph, name, shape):
    op = draw(st.sampled_from(["GlobalAveragePool", "GlobalMaxPool"]))
    graph.add(op, [name], [*shape[:2], *[1] * (len(shape) - 2)])


def _norm(draw, graph, name, shape):
    parts = [graph.constant(np.abs(numbers(shape[1], seed=_seed(draw) + place)) + 0.5) for place in range(4)]
    graph.add("BatchNormalization", [name, *parts], shape)


def _resize(draw, graph, name, shape):
    scales = [1.0, 1.0, *[2.0] * (len(shape) - 2)]
    after = [size * int(scale) for size, scale in zip(shape, scales)]
    if np.prod(after) < _LARGEST:
        mode = draw(st.sampled_from([{"mode": "nearest"}, {"mode": "linear"}]))
        inputs = [name, "", graph.constant(np.array(scales, np.float32))]
        graph.add("Resize", inputs, after, coordinate_transformation_mode="asymmetric", nearest_mode="floor", **mode)


def _of_integers(draw, graph: Graph, name: str) -> None:
    """Arithmetic of integers, comparisons, and the way back to floats."""
    shape, kind = graph.shapes[name], graph.kinds[name]
    if kind == BOOL:
        step = draw(st.sampled_from(["Not", "Cast", "Int"]))
        if step == "Not":
            graph.add("Not", [name], shape)
        else:
            to = FLOAT if step == "Cast" else draw(st.sampled_from([INT32, INT64]))
            graph.add("Cast", [name], shape, to, to=to)
        return
    step = draw(st.sampled_from(["binary", "compare", "float", "reduce"]))
    operand = graph.constant(np.array(draw(st.integers(-3, 4)), helper.tensor_dtype_to_np_dtype(kind)))
    if step == "binary":
        graph.add(draw(st.sampled_from(INTEGER)), [name, operand], shape)
    elif step == "compare":
        graph.add(draw(st.sampled_from(COMPARISONS)), [name, operand], shape, BOOL)
    elif step == "reduce" and len(shape) > 1:
        axes = graph.constant(np.array([len(shape) - 1]))
        graph.add(draw(st.sampled_from(["ReduceSum", "ReduceMax"])), [name, axes], [*shape[:-1], 1])
    else:
        graph.add("Cast", [name], shape, FLOAT, to=FLOAT)


@st.composite
def graphs(draw) -> onnx.ModelProto:
    """One to eight nodes behind a tensor, H = W = C now and then; other inputs are integers, flags and scalars."""
    shape = draw(st.sampled_from(SHAPES))
    graph = Graph({"x": shape}, {"x": FLOAT}, draw(st.booleans()))
    if draw(st.booleans()):
        graph.shapes["xi"], graph.kinds["xi"] = shape, draw(st.sampled_from([INT32, INT64]))
    if not graph.free and draw(st.booleans()):
        graph.shapes["xc"], graph.kinds["xc"] = (), BOOL
    for _ in range(draw(st.integers(1, 8))):
        grow(draw, graph)
    if not graph.nodes:
        graph.add("Relu", ["x"], shape)
    choices = [[]] * 8 + [["x"], sorted(graph.shapes)[-1:], graph.some_constant()]
    return graph.model([name for name in draw(st.sampled_from(choices)) if name != "xi"])


def feeds_for(model: onnx.ModelProto) -> list[dict[str, np.ndarray]]:
    """Two feeds of the stated sizes, or three batches where the first axis is free."""
    found = []
    for number, batch in enumerate((2, 1, 3)):
        rng, feed = np.random.default_rng(number), {}
        for value in model.graph.input:
            kind = value.type.tensor_type.elem_type
            shape = [dim.dim_value or batch for dim in value.type.tensor_type.shape.dim]
            if kind == FLOAT:
                feed[value.name] = numbers(*shape, seed=number)
            elif kind == BOOL:
                feed[value.name] = rng.random(shape) < 0.5
            else:
                feed[value.name] = rng.integers(-9, 9, shape).astype(helper.tensor_dtype_to_np_dtype(kind))
        found.append({name: np.asarray(array) for name, array in feed.items()})
    return found
