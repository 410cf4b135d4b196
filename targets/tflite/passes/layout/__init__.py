"""Channels-last as a global choice.

Spatial operators move to domain ``convertkit.nhwc``.  Every other operator that can work on permuted
tensors gets two plans, one for each world (the source's order, and the order that follows from the
spatial operators around it), and a minimum cut chooses the worlds so that the fewest bytes are
transposed.  Nothing is guessed from shapes: orders are tracked from axis to axis.

before:  x:NCHW → Conv → Relu → Transpose(0,2,3,1) → LayerNormalization → y:NHWC
after:   x:NCHW → Transpose → nhwc.Conv → Relu → LayerNormalization → y:NHWC
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from convertkit.recipe import Layout
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.passes.layout.cut import Choice
from convertkit.targets.tflite.passes.layout.layout_rules import LAYOUT_RULES
from convertkit.targets.tflite.passes.layout.perms import Perm, channels_last, identity, is_identity
from convertkit.targets.tflite.passes.layout.plan import Plan, moved_bytes, rank_of, stays
from convertkit.targets.tflite.passes.layout.rewrite import Rewriter
from convertkit.targets.tflite.passes.part import Part

SPATIAL = frozenset(
    [
        "AveragePool",
        "Conv",
        "ConvTranspose",
        "DepthToSpace",
        "GlobalAveragePool",
        "GlobalLpPool",
        "GlobalMaxPool",
        "GridSample",
        "LRN",
        "LpPool",
        "MaxPool",
        "Resize",
        "SpaceToDepth",
    ]
)
"""Operators whose handlers are in the channels-last domain; input 0 and output 0 are images."""

_EACH_TRANSPOSE = 8000
"""What starting a transpose costs, in bytes moved."""

_MAX_ROUNDS = 4


@dataclass(slots=True)
class _Places:
    """Both plans of every node that has a choice, and the order that each value is offered in."""

    plans: dict[ir.Node, tuple[Plan, Plan]] = field(default_factory=dict)
    offers: dict[ir.Value, tuple[Perm, Perm]] = field(default_factory=dict)


def channels_last_layout(part: Part, input_layout: Layout) -> dict[str, Perm]:
    """Move a graph to channels-last in place; returns how its inputs and outputs are stored where changed."""
    graph = part.graph
    changed = _stored_inputs(graph, input_layout)
    places = _Places()
    for value in graph.inputs:
        if value.name in changed:
            places.offers[value] = (changed[value.name], changed[value.name])
    _seed(graph, places)
    for _ in range(_MAX_ROUNDS):
        if not (_forward(graph, places) | _backward(graph, places)):
            break
    if not places.plans:
        return {}
    free = frozenset(value for value in graph.outputs if input_layout != "nchw" and _comes_from_spatial(value))
    worlds = _choose(places, free)
    chosen = {node: plans[worlds[node]] for node, plans in places.plans.items()}
    rewriter = Rewriter(
        graph, chosen, {value: changed[str(value.name)] for value in graph.inputs if value.name in changed}
    )
    outputs = rewriter.run(frozenset(node for node in chosen if _is_spatial(node)))
    return changed | _stored_outputs(graph, outputs, rewriter, free)


def _is_spatial(node: ir.Node) -> bool:
    if node.domain != "" or node.op_type not in SPATIAL:
        return False
    rank = rank_of(node.inputs[0])
    return rank is not None and rank >= 3


def _stored_inputs(graph: ir.Graph, layout: Layout) -> dict[str, Perm]:
    """Inputs that the artifact takes channels-last.

    ``auto``: exactly those whose first consumers all are spatial, seen through quantization.
    ``nhwc``: those, and other images (rank 4 and 5) that reach a spatial operator through elementwise ones.
    """
    if layout == "nchw":
        return {}
    deep = layout == "nhwc"
    found = {}
    for value in graph.inputs:
        rank = rank_of(value)
        if rank is not None and rank >= 3 and value.uses() and not value.is_graph_output():
            first = [use.node for use in value.uses()]
            if all(_leads_to_spatial(node, value, deep) for node in first):
                found[str(value.name)] = channels_last(rank)
    return found


def _leads_to_spatial(node: ir.Node, value: ir.Value, deep: bool) -> bool:
    if _is_spatial(node):
        return node.inputs[0] is value
    passes = node.domain == OWN or node.op_type == "Identity"
    if deep and not passes:
        rule = LAYOUT_RULES.get((node.domain, node.op_type))
        passes = rule is not None and type(rule).__name__ == "Elementwise"
    if not passes or not node.outputs[0].uses() or node.outputs[0].is_graph_output():
        return False
    return all(_leads_to_spatial(use.node, node.outputs[0], deep) for use in node.outputs[0].uses())


def _seed(graph: ir.Graph, places: _Places) -> None:
    for node in graph:
        if not _is_spatial(node):
            continue
        rank = rank_of(node.inputs[0])
        assert rank is not None
        order = channels_last(rank)
        images = {at: order for at, value in enumerate(node.outputs) if rank_of(value) == rank}
        plan = Plan({0: order}, images)
        places.plans[node] = (plan, plan)
        for at in images:
            places.offers[node.outputs[at]] = (identity(rank), order)


def _forward(graph: ir.Graph, places: _Places) -> bool:
    changed = False
    for node in graph:
        if node in places.plans:
            continue
        for at, value in enumerate(node.inputs):
            offer = None if value is None else places.offers.get(value)
            if offer is not None and _assign(node, places, at, offer):
                changed = True
                break
    return changed


def _backward(graph: ir.Graph, places: _Places) -> bool:
    changed = False
    for node in reversed(list(graph)):
        if node in places.plans:
            continue
        value = node.outputs[0] if node.outputs else None
        wanted = None if value is None else _wanted(value, places)
        if wanted is not None and _assign(node, places, None, wanted):
            changed = True
    return changed


def _wanted(value: ir.Value, places: _Places) -> tuple[Perm, Perm] | None:
    """The order in which the first consumer with a choice takes ``value``."""
    for use in value.uses():
        plans = places.plans.get(use.node)
        if plans is not None and use.idx in plans[1].inputs:
            default = identity(len(plans[1].inputs[use.idx]))
            first = default if _is_spatial(use.node) else plans[0].inputs.get(use.idx, default)
            return first, plans[1].inputs[use.idx]
    return None


def _assign(node: ir.Node, places: _Places, at: int | None, perms: tuple[Perm, Perm]) -> bool:
    """Plan ``node`` for both worlds from one of its inputs, or from its output (``at`` None)."""
    rule = LAYOUT_RULES.get((node.domain, node.op_type))
    if rule is None or all(is_identity(perm) for perm in perms):
        return False
    made = [rule.backward(node, perm) if at is None else rule.forward(node, at, perm) for perm in perms]
    if made[0] is None and made[1] is None:
        return False
    plans = (made[0] or stays(node), made[1] or stays(node))
    places.plans[node] = plans
    for place, value in enumerate(node.outputs):
        rank = rank_of(value)
        if rank is not None:
            own = identity(rank)
            places.offers[value] = (plans[0].outputs.get(place, own), plans[1].outputs.get(place, own))
    return True


def _choose(places: _Places, free: frozenset[ir.Value]) -> dict[ir.Node, int]:
    """The cheapest world of every node; outputs in ``free`` may be stored in either order."""
    choice = Choice()
    numbers = {node: choice.node() for node in places.plans}
    for node, (source, last) in places.plans.items():
        number = numbers[node]
        choice.pays(number, source.cost, last.cost)
        if _is_spatial(node):
            choice.must(number)
        for at, value in enumerate(node.inputs):
            if value is None or value.const_value is not None or rank_of(value) in (None, 0, 1):
                continue
            _pays_for_input(choice, number, places, numbers, value, (source, last), at)
    for value in {value for node in places.plans for value in node.outputs}:
        _pays_for_others(choice, places, numbers, value, value in free)
    worlds = choice.worlds()
    return {node: worlds[number] for node, number in numbers.items()}


def _pays_for_input(
    choice: Choice,
    number: int,
    places: _Places,
    numbers: dict[ir.Node, int],
    value: ir.Value,
    plans: tuple[Plan, Plan],
    at: int,
) -> None:
    """What transposing one input costs in each pair of worlds."""
    own = identity(rank_of(value) or 0)
    want = tuple(plan.inputs.get(at, own) for plan in plans)
    have = places.offers.get(value, (own, own))
    price = moved_bytes(value) + _EACH_TRANSPOSE
    producer = value.producer()
    if producer is None or producer not in numbers:
        needed = _orders_of_spatial_users(value)
        choice.pays(number, *(0 if order == have[0] or order in needed else price for order in want))
        return
    costs = [[price if offer != order else 0 for order in want] for offer in have]
    _pairwise(choice, numbers[producer], number, costs)


def _orders_of_spatial_users(value: ir.Value) -> frozenset[Perm]:
    """Orders that ``value`` is transposed to in any case: another user shares them for nothing."""
    rank = rank_of(value)
    spatial = any(_is_spatial(use.node) and use.idx == 0 for use in value.uses())
    return frozenset({channels_last(rank)} if spatial and rank is not None else ())


def _pairwise(choice: Choice, first: int, second: int, costs: list[list[int]]) -> None:
    """Costs by world of the producer, then of the consumer, as unary and pairwise terms."""
    (a, b), (c, d) = costs
    spare = b + c - a - d
    if spare < 0:
        return  # a pair that wants to differ: rare, and any choice is correct
    choice.pays(first, a, c)
    choice.pays(second, 0, d - c)
    choice.differs(first, second, spare, 0)


def _pays_for_others(
    choice: Choice, places: _Places, numbers: dict[ir.Node, int], value: ir.Value, is_free: bool
) -> None:
    """What a consumer without a choice, or the interface, costs: it takes the source's order."""
    producer = value.producer()
    rank = rank_of(value)
    if producer is None or rank is None or value not in places.offers:
        return
    fixed = (value.is_graph_output() and not is_free) or any(use.node not in numbers for use in value.uses())
    if fixed:
        price = moved_bytes(value) + _EACH_TRANSPOSE
        choice.pays(numbers[producer], *(0 if is_identity(perm) else price for perm in places.offers[value]))


def _stored_outputs(
    graph: ir.Graph, stored: dict[int, Perm], rewriter: Rewriter, free: frozenset[ir.Value]
) -> dict[str, Perm]:
    """Outputs that stay channels-last: images that a spatial operator made; the others are transposed back."""
    result = {}
    for place, perm in stored.items():
        value = graph.outputs[place]
        if value in free and perm == channels_last(len(perm)):
            result[str(value.name)] = perm
        else:
            rewriter.restore_output(place, perm)
    return result


def _comes_from_spatial(value: ir.Value) -> bool:
    """Whether a spatial operator made the image, seen through what keeps an image one (no reshapes)."""
    node, rank = value.producer(), rank_of(value)
    while node is not None and not _is_spatial(node):
        first = node.inputs[0] if node.inputs else None
        keeps = (node.domain, node.op_type) in LAYOUT_RULES and node.op_type not in ("Transpose", "Reshape", "Flatten")
        if not keeps or first is None or rank_of(first) != rank:
            return False
        node = first.producer()
    return node is not None
