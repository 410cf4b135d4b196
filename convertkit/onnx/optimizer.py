"""onnxscript's optimizer, whose rewriting rules are applied only where they are exact (``exact_rules``)."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import onnx_ir.passes.common as common
import onnxscript.optimizer
from onnxscript import rewriter

from convertkit.onnx import onnxscript_compat as compat
from convertkit.onnx.exact_rules import AUDITED, exactly, title

_ITERATIONS = 2
_CHANCE = frozenset({"Bernoulli"})
"""Operators that draw, of which the library's own list does not know: what is folded is drawn once for all time."""


RULES = rewriter.RewriteRuleSet(
    [
        compat.RootedRule(rule, name, exactly(rule, AUDITED[name]))
        for rule in compat.RULES
        if (name := title(rule)) in AUDITED
    ]
)
"""A rule that a newer version of the library brings is left out until someone has looked at it."""


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


def optimize_ir(model: ir.Model, should_fold: Callable[[ir.Node], bool | None]) -> None:
    """What ``onnxscript.optimizer.optimize_ir`` does, in place; ``should_fold`` may decide for a node, or return None.

    The passes and their order are those of onnxscript 0.7, but for :class:`ClippedTypesPass`.
    """
    rounds = ir.passes.PassManager(
        [
            compat.ExactFoldPass(
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
    compat.forget(RULES)  # the rules live as long as the process, and the graph holds weights
