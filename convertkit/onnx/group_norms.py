"""GroupNormalization of opsets 18 to 20, which ONNX took back, in operators that stayed.

Its scale and bias are those of groups; since opset 21 they are those of channels.
Source: ONNX operators' changelog, GroupNormalization-18 and -21.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence

import onnx
from onnx import helper

_SINCE, _UNTIL = 18, 21


def write_out_group_norms(proto: onnx.ModelProto, opset: int) -> None:
    """Write every GroupNormalization-18 of ``proto`` as InstanceNormalization of its groups, in place.

    before:  x → GroupNormalization
    after:   x → Reshape [N, groups, rest] → InstanceNormalization → Reshape like x

    Leaves those whose number of groups is an attribute of the function around them.
    """
    if not _SINCE <= opset < _UNTIL:
        return
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        for each in node_lists(nodes):
            found = [place for place, node in enumerate(each) if _is_old(node)]
            for place in reversed(found):
                node = each.pop(place)
                for new in reversed(_of_groups(node)):
                    each.insert(place, new)


def node_lists(nodes: MutableSequence[onnx.NodeProto]) -> Iterator[MutableSequence[onnx.NodeProto]]:
    """``nodes``, and those of the subgraphs in them."""
    yield nodes
    for node in nodes:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from node_lists(inner.node)


def _is_old(node: onnx.NodeProto) -> bool:
    stated = [attribute for attribute in node.attribute if attribute.name == "num_groups"]
    is_known = len(stated) == 1 and not stated[0].ref_attr_name and len(node.input) == 3
    return node.op_type == "GroupNormalization" and node.domain in ("", "ai.onnx") and is_known


def _of_groups(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    x, scale, bias = node.input
    stem = node.output[0]
    groups = next(attribute.i for attribute in node.attribute if attribute.name == "num_groups")
    epsilon = [attribute for attribute in node.attribute if attribute.name == "epsilon"]
    sizes, behind, rows, normal = (f"{stem}/{what}" for what in ("sizes", "groups", "rows", "normal"))
    norm = helper.make_node("InstanceNormalization", [rows, scale, bias], [normal], f"{node.name}/norm")
    norm.attribute.extend(epsilon)
    return [
        helper.make_node("Constant", [], [behind], f"{node.name}/groups", value_ints=[0, groups, -1]),
        helper.make_node("Reshape", [x, behind], [rows], f"{node.name}/rows"),
        norm,
        helper.make_node("Shape", [x], [sizes], f"{node.name}/sizes"),
        helper.make_node("Reshape", [normal, sizes], [stem], node.name),
    ]
