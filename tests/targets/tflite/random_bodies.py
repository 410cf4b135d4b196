"""Steps of random graphs with bodies and sequences: If, Loop, Scan, LSTM, GRU and RNN."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.targets.tflite.compiled import numbers
from tests.targets.tflite.random_graphs import BOOL, FLOAT, INT64, LARGEST, Free, Graph

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HIDDEN = 3


def _graph(name: str, body: list[onnx.NodeProto], inputs: list, results: list) -> onnx.GraphProto:
    infos = [[helper.make_tensor_value_info(*info) for info in side] for side in (inputs, results)]
    return helper.make_graph(body, name, *infos)


def branch(draw, graph: Graph, name: str, shape) -> None:
    """An If over captured values, whose condition is an input or a constant."""
    condition = "xc" if "xc" in graph.shapes else graph.constant(np.array(draw(st.booleans())))
    place = len(graph.nodes)
    ops = (draw(st.sampled_from(["Relu", "Tanh", "Abs", "Identity", "Floor"])), "Neg")
    sides = [
        _graph(side, [helper.make_node(op, [name], [f"{side}{place}"])], [], [(f"{side}{place}", FLOAT, None)])
        for side, op in zip(("yes", "no"), ops)
    ]
    graph.add("If", [condition], shape, FLOAT, then_branch=sides[0], else_branch=sides[1])


def loop(draw, graph: Graph, name: str, shape) -> None:
    """A Loop of a few turns over a carried value and a captured one, which collects the turns' values or does not."""
    collects, place = draw(st.booleans()), len(graph.nodes)
    turns = draw(st.integers(int(collects), 3))
    op = draw(st.sampled_from(["Add", "Max", "Sub"]))
    body = [
        helper.make_node("Identity", [f"go{place}"], [f"on{place}"]),
        helper.make_node(op, [f"in{place}", name], [f"out{place}"]),
        helper.make_node("Neg", [f"out{place}"], [f"row{place}"]),
    ]
    inputs = [(f"i{place}", INT64, []), (f"go{place}", BOOL, []), (f"in{place}", FLOAT, None)]
    results = [(f"on{place}", BOOL, []), (f"out{place}", FLOAT, None)]
    if collects:
        results.append((f"row{place}", FLOAT, None))
    inner = _graph("body", body if collects else body[:2], inputs, results)
    made = graph.add("Loop", [graph.constant(np.array(turns)), "", name], shape, FLOAT, body=inner)
    if collects and turns * np.prod(shape) < LARGEST and len(shape) < 5:
        graph.also(made, "r", (turns, *shape), FLOAT)
    elif collects:
        graph.nodes[-1].output.append(f"{made}r")


def scan(draw, graph: Graph, name: str, shape) -> None:
    """Running sums over the first axis, of its last element outwards or not."""
    if 0 in shape or any(isinstance(size, Free) for size in shape):
        return
    place = len(graph.nodes)
    body = [
        helper.make_node("Add", [f"state{place}", f"row{place}"], [f"sum{place}"]),
        helper.make_node("Tanh", [f"sum{place}"], [f"bent{place}"]),
    ]
    taken, given = (f"state{place}", f"row{place}"), (f"sum{place}", f"bent{place}")
    sides = [[(each, FLOAT, shape[1:]) for each in names] for names in (taken, given)]  # as ONNX Runtime wants them
    inner = _graph("body", body, *sides)
    start = graph.add("Gather", [name, graph.constant(np.array(0))], shape[1:])
    made = graph.add("Scan", [start, name], shape[1:], body=inner, num_scan_inputs=1,
                     scan_input_directions=[draw(st.integers(0, 1))])  # fmt: skip
    graph.also(made, "r", shape, FLOAT)


def recurrent(draw, graph: Graph, name: str, shape) -> None:
    """Any batch, any number of steps, any direction; all outputs or the last ones."""
    if len(shape) != 3 or 0 in shape or isinstance(shape[2], Free):
        return
    kind, seed = draw(st.sampled_from(sorted(GATES))), draw(st.integers(0, 99))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    ways, rows = 2 if direction == "bidirectional" else 1, GATES[kind] * HIDDEN
    sizes = [(ways, rows, shape[2]), (ways, rows, HIDDEN), (ways, 2 * rows)]
    weights = [graph.constant(numbers(*size, seed=seed) / 2) for size in sizes]
    made = graph.add(
        kind, [name, *weights], [shape[0], ways, shape[1], HIDDEN], hidden_size=HIDDEN, direction=direction
    )
    for _ in range(draw(st.integers(0, 2 if kind == "LSTM" else 1))):
        graph.also(made, f"h{len(graph.nodes[-1].output)}", [ways, shape[1], HIDDEN], FLOAT)
