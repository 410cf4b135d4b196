"""Support vector machines: products of rows with support vectors, through a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.fusion import Fusion, Results
from convertkit.onnx.ml.classes import Classes, classes_of
from convertkit.onnx.ml.features import floats
from convertkit.onnx.ml.linear import both, number, products, rows
from convertkit.onnx.ml.scores import TRANSFORMS, transformed

_GREATEST = (ir.AttrInt64("axis", 1), ir.AttrInt64("keepdims", 0))
_FLOAT = (ir.AttrInt64("to", int(ir.DataType.FLOAT)),)


def svm_regressor(f: Fusion) -> Results:
    """Products with the support vectors through a kernel; no transform, as in ONNX Runtime."""
    coefficients, rho = floats(f, "coefficients"), floats(f, "rho")
    count = f.whole("n_supports")
    if rho.size != 1 or not coefficients.size or f.rank(f.input(0)) > 2:
        return None
    if count == 0:
        scores = products(f, coefficients, rho, 1)
    else:
        kernel = _kernel(f, floats(f, "support_vectors").reshape(count, -1))
        if kernel is None or coefficients.size != count:
            return None
        scores = f.op("Add", f.op("MatMul", kernel, f.tensor(coefficients.reshape(count, 1))), f.tensor(rho))
    if scores is None or not f.whole("one_class"):
        return None if scores is None else [scores]
    return [f.op("Where", f.op("Greater", scores, number(f, 0.0)), number(f, 1.0), number(f, -1.0))]


def _kernel(f: Fusion, vectors: Array) -> ir.Value | None:
    """Likeness of rows and support vectors, (rows, vectors); None for a kernel without a name."""
    name, parameters = f.node.attributes.get_string("kernel_type", "LINEAR"), floats(f, "kernel_params")
    gamma, offset, degree = (float(value) for value in (parameters if parameters.size == 3 else (0.0, 0.0, 0.0)))
    x = rows(f)
    if name == "RBF":
        apart = f.op("Sub", f.op("Unsqueeze", x, f.ints(1)), f.tensor(vectors))
        far = f.op("ReduceSum", f.op("Mul", apart, apart), f.ints(-1), attributes=[ir.AttrInt64("keepdims", 0)])
        return f.op("Exp", f.op("Mul", far, number(f, -gamma)))
    product = f.op("MatMul", x, f.tensor(np.ascontiguousarray(vectors.T)))
    if name == "LINEAR":
        return product
    moved = f.op("Add", f.op("Mul", product, number(f, gamma)), number(f, offset))
    if name == "POLY":
        return f.op("Pow", moved, number(f, degree))
    return f.op("Tanh", moved) if name == "SIGMOID" else None


def svm_classifier(f: Fusion) -> Results:
    """Every pair of classes has a score, whose sign is a vote; without support vectors, every class has one.

    Probabilities (``prob_a``) keep the node: ONNX Runtime finds them by steps until they settle.
    """
    classes, name = classes_of(f, "classlabels_ints"), f.node.attributes.get_string("post_transform", "NONE")
    counts = f.node.attributes.get_ints("vectors_per_class", ())
    if floats(f, "prob_a").size or name not in TRANSFORMS or classes.count < 2 or f.rank(f.input(0)) > 2:
        return None
    if not sum(counts):
        return _by_class(f, classes, name)
    return _by_pair(f, classes, counts, name) if len(counts) == classes.count else None


def _by_class(f: Fusion, classes: Classes, name: str) -> Results:
    """The label of the greatest score; of two labels the second where that is above 0, or one half."""
    coefficients, rho = floats(f, "coefficients"), floats(f, "rho")
    scores = products(f, coefficients, np.repeat(rho[:1], classes.count), classes.count)
    if scores is None or not rho.size:
        return None
    place = f.op("ArgMax", scores, attributes=_GREATEST)
    if classes.count == 2:
        most = f.op("ReduceMax", scores, f.ints(1), attributes=[ir.AttrInt64("keepdims", 0)])
        above = ("GreaterOrEqual", 0.5) if (coefficients >= 0).all() else ("Greater", 0.0)
        place = f.op("Where", f.op(above[0], most, number(f, above[1])), f.scalar(1), place)
    return [classes.at(f, place), transformed(f, scores, name)]


def _by_pair(f: Fusion, classes: Classes, counts: Sequence[int], name: str) -> Results:
    """The label with most votes, the first among equals; of two classes, the one score stands for both."""
    kernel = _kernel(f, floats(f, "support_vectors").reshape(sum(counts), -1))
    pairs = list(combinations(range(classes.count), 2))
    rho = floats(f, "rho")
    if kernel is None or rho.size < len(pairs) or (name == "PROBIT" and len(pairs) == 1):
        return None
    weights = f.tensor(_by_vector(floats(f, "coefficients"), counts, pairs))
    scores = f.op("Add", f.op("MatMul", kernel, weights), f.tensor(rho[: len(pairs)]))
    won = f.op("Cast", f.op("Greater", scores, number(f, 0.0)), attributes=_FLOAT)
    first, second = (np.eye(classes.count, dtype=np.float32)[[pair[side] for pair in pairs]] for side in (0, 1))
    votes = f.op("Add", f.op("MatMul", won, f.tensor(first - second)), f.tensor(second.sum(0)))
    label = classes.at(f, f.op("ArgMax", votes, attributes=_GREATEST))
    if len(pairs) > 1:
        return [label, transformed(f, scores, name)]
    if name == "NONE":
        return [label, f.op("Concat", f.op("Neg", scores), scores, attributes=[ir.AttrInt64("axis", 1)])]
    return [label, both(f, scores, logistic=name == "LOGISTIC")]


def _by_vector(coefficients: Array, counts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Array:
    """What each support vector counts in each pair, (vectors, pairs); it does in pairs of its own class alone.

    ``coefficients`` are (classes - 1, vectors): of each vector, against every other class.
    """
    stored = coefficients[: (len(counts) - 1) * sum(counts)].reshape(len(counts) - 1, -1)
    owner = np.repeat(np.arange(len(counts)), counts)
    first, second = np.array(pairs).T
    own, against = owner[:, None] == first, owner[:, None] == second
    places = np.arange(len(owner))[:, None]
    return np.where(own, stored[second - 1, places], 0) + np.where(against, stored[first, places], 0)
