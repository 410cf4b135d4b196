"""Decision trees as comparisons and table lookups: every row takes one step down all trees at once.

All nodes compare first, (rows, nodes); then each step looks up the node's answer and from that its child, as often as
the deepest tree has comparisons.  No size is read at run time: in LiteRT that would move memory behind XNNPACK's back,
which then reads what earlier calls have left.  Which leaf is reached is exact, ties and NaN included; sums of leaves
are float sums in another order.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.fusion import Fusion, Results
from convertkit.onnx.ml.classes import Classes, classes_of
from convertkit.onnx.ml.ensembles import LEAF, MODES, Ensemble, from_names, from_numbers, numbers
from convertkit.onnx.ml.features import real
from convertkit.onnx.ml.scores import TRANSFORMS, probit, transformed

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order in which TreeEnsemble numbers them."""
_COMPARES = dict(zip(MODES[:5], ("LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal"), strict=True))
_NOT_EQUAL = MODES.index("BRANCH_NEQ")
_SIDE_BY_SIDE = (ir.AttrInt64("axis", 1),)
_BY_ROW = (ir.AttrInt64("batch_dims", 1),)
_FIRST, _DROPPED = (ir.AttrInt64("axis", 0),), (ir.AttrInt64("keepdims", 0),)


def tree_ensemble_regressor(f: Fusion) -> Results:
    """Leaves of all trees summed, averaged, or their least or greatest; then the base values."""
    targets = f.whole("n_targets", 1)
    ensemble = from_names(f, "target", targets)
    how = f.node.attributes.get_string("aggregate_function", "SUM")
    name = f.node.attributes.get_string("post_transform", "NONE")
    if ensemble is None or how not in _AGGREGATES or name not in TRANSFORMS:
        return None
    made = _regression(f, ensemble, (how, name), numbers(f, "base_values"))
    return None if made is None else [None if score is None else real(f, score) for score in made]


def tree_ensemble(f: Fusion) -> Results:
    """The newer operator, which has no base values.

    Of its transforms 1 and 2 are softmax and logistic by its text, and the other way round in ONNX Runtime.
    """
    how, name = f.whole("aggregate_function", 1), f.whole("post_transform")
    ensemble = from_numbers(f, f.whole("n_targets", 1))
    if ensemble is None or how not in range(len(_AGGREGATES)) or name not in (0, 3, 4):
        return None
    return _regression(f, ensemble, (_AGGREGATES[how], TRANSFORMS[name]), np.zeros(0, ensemble.weights.dtype))


def _regression(f: Fusion, ensemble: Ensemble, how: tuple[str, str], base: Array) -> Results:
    leaves = _leaves(f, ensemble)
    if leaves is None:
        return None
    scores = _aggregated(f, ensemble, leaves, how[0])
    targets = ensemble.weights.shape[1]
    if base.size == targets:
        total = f.op("Add", scores, f.tensor(base.astype(ensemble.weights.dtype)))
        scores = total if targets == 1 else _where_scored(f, ensemble, leaves, total)
    if targets == 1:  # ONNX Runtime applies no other transform to a single target
        return [probit(f, scores) if how[1] == "PROBIT" else scores]
    return [transformed(f, scores, how[1])]


def _where_scored(f: Fusion, ensemble: Ensemble, leaves: ir.Value, total: ir.Value) -> ir.Value:
    """0 for a target that no reached leaf scores: ONNX Runtime then leaves out its base value, too."""
    if ensemble.always_scored().all():
        return total
    votes = _looked_up(f, ensemble.scored.astype(np.int32), leaves)
    most = f.op("ReduceMax", votes, f.ints(1), attributes=_DROPPED)
    scored = f.op("Equal", most, f.tensor(np.array(1, np.int32)))
    return f.op("Where", scored, total, f.tensor(np.array(0, ensemble.weights.dtype)))


def _aggregated(f: Fusion, ensemble: Ensemble, leaves: ir.Value, how: str) -> ir.Value:
    """(rows, targets) from leaves (rows, trees)."""
    weights = ensemble.weights
    if how in ("SUM", "AVERAGE"):
        total = f.op("ReduceSum", _looked_up(f, weights, leaves), f.ints(1), attributes=_DROPPED)
        count = f.tensor(np.array(len(ensemble.roots), weights.dtype))
        return f.op("Div", total, count) if how == "AVERAGE" else total
    none = np.inf if how == "MIN" else -np.inf
    filled = np.where(ensemble.scored, weights, none).astype(weights.dtype)
    kind = "ReduceMin" if how == "MIN" else "ReduceMax"
    chosen = f.op(kind, _looked_up(f, filled, leaves), f.ints(1), attributes=_DROPPED)
    zero = f.tensor(np.array(0, weights.dtype))
    return f.op("Where", f.op("Equal", chosen, f.tensor(np.array(none, weights.dtype))), zero, chosen)


def tree_ensemble_classifier(f: Fusion) -> Results:
    """The label of the greatest score, the first among equals; of two labels, see :func:`_of_two`."""
    labels = classes_of(f, "classlabels_int64s")
    name, base = f.node.attributes.get_string("post_transform", "NONE"), numbers(f, "base_values")
    ensemble = from_names(f, "class", labels.count) if labels.count > 1 else None
    leaves = None if ensemble is None else _leaves(f, ensemble)
    if ensemble is None or leaves is None or name not in TRANSFORMS:
        return None
    scores = _aggregated(f, ensemble, leaves, "SUM")
    if labels.count == 2:
        return _of_two(f, ensemble, scores, labels, name, base)
    if base.size not in (0, labels.count):
        return None
    if base.size:
        scores = f.op("Add", scores, f.tensor(base.astype(ensemble.weights.dtype)))
    elif not (ensemble.always_scored().all() or ensemble.greatest_is_scored()):
        return None  # a class without a vote takes no part in ONNX Runtime's choice, whatever the others' scores
    place = f.op("ArgMax", scores, attributes=[ir.AttrInt64("axis", 1), *_DROPPED])
    return [labels.at(f, place), transformed(f, real(f, scores), name)]


def _of_two(f: Fusion, ensemble: Ensemble, scores: ir.Value, labels: Classes, name: str, base: Array) -> Results:
    """Two classes: the sign of the second's score decides, or of the only one, or its side of one half.

    What is made of scores of the first class only, and which base values count, is as ONNX Runtime has it.
    """
    first, second = (bool(scored.any()) for scored in ensemble.scored.T)
    if first and second:
        return _of_both(f, ensemble, scores, labels, name, base)
    if first == second or (second and (base.size == 2 or not ensemble.always_scored()[1])):
        return None  # ONNX Runtime gives the base value alone
    score = f.op("Gather", real(f, scores), f.ints(int(second)), attributes=[ir.AttrInt64("axis", 1)])
    if first and base.size:
        score = f.op("Add", score, _number(f, float(base[0])))
    positive = bool((ensemble.weights >= 0).all())
    above = f.op("Squeeze", f.op("Greater", score, _number(f, 0.5 if positive else 0.0)), f.ints(1))
    label = labels.second_if(f, above)
    other = f.op("Mul", score, _number(f, 0.0))
    if second or base.size == 2:
        pair = f.op("Concat", *((other, score) if second else (score, other)), attributes=_SIDE_BY_SIDE)
        return [label, transformed(f, pair, name)]
    if name == "PROBIT":
        return None  # ONNX Runtime leaves one of the two numbers as memory was
    if name == "LOGISTIC":
        parts = [f.op("Sigmoid", f.op("Neg", score)), f.op("Sigmoid", score)]
    else:
        parts = [f.op("Sub", _number(f, 1.0), score) if positive else f.op("Neg", score), score]
    return [label, f.op("Concat", *parts, attributes=_SIDE_BY_SIDE)]


def _of_both(f: Fusion, ensemble: Ensemble, scores: ir.Value, labels: Classes, name: str, base: Array) -> Results:
    """Two classes that leaves score, as CatBoost has them: ONNX Runtime says 0 and 1, unless the labels are words."""
    if base.size or not ensemble.always_scored()[1]:
        return None
    score = f.op("Gather", real(f, scores), f.scalar(1), attributes=_SIDE_BY_SIDE)
    told = labels if labels.words else Classes((0, 1))
    label = told.second_if(f, f.op("Greater", score, _number(f, 0.0)))
    return [label, transformed(f, real(f, scores), name)]


def _number(f: Fusion, value: float) -> ir.Value:
    return f.tensor(np.array(value, np.float32))


def _leaves(f: Fusion, ensemble: Ensemble) -> ir.Value | None:
    """The leaf that each row reaches in each tree, (rows, trees) int64."""
    depth, x = ensemble.depth, f.input(0)
    if depth < 0 or f.rank(x) > 2:
        return None
    if x.dtype != ir.DataType.DOUBLE:
        x = real(f, x)
    rows = f.op("Unsqueeze", x, f.ints(0)) if f.rank(f.input(0)) == 1 else x
    if not depth:
        count = f.op("Gather", f.op("Shape", rows), f.ints(0), attributes=_FIRST)
        shape = f.op("Concat", count, f.ints(len(ensemble.roots)), attributes=_FIRST)
        return f.op("Expand", f.tensor(ensemble.roots.astype(np.int64)), shape)
    answers, children = _answers(f, rows, ensemble), ensemble.children.astype(np.int64)
    first = f.op("Gather", answers, f.tensor(ensemble.roots.astype(np.int64)), attributes=_SIDE_BY_SIDE)
    place = f.op("Where", first, *(f.tensor(children[ensemble.roots, side]) for side in (1, 0)))
    sides = [f.tensor(children[:, side]) for side in (1, 0)]
    for _ in range(depth - 1):
        answer = f.op("GatherND", answers, f.op("Unsqueeze", place, f.ints(-1)), attributes=_BY_ROW)
        place = f.op("Where", answer, *(f.op("Gather", side, place) for side in sides))
    return place


def _answers(f: Fusion, rows: ir.Value, ensemble: Ensemble) -> ir.Value:
    """What every node's comparison says of every row, (rows, nodes) bool; leaves say nothing that is read."""
    values = f.op("Gather", rows, f.tensor(ensemble.features.astype(np.int64)), attributes=[ir.AttrInt64("axis", 1)])
    doubles = f.input(0).dtype == ir.DataType.DOUBLE
    thresholds = f.tensor(ensemble.thresholds.astype(np.float64 if doubles else np.float32))
    modes = sorted({int(mode) for mode in ensemble.modes} - {LEAF})
    result: ir.Value | None = None
    for mode in modes:
        if mode == _NOT_EQUAL:
            said = f.op("Not", f.op("Equal", values, thresholds))
        else:
            said = f.op(_COMPARES[MODES[mode]], values, thresholds)
        if len(modes) > 1:
            said = f.op("And", said, f.tensor(ensemble.modes == mode))
        result = said if result is None else f.op("Or", result, said)
    assert result is not None, "there is a comparison"
    if ensemble.missing.any():
        result = f.op("Or", result, f.op("And", f.op("IsNaN", values), f.tensor(ensemble.missing)))
    return result


def _looked_up(f: Fusion, table: Array, places: ir.Value) -> ir.Value:
    """Rows of ``table`` (nodes, targets) for places (rows, trees)."""
    return f.op("Gather", f.tensor(table), places, attributes=_FIRST)
