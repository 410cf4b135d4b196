"""Bodies of Scan in forms that OpenVINO 2026.4 reads, and that its CPU plugin computes as ONNX says.

Its reader counts what a body takes from around it, but for constants, among the states: "num_scan_outputs can't be
negative".  Its plugin, where a kernel adds, multiplies or compares as it writes a product of the state, reads from the
second turn on something else in the place of a row that stands first.  ``tests/targets/openvino/test_forms.py`` holds
both.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from convertkit.onnx.edit import array_of

_EITHER_ORDER = frozenset({"Add", "Max", "Min", "Mul"})
_PRODUCTS = frozenset({"Gemm", "MatMul"})


def write_scans(model: ir.Model) -> None:
    """Rewrite bodies in place; the numbers are the same."""
    for body in tuple(_bodies(model)):
        _put_products_first(body)
        _take_constants_in(body)


def _bodies(model: ir.Model) -> Iterator[ir.Graph]:
    for node in model.graph.all_nodes():
        if node.op_type == "Scan" and not node.domain:
            yield node.attributes["body"].as_graph()


def _put_products_first(body: ir.Graph) -> None:
    """Operands change places.

    before:  u = Add (row, MatMul (state, w))
    after:   u = Add (MatMul (state, w), row)
    """
    for node in body:
        if node.op_type not in _EITHER_ORDER or node.domain or len(node.inputs) != 2:
            continue
        row, product = node.inputs
        if row is not None and row.is_graph_input() and _is_product(product):
            node.replace_input_with(0, product)
            node.replace_input_with(1, row)


def _is_product(value: ir.Value | None) -> bool:
    maker = None if value is None else value.producer()
    return maker is not None and maker.op_type in _PRODUCTS and not maker.domain


def _take_constants_in(body: ir.Graph) -> None:
    """What is computed around a body from constants alone, as weights stored in fewer bits are, is computed in it."""
    known: dict[ir.Value, ir.Value] = {}
    for node in tuple(body):
        for place, value in enumerate(node.inputs):
            maker = None if value is None else value.producer()
            if value is None or maker is None or maker.graph is body or not _of_constants(maker):
                continue
            if value not in known:
                known[value] = _copied(maker, value, body)
            node.replace_input_with(place, known[value])


def _of_constants(maker: ir.Node) -> bool:
    return len(maker.outputs) == 1 and all(value is None or array_of(value) is not None for value in maker.inputs)


def _copied(maker: ir.Node, value: ir.Value, body: ir.Graph) -> ir.Value:
    output = ir.Value(name=f"{value.name}_in_body", type=value.type, shape=value.shape)
    attributes = tuple(maker.attributes.values())
    node = ir.Node(
        maker.domain, maker.op_type, maker.inputs, attributes, outputs=[output], name=f"{maker.name}_in_body"
    )
    body.insert_before(body[0], node)
    return output
