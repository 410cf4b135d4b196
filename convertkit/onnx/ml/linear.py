"""Linear models and support vectors: products of rows with constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.fusion import Fusion, Results
from convertkit.onnx.ml.features import floats, real
from convertkit.onnx.ml.scores import TRANSFORMS, probit, transformed

_GREATEST = (ir.AttrInt64("axis", 1), ir.AttrInt64("keepdims", 0))


def linear_regressor(f: Fusion) -> Results:
    """One target takes no other transform than the probit, as in ONNX Runtime."""
    targets, name = f.whole("targets", 1), f.node.attributes.get_string("post_transform", "NONE")
    scores = _scores(f, floats(f, "coefficients"), floats(f, "intercepts"), targets)
    if scores is None or name not in TRANSFORMS:
        return None
    if targets == 1:
        return [probit(f, scores) if name == "PROBIT" else scores]
    return [transformed(f, scores, name)]


def linear_classifier(f: Fusion) -> Results:
    """The label of the greatest score, the first among equals; one score decides between two labels by its sign."""
    labels = np.array(f.node.attributes.get_ints("classlabels_ints", ()), np.int64)
    name, intercepts = f.node.attributes.get_string("post_transform", "NONE"), floats(f, "intercepts")
    scores = _scores(f, floats(f, "coefficients"), intercepts, intercepts.size)
    if scores is None or name not in TRANSFORMS or labels.size != max(intercepts.size, 2):
        return None
    if intercepts.size > 1:
        chosen = f.op("Gather", f.tensor(labels), f.op("ArgMax", scores, attributes=_GREATEST))
        return [chosen, transformed(f, scores, name)]
    if name == "PROBIT":
        return None  # ONNX Runtime leaves one of the two numbers as memory was
    positive = f.op("Greater", f.op("Squeeze", scores, f.ints(1)), _number(f, 0.0))
    chosen = f.op("Where", positive, f.scalar(int(labels[1])), f.scalar(int(labels[0])))
    return [chosen, _both(f, scores, logistic=name == "LOGISTIC")]


def _both(f: Fusion, scores: ir.Value, *, logistic: bool) -> ir.Value:
    """What stands for both of two classes, of which only the second has a score."""
    if logistic:
        parts = [f.op("Sigmoid", f.op("Neg", scores)), f.op("Sigmoid", scores)]
    else:
        parts = [f.op("Sub", _number(f, 1.0), scores), scores]
    return f.op("Concat", *parts, attributes=[ir.AttrInt64("axis", 1)])


def svm_regressor(f: Fusion) -> Results:
    """Products with the support vectors through a kernel; no transform, as in ONNX Runtime."""
    coefficients, rho = floats(f, "coefficients"), floats(f, "rho")
    count = f.whole("n_supports")
    if rho.size != 1 or not coefficients.size or f.rank(f.input(0)) > 2:
        return None
    if count == 0:
        scores = _scores(f, coefficients, rho, 1)
    else:
        kernel = _kernel(f, floats(f, "support_vectors").reshape(count, -1))
        if kernel is None or coefficients.size != count:
            return None
        scores = f.op("Add", f.op("MatMul", kernel, f.tensor(coefficients.reshape(count, 1))), f.tensor(rho))
    if scores is None or not f.whole("one_class"):
        return None if scores is None else [scores]
    return [f.op("Where", f.op("Greater", scores, _number(f, 0.0)), _number(f, 1.0), _number(f, -1.0))]


def _kernel(f: Fusion, vectors: Array) -> ir.Value | None:
    """Likeness of rows and support vectors, (rows, vectors); None for a kernel without a name."""
    name, parameters = f.node.attributes.get_string("kernel_type", "LINEAR"), floats(f, "kernel_params")
    gamma, offset, degree = (float(value) for value in (parameters if parameters.size == 3 else (0.0, 0.0, 0.0)))
    rows = _rows(f)
    if name == "RBF":
        apart = f.op("Sub", f.op("Unsqueeze", rows, f.ints(1)), f.tensor(vectors))
        far = f.op("ReduceSum", f.op("Mul", apart, apart), f.ints(-1), attributes=[ir.AttrInt64("keepdims", 0)])
        return f.op("Exp", f.op("Mul", far, _number(f, -gamma)))
    product = f.op("MatMul", rows, f.tensor(np.ascontiguousarray(vectors.T)))
    if name == "LINEAR":
        return product
    moved = f.op("Add", f.op("Mul", product, _number(f, gamma)), _number(f, offset))
    if name == "POLY":
        return f.op("Pow", moved, _number(f, degree))
    return f.op("Tanh", moved) if name == "SIGMOID" else None


def _scores(f: Fusion, coefficients: Array, intercepts: Array, count: int) -> ir.Value | None:
    """(rows, count); None where the numbers do not fit."""
    if count < 1 or coefficients.size % count or intercepts.size not in (0, count) or f.rank(f.input(0)) > 2:
        return None
    product = f.op("MatMul", _rows(f), f.tensor(np.ascontiguousarray(coefficients.reshape(count, -1).T)))
    return f.op("Add", product, f.tensor(intercepts)) if intercepts.size else product


def _rows(f: Fusion) -> ir.Value:
    """The input as float32 (rows, features); a vector is one row."""
    x = real(f, f.input(0))
    return f.op("Unsqueeze", x, f.ints(0)) if f.rank(f.input(0)) == 1 else x


def _number(f: Fusion, value: float) -> ir.Value:
    return f.tensor(np.array(value, np.float32))
