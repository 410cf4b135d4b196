"""Operators of ``ai.onnx.ml`` (classical models) as ONNX's own, which every target knows.

A form that has no exact counterpart, strings above all, keeps its node: ONNX Runtime executes it, other targets refuse
it by name.  Words at a model's end are looked up last (``words``).

Source of the meanings: the texts of ai.onnx.ml, and ONNX Runtime's kernels where these leave a choice.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.onnx.fusion import Rule, replace_node
from convertkit.onnx.ml import features, linear, trees, vectors
from convertkit.onnx.ml.shapes import ML, state_models, state_shapes

__all__ = ["ML", "decompose_kernels", "decompose_ml", "state_models"]
_WRITTEN_FOR = 18
"""The opset of ONNX whose operators the rules write."""


def decompose_ml(model: ir.Model) -> bool:
    """Rewrite what ONNX Runtime computes the same either way, in place; False where there is nothing to rewrite."""
    if state_models(model):  # columns are chosen of values that stand behind other operators, too
        ShapeInferencePass(check_type=False, strict_mode=False)(model)
    return _decompose(model, _RULES)


def decompose_kernels(model: ir.Model) -> bool:
    """Rewrite trees and support vectors, in place, for a target that has neither; False where there are none.

    ONNX Runtime keeps its kernels: that of trees is 4 to 50 times as fast as comparisons and lookups, and those of
    support vectors add up in double.  A model of an opset before 18, which is not canonical, stays as it is.
    """
    if model.graph.opset_imports.get("", 0) < _WRITTEN_FOR:
        return False
    return _decompose(model, _KERNELS)


def _decompose(model: ir.Model, rules: Mapping[str, Rule]) -> bool:
    found = False
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            if node.domain == ML:
                state_shapes(node)
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
    "Scaler": features.scaler,
}
_KERNELS: Mapping[str, Rule] = {
    "SVMClassifier": vectors.svm_classifier,
    "SVMRegressor": vectors.svm_regressor,
    "TreeEnsemble": trees.tree_ensemble,
    "TreeEnsembleClassifier": trees.tree_ensemble_classifier,
    "TreeEnsembleRegressor": trees.tree_ensemble_regressor,
}
