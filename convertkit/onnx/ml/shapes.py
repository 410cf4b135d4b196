"""The sizes of what models of ``ai.onnx.ml`` give, which ONNX's inference does not tell."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.ml.words import CLASSIFIERS

ML = "ai.onnx.ml"
_REGRESSORS = {"LinearRegressor": "targets", "TreeEnsembleRegressor": "n_targets", "TreeEnsemble": "n_targets",
               "SVMRegressor": ""}  # fmt: skip
"""Each with the attribute that counts its targets; 1 where that is left out."""
_LIKE_INPUT = {"Imputer": None, "Normalizer": ir.DataType.FLOAT, "Scaler": ir.DataType.FLOAT}
"""What gives as many values as it takes, with the type of its result; None where that is its input's."""


def state_models(model: ir.Model) -> bool:
    """State the shapes and types of all nodes of ``ai.onnx.ml`` in place; False where there are none.

    ONNX's inference has to find them: it ends the process where the type of a LabelEncoder's input is unknown.
    """
    nodes = [node for node in model.graph.all_nodes() if node.domain == ML]
    for node in nodes:
        state_shapes(node)
    return bool(nodes)


def state_shapes(node: ir.Node) -> None:
    """State the shapes and types of a model's results where nothing does, in place."""
    rows = _rows(node)
    if node.op_type in CLASSIFIERS:
        is_text = bool(node.attributes.get_strings("classlabels_strings", ()))
        _state(node, 0, ir.Shape([rows]), ir.DataType.STRING if is_text else ir.DataType.INT64)
        _state(node, 1, ir.Shape([rows, None]), ir.DataType.FLOAT)
    elif node.op_type in _REGRESSORS:
        targets = node.attributes.get_int(_REGRESSORS[node.op_type], 1)
        own = node.inputs[0].dtype if node.op_type == "TreeEnsemble" and node.inputs[0] is not None else None
        _state(node, 0, ir.Shape([rows, targets]), own or ir.DataType.FLOAT)
    elif node.op_type in _LIKE_INPUT and (value := node.inputs[0]) is not None and value.shape is not None:
        _state(node, 0, value.shape, _LIKE_INPUT[node.op_type] or value.dtype)


def _rows(node: ir.Node) -> int | ir.SymbolicDim | None:
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if shape is None or len(shape) > 2:
        return None
    return 1 if len(shape) == 1 else shape[0]


def _state(node: ir.Node, place: int, shape: ir.Shape, dtype: ir.DataType | None) -> None:
    if place >= len(node.outputs) or dtype is None:
        return
    value = node.outputs[place]
    if value.dtype is None:
        value.type = ir.TensorType(dtype)
    if value.shape is None or len(value.shape) != len(shape):  # CatBoost says (rows) of (rows, 1)
        value.shape = shape
