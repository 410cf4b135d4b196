"""Operators of ``ai.onnx.ml`` (classical models) as ONNX's own, which every target knows.

A form that has no exact counterpart, strings above all, keeps its node: ONNX Runtime executes it, other targets refuse
it by name.  Source of the meanings: the texts of ai.onnx.ml, and ONNX Runtime's kernels where these leave a choice.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.onnx.fusion import Rule, replace_node
from convertkit.onnx.ml import features, linear, trees

ML = "ai.onnx.ml"


def decompose_ml(model: ir.Model) -> bool:
    """Rewrite all but trees, in place; False where there is nothing to rewrite."""
    return _decompose(model, _RULES)


def decompose_trees(model: ir.Model) -> bool:
    """Rewrite trees, in place, for a target that has none; False where there are none.

    ONNX Runtime's own kernel is 4 to 50 times as fast as these comparisons and lookups: it keeps the operators.
    """
    return _decompose(model, _TREES)


def _decompose(model: ir.Model, rules: Mapping[str, Rule]) -> bool:
    found = False
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            rule = rules.get(node.op_type) if node.domain == ML else None
            found |= rule is not None and replace_node(model, graph, node, rule)
    if found and not any(node.domain == ML for node in model.graph.all_nodes()):
        model.graph.opset_imports.pop(ML, None)
    return found


_RULES: Mapping[str, Rule] = {
    "ArrayFeatureExtractor": features.array_feature_extractor,
    "Binarizer": features.binarizer,
    "FeatureVectorizer": features.feature_vectorizer,
    "Imputer": features.imputer,
    "LabelEncoder": features.label_encoder,
    "LinearClassifier": linear.linear_classifier,
    "LinearRegressor": linear.linear_regressor,
    "Normalizer": features.normalizer,
    "OneHotEncoder": features.one_hot_encoder,
    "SVMRegressor": linear.svm_regressor,
    "Scaler": features.scaler,
}
_TREES: Mapping[str, Rule] = {
    "TreeEnsemble": trees.tree_ensemble,
    "TreeEnsembleClassifier": trees.tree_ensemble_classifier,
    "TreeEnsembleRegressor": trees.tree_ensemble_regressor,
}
