"""Linear models: products of rows with constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.fusion import Fusion, Results
from convertkit.onnx.ml.classes import classes_of
from convertkit.onnx.ml.features import floats, real
from convertkit.onnx.ml.scores import TRANSFORMS, probit, transformed

_GREATEST = (ir.AttrInt64("axis", 1), ir.AttrInt64("keepdims", 0))


def linear_regressor(f: Fusion) -> Results:
    """One target takes no other transform than the probit, as in ONNX Runtime."""
    targets, name = f.whole("targets", 1), f.node.attributes.get_string("post_transform", "NONE")
    scores = products(f, floats(f, "coefficients"), floats(f, "intercepts"), targets)
    if scores is None or name not in TRANSFORMS:
        return None
    if targets == 1:
        return [probit(f, scores) if name == "PROBIT" else scores]
    return [transformed(f, scores, name)]


def linear_classifier(f: Fusion) -> Results:
    """The label of the greatest score, the first among equals; one score decides between two labels by its sign."""
    labels = classes_of(f, "classlabels_ints")
    name, intercepts = f.node.attributes.get_string("post_transform", "NONE"), floats(f, "intercepts")
    scores = products(f, floats(f, "coefficients"), intercepts, intercepts.size)
    if scores is None or name not in TRANSFORMS or labels.count != max(intercepts.size, 2):
        return None
    if intercepts.size > 1:
        chosen = labels.at(f, f.op("ArgMax", scores, attributes=_GREATEST))
        return [chosen, transformed(f, scores, name)]
    if name == "PROBIT":
        return None  # ONNX Runtime leaves one of the two numbers as memory was
    positive = f.op("Greater", f.op("Squeeze", scores, f.ints(1)), number(f, 0.0))
    return [labels.second_if(f, positive), both(f, scores, logistic=name == "LOGISTIC")]


def both(f: Fusion, scores: ir.Value, *, logistic: bool) -> ir.Value:
    """What stands for both of two classes, of which only the second has a score."""
    if logistic:
        parts = [f.op("Sigmoid", f.op("Neg", scores)), f.op("Sigmoid", scores)]
    else:
        parts = [f.op("Sub", number(f, 1.0), scores), scores]
    return f.op("Concat", *parts, attributes=[ir.AttrInt64("axis", 1)])


def products(f: Fusion, coefficients: Array, intercepts: Array, count: int) -> ir.Value | None:
    """Rows times ``coefficients``, and ``intercepts``: (rows, count); None where the numbers do not fit."""
    if count < 1 or coefficients.size % count or intercepts.size not in (0, count) or f.rank(f.input(0)) > 2:
        return None
    product = f.op("MatMul", rows(f), f.tensor(np.ascontiguousarray(coefficients.reshape(count, -1).T)))
    return f.op("Add", product, f.tensor(intercepts)) if intercepts.size else product


def rows(f: Fusion) -> ir.Value:
    """The input as float32 (rows, features); a vector is one row."""
    x = real(f, f.input(0))
    return f.op("Unsqueeze", x, f.ints(0)) if f.rank(f.input(0)) == 1 else x


def number(f: Fusion, value: float) -> ir.Value:
    """One float32."""
    return f.tensor(np.array(value, np.float32))
