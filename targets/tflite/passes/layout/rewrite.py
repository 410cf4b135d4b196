"""Carry out the chosen plans: replace inputs by transposed ones where they differ, adjust nodes, move shapes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.targets.forms.edits import typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import NHWC, OWN, quantization_of, set_order, set_quantization, set_reason
from convertkit.targets.tflite.passes.layout.layout_rules import LAYOUT_RULES
from convertkit.targets.tflite.passes.layout.perms import Perm, between, identity, is_identity
from convertkit.targets.tflite.passes.layout.plan import Constants, Plan, constant_of, rank_of
from convertkit.targets.tflite.passes.layout.view_rules import Transpose, source_perm


class Rewriter:
    """Rewrites one graph in topological order."""

    def __init__(self, graph: ir.Graph, plans: Mapping[ir.Node, Plan], stored_inputs: Mapping[ir.Value, Perm]) -> None:
        self._graph = graph
        self._plans = plans
        self._stored: dict[ir.Value, Perm] = dict(stored_inputs)
        self._made: dict[tuple[ir.Value, Perm], ir.Value] = {}
        self._constants = Constants(graph)

    def run(self, spatial: frozenset[ir.Node]) -> dict[int, Perm]:
        """Rewrite every node; returns the order of each graph output that is not in the source's order."""
        for value, perm in self._stored.items():
            _permute_shape(value, perm)
        for node in list(self._graph):
            plan = self._plans.get(node)
            self._inputs(node, plan)
            if plan is not None:
                self._apply(node, plan, node in spatial)
        return {
            place: self._stored[value]
            for place, value in enumerate(self._graph.outputs)
            if value in self._stored and not is_identity(self._stored[value])
        }

    def restore_output(self, place: int, perm: Perm) -> None:
        """Transpose one graph output back to the source's order, under its name."""
        value = self._graph.outputs[place]
        name = value.name
        inner = f"{name}/channels_last"
        value.name = inner
        why = f"output {name} keeps the source's layout"
        moved = self._transposed(value, between(perm, identity(len(perm))), why, value.producer())
        moved.name = name
        self._graph.outputs[place] = moved

    def _inputs(self, node: ir.Node, plan: Plan | None) -> None:
        for at, value in enumerate(node.inputs):
            rank = rank_of(value)
            if value is None or rank is None:
                continue
            wanted = identity(rank) if plan is None else plan.inputs.get(at, identity(rank))
            if self._stored.get(value, identity(rank)) != wanted:
                node.replace_input_with(at, self._in_order(value, wanted, node))
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                self._captured(attribute.as_graph(), node)

    def _captured(self, body: ir.Graph, outer: ir.Node) -> None:
        """Values that an inner graph takes from this one are in the source's order there."""
        for node in body:
            for at, value in enumerate(node.inputs):
                if value is not None and value in self._stored and not is_identity(self._stored[value]):
                    node.replace_input_with(at, self._in_order(value, identity(len(self._stored[value])), outer))
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    self._captured(attribute.as_graph(), outer)

    def _apply(self, node: ir.Node, plan: Plan, is_spatial: bool) -> None:
        if is_spatial:
            node.domain = NHWC
        else:
            LAYOUT_RULES[node.domain, node.op_type].rewrite(node, plan) if _moves(plan) else None
        for at, perm in plan.outputs.items():
            value = node.outputs[at]
            if is_identity(perm):
                continue
            self._stored[value] = perm
            _permute_shape(value, perm)
        if node.op_type == "Transpose" and isinstance(LAYOUT_RULES.get((node.domain, node.op_type)), Transpose):
            rank = rank_of(node.outputs[0])
            if rank is not None and is_identity(source_perm(node, rank)) and node.inputs[0] is not None:
                node.op_type = "Identity"
                node.attributes.clear()

    def _in_order(self, value: ir.Value, wanted: Perm, before: ir.Node) -> ir.Value:
        """``value`` stored as ``wanted``; constants are moved now, also behind a Dequantize."""
        known = self._made.get((value, wanted))
        if known is not None:
            return known
        have = self._stored.get(value, identity(len(wanted)))
        moves = between(have, wanted)
        made = self._constant(value, moves) or self._dequantized(value, moves)
        if made is None:
            maker = _title(value.producer(), value)
            why = f"{maker} leaves {_layout(have)}, {_title(before, value)} takes {_layout(wanted)}"
            made = self._transposed(value, moves, why, value.producer() or before)
        self._made[value, wanted] = made
        return made

    def _constant(self, value: ir.Value, moves: Perm) -> ir.Value | None:
        array = constant_of(value)
        if array is None:
            return None
        made = self._constants.add(array.transpose(moves))
        _keep_quantization(value, made, moves)
        return made

    def _dequantized(self, value: ir.Value, moves: Perm) -> ir.Value | None:
        node = value.producer()
        if (
            node is None
            or node.graph is not self._graph
            or node.domain != OWN
            or node.op_type != "Dequantize"
            or node.inputs[0] is None
        ):
            return None
        integers = self._constant(node.inputs[0], moves)
        if integers is None:
            return None
        made = ir.node("Dequantize", [integers], domain=OWN, name=f"{node.name}/channels_last")
        set_source(made, node)
        made.outputs[0].name = f"{value.name}/channels_last"
        typed(made.outputs[0], integers.shape, value.dtype)
        self._graph.insert_after(node, made)
        return made.outputs[0]

    def _transposed(self, value: ir.Value, moves: Perm, why: str, beside: ir.Node | None) -> ir.Value:
        """A transpose of ``value``; ``beside`` is the node that it is made for."""
        producer = value.producer()
        count = len(self._made)
        made = ir.node("Transpose", [value], {"perm": list(moves)}, name=f"{value.name}/transpose_{count}")
        set_reason(made, why)
        if beside is not None:
            set_source(made, beside)
        result = made.outputs[0]
        result.name = f"{value.name}/transposed_{count}"
        shape = None if value.shape is None else ir.Shape([value.shape[axis] for axis in moves])
        typed(result, shape, value.dtype)
        _keep_quantization(value, result, moves)
        if producer is None or producer.graph is not self._graph:
            first = next(iter(self._graph), None)
            if first is None:
                self._graph.append(made)
            else:
                self._graph.insert_before(first, made)
        else:
            self._graph.insert_after(producer, made)
        return result


def _title(node: ir.Node | None, value: ir.Value) -> str:
    return f"input {value.name}" if node is None else f"{node.name} ({node.op_type})"


def _layout(order: Perm) -> str:
    """``the source's layout``, or which of its axes stand where."""
    return "the source's layout" if is_identity(order) else f"its axes as {', '.join(map(str, order))}"


def _keep_quantization(value: ir.Value, moved: ir.Value, moves: Perm) -> None:
    params = quantization_of(value)
    if params is not None:
        set_quantization(moved, params if params.axis is None else params.moved(moves.index(params.axis)))


def _moves(plan: Plan) -> bool:
    return any(not is_identity(perm) for perm in (*plan.inputs.values(), *plan.outputs.values()))


def _permute_shape(value: ir.Value, perm: Perm) -> None:
    if not is_identity(perm):
        set_order(value, perm)
    if value.shape is not None and not is_identity(perm):
        value.shape = ir.Shape([value.shape[axis] for axis in perm])
