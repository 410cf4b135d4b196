"""What onnxscript and onnx_ir do not promise: every private name and attribute of theirs that is used here.

``tests/onnx/test_onnxscript_compat.py`` says of each what breaks where a newer version has it no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx_ir as ir
from onnxscript import rewriter
from onnxscript.optimizer._constant_folding import FoldConstantsPass, Replacement
from onnxscript.rewriter._rewrite_rule import ReplacementSubgraph

from convertkit.onnx.edit import array_of
from convertkit.onnx.rounded import rounded_function

Condition = Callable[..., Any]
"""A rule's own: called with the match and the values that the pattern has bound."""

RULES: tuple[rewriter.RewriteRule, ...] = tuple(rewriter._DEFAULT_REWRITE_RULES)
"""The library's rewriting rules, in its order."""


def pattern_of(rule: rewriter.RewriteRule) -> str:
    """The rule's pattern as the library prints it, an operator in each line."""
    return str(rule._target_pattern)


def condition_of(rule: rewriter.RewriteRule) -> Condition:
    """What the rule asks of a match."""
    condition: Condition = rule._condition_function
    return condition


class RootedRule(rewriter.RewriteRule):  # type: ignore[misc] # untyped
    """The library's rule, under another condition, tried at nodes of the operator only that its pattern ends in.

    Each of 46 rules is tried at every node, and most of the optimizer's time goes into finding that a node is of
    another operator.
    """

    def __init__(self, rule: rewriter.RewriteRule, title: str, condition: Condition) -> None:
        self.__dict__.update(vars(rule))  # all that the library has given it
        self._condition_function = condition
        self.title = title
        self.root: tuple[str, str, str] | None = rule._target_pattern.output_nodes[0].op_identifier()
        """Domain, operator and overload; None where the pattern does not say."""

    def try_rewrite(
        self,
        model: ir.Model,
        graph_or_function: ir.Graph | ir.Function,
        node: ir.Node,
        *,
        verbose: int | None = None,
        tracer: rewriter.MatchingTracer | None = None,
    ) -> ReplacementSubgraph | None:
        if self.root is not None and self.root[1] != node.op_type:
            return None
        return super().try_rewrite(model, graph_or_function, node, verbose=verbose, tracer=tracer)


def forget(rules: Iterable[RootedRule]) -> None:
    """Let go of the graph that the rules were tried on last."""
    for rule in rules:
        for name in ("_graph", "_match", "_current_node"):
            rule._matcher.__dict__.pop(name, None)


class ExactFoldPass(FoldConstantsPass):  # type: ignore[misc] # untyped
    """The library's constant folding, which forgets that sizes may lie in rows.

    It follows sizes through Reshape and takes a Gather of rows, as of ``Reshape(Shape(x), [2, 2])``, for one of sizes.
    ``keepdims`` of SplitToSequence counts only where no ``split`` is given (ONNX operators, SplitToSequence-11); where
    one size for all parts is computed at run time, the library raises, and the node stays.
    """

    def process_node(self, node: ir.Node, is_function: bool) -> Replacement | None:
        if node.op_type == "SplitToSequence" and len(node.inputs) > 1 and node.inputs[1] is not None:
            node.attributes.pop("keepdims", None)
            if _is_computed_number(node.inputs[1]):
                return None
        replacement: Replacement | None = super().process_node(node, is_function)
        for value in node.outputs:
            are_sizes = isinstance(self._state.get_sym_value(value), ir.Shape)
            if are_sizes and (value.shape is None or len(value.shape) > 1):
                del self._state.symbolic_value_map[value]
        return replacement

    def _prepare_folded_tensor(self, node: ir.Node, output_name: str, output_array: Any) -> ir.TensorProtocol | None:
        """The library's own, of functions that are rounded once."""
        if not node.domain:
            inputs = [None if value is None else array_of(value) for value in node.inputs]
            attributes = {name: attribute.value for name, attribute in node.attributes.items()}
            exact = rounded_function(node.op_type, self._opset_imports[""], inputs, attributes)
            output_array = output_array if exact is None else exact
        tensor: ir.TensorProtocol | None = super()._prepare_folded_tensor(node, output_name, output_array)
        return tensor


def _is_computed_number(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.rank() == 0 and ir.convenience.get_const_tensor(value) is None
