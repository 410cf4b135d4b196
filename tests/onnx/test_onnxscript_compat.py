"""What convertkit.onnx.onnxscript_compat takes from onnxscript and onnx_ir although they promise none of it."""

import inspect
import re

import onnx_ir as ir
import onnx_ir._core
import pytest
from onnxscript import rewriter
from onnxscript.optimizer._constant_folding import FoldConstantsPass, OptimizerState

from convertkit.onnx import onnxscript_compat as compat
from convertkit.onnx.optimizer import RULES


def test_the_library_has_rules():
    """``_DEFAULT_REWRITE_RULES``: without it, nothing is rewritten."""
    assert len(compat.RULES) > 40
    assert all(isinstance(rule, rewriter.RewriteRule) for rule in compat.RULES)


@pytest.mark.parametrize("rule", compat.RULES[:3])
def test_a_rule_tells_its_pattern_and_its_condition(rule):
    """``_target_pattern``, ``_condition_function``: without them no rule can be named or made exact."""
    assert "= " in compat.pattern_of(rule)
    assert callable(compat.condition_of(rule))


def test_a_rule_asks_the_condition_that_it_was_given():
    """``Pattern.match`` reads ``_condition_function``: else a rule would be applied where it is not exact."""
    asked = []
    casts = [rule for rule in RULES if rule.root is not None and rule.root[1] == "Cast"]

    def never(context, **bound):
        asked.append(context.root.op_type)
        return False

    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    cast = ir.node("Cast", [x], {"to": int(ir.DataType.FLOAT)})
    graph = ir.Graph([x], cast.outputs, nodes=[cast], opset_imports={"": 18})
    model = ir.Model(graph, ir_version=10)
    assert (
        rewriter.RewriteRuleSet([compat.RootedRule(rule, "never", never) for rule in casts]).apply_to_model(model) == 0
    )
    assert set(asked) == {"Cast"}


def test_the_root_of_a_pattern_is_the_operator_of_its_last_line():
    """``GraphPattern.output_nodes``, ``NodePattern.op_identifier``: else rules would be left out silently."""
    rooted = [rule for rule in RULES if rule.root is not None]
    assert len(rooted) > len(list(RULES)) / 2
    for rule in rooted:
        assert re.findall(r"= (\w+) \(", compat.pattern_of(rule))[-1] == rule.root[1], rule.title


def test_a_rule_is_tried_by_the_method_that_is_overridden():
    """``RewriteRule.try_rewrite(model, graph_or_function, node, *, verbose, tracer)``."""
    theirs, ours = (inspect.signature(each.try_rewrite) for each in (rewriter.RewriteRule, compat.RootedRule))
    assert list(theirs.parameters) == list(ours.parameters)


def test_the_graph_is_let_go():
    """``SimplePatternMatcher._graph``, ``_match``, ``_current_node``: else the last model stays in memory."""
    rule = next(iter(RULES))
    for name in ("_graph", "_match", "_current_node"):
        setattr(rule._matcher, name, object())
    compat.forget([rule])
    assert not {"_graph", "_match", "_current_node"} & set(vars(rule._matcher))


def test_constant_folding_keeps_sizes_where_it_is_corrected():
    """``FoldConstantsPass.process_node``, ``_state``, ``symbolic_value_map``: else rows of sizes are misread."""
    assert list(inspect.signature(FoldConstantsPass.process_node).parameters) == ["self", "node", "is_function"]
    state = OptimizerState()
    assert state.symbolic_value_map == {}
    assert state.get_sym_value(None) is None


def test_sizes_are_parsed_by_a_module_that_can_wait():
    """``onnx_ir._symbolic_shapes``: where onnx_ir takes functions out of it, an export imports sympy (0.2 s)."""
    assert onnx_ir._core._symbolic_shapes.__name__ == "onnx_ir._symbolic_shapes"
