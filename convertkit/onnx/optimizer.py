"""onnxscript's optimizer, imported without ONNX's reference evaluator, and quick to see where no rule applies.

It asks that evaluator for operators on constants.  Its 200 modules, one for each operator, take as long to import as
all of onnxscript, and many models have no constants left to compute.

Its rewriting rules are applied only where they are exact (``exact_rules``).  Each of the 46 is tried at every node,
and most of the optimizer's time goes into finding that a node is of another operator than the one that the rule's
pattern ends in.  Here that is asked first.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx  # noqa: F401 - the package of what is put off
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.onnx.exact_rules import AUDITED, exactly, title
from convertkit.onnx.on_demand import put_off

with put_off("onnx.reference", "onnx.reference.ops"):
    import onnxscript.optimizer
    from onnxscript import rewriter
    from onnxscript.optimizer._constant_folding import FoldConstantsPass, Replacement
    from onnxscript.rewriter._rewrite_rule import ReplacementSubgraph

_ITERATIONS = 2
_CHANCE = frozenset({"Bernoulli"})
"""Operators that draw, of which the library's own list does not know: what is folded is drawn once for all time."""


class RootedRule(rewriter.RewriteRule):  # type: ignore[misc] # untyped
    """A rule of the optimizer, tried at nodes of the operator that its pattern ends in, and only where it is exact."""

    def __init__(self, rule: rewriter.RewriteRule) -> None:
        super().__init__(
            rule._target_pattern,
            rule._replacement_pattern,
            exactly(rule, AUDITED[title(rule)]),
            rule._matcher,
            rule._verbose,
            rule.name,
            rule.remove_nodes,
            rule.graph_pre_visitor,
            rule.graph_post_visitor,
            rule.as_function,
        )
        self.title = title(rule)
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


RULES = rewriter.RewriteRuleSet([RootedRule(r) for r in rewriter._DEFAULT_REWRITE_RULES if title(r) in AUDITED])
"""A rule that a newer version of the library brings is left out until someone has looked at it."""


class ExactFoldPass(FoldConstantsPass):  # type: ignore[misc] # untyped
    """The library's constant folding, which forgets that sizes may lie in rows.

    It follows sizes through Reshape and takes a Gather of rows, as of ``Reshape(Shape(x), [2, 2])``, for one of sizes.
    ``keepdims`` of SplitToSequence counts only where no ``split`` is given (ONNX operators, SplitToSequence-11).
    """

    def process_node(self, node: ir.Node, is_function: bool) -> Replacement | None:
        if node.op_type == "SplitToSequence" and len(node.inputs) > 1 and node.inputs[1] is not None:
            node.attributes.pop("keepdims", None)
        replacement: Replacement | None = super().process_node(node, is_function)
        for value in node.outputs:
            are_sizes = isinstance(self._state.get_sym_value(value), ir.Shape)
            if are_sizes and (value.shape is None or len(value.shape) > 1):
                del self._state.symbolic_value_map[value]
        return replacement


class ClippedTypesPass(ir.passes.InPlacePass):
    """Types for what is clipped, where inference node by node has found none, as behind loops.

    Rules that join Clips ask for the type and fail without one.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        if any(_clips_the_unknown(node) for node in model.graph.all_nodes()):
            return common.ShapeInferencePass()(model)
        return ir.passes.PassResult(model, modified=False)


def _clips_the_unknown(node: ir.Node) -> bool:
    value = node.inputs[0] if node.op_type in ("Clip", "Relu") and node.inputs else None
    return value is not None and value.dtype is None


def _forget() -> None:
    """Let go of the graph that the rules, which live as long as the process, were tried on last: it holds weights."""
    for rule in RULES:
        for name in ("_graph", "_match", "_current_node"):
            vars(rule._matcher).pop(name, None)


def optimize_ir(model: ir.Model, should_fold: Callable[[ir.Node], bool | None]) -> None:
    """What ``onnxscript.optimizer.optimize_ir`` does, in place; ``should_fold`` may decide for a node, or return None.

    The passes and their order are those of onnxscript 0.7, but for :class:`ClippedTypesPass`.
    """
    rounds = ir.passes.PassManager(
        [
            ExactFoldPass(
                shape_inference=True,
                input_size_limit=onnxscript.optimizer.constant_folding.DEFAULT_CONSTANT_FOLD_INPUT_SIZE_LIMIT,
                output_size_limit=onnxscript.optimizer.constant_folding.DEFAULT_CONSTANT_FOLD_OUTPUT_SIZE_LIMIT,
                should_fold=lambda node: False if node.op_type in _CHANCE else should_fold(node),
            ),
            ClippedTypesPass(),
            rewriter.RewritePass(RULES),
            common.RemoveUnusedNodesPass(),
            common.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
            common.RemoveUnusedOpsetsPass(),
        ],
        steps=_ITERATIONS,
        early_stop=True,
    )
    ir.passes.Sequential(
        common.InlinePass(),
        rounds,
        common.RemoveUnusedNodesPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )(model)
    _forget()
