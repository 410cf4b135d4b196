"""Ensembles of decision trees as tables, from the attributes of ``ai.onnx.ml``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.onnx.fusion import Fusion
from convertkit.onnx.ml.features import floats

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""Comparisons of a feature with a threshold, in the order in which TreeEnsemble numbers them."""
LEAF, MEMBER = len(MODES), len(MODES)
"""What stands behind these: a leaf where modes have names, a set of values where they have numbers."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """All nodes of all trees side by side; a leaf is its own child.

    ``modes`` index :data:`MODES`, or are :data:`LEAF`.  ``children`` (nodes, 2) hold the place where the comparison is
    false, then where it is true; ``weights`` (nodes, targets) are 0 where ``scored`` is false.
    """

    roots: Array
    features: Array
    thresholds: Array
    modes: Array
    missing: Array
    children: Array
    weights: Array
    scored: Array

    @property
    def depth(self) -> int:
        """How many comparisons stand on the longest way from a root; -1 where ways run in circles."""
        level, count = np.unique(self.roots), 0
        inner = self.modes != LEAF
        while (level := level[inner[level]]).size:
            level, count = np.unique(self.children[level]), count + 1
            if count > len(self.modes):
                return -1
        return count

    def always_scored(self) -> Array:
        """For each target, whether some tree scores it whichever leaf is reached."""
        found = np.zeros(self.weights.shape[1], bool)
        for root in self.roots:
            found |= self.scored[self._leaves(int(root))].all(0)
        return found

    def greatest_is_scored(self) -> bool:
        """Whether the greatest of all sums is one that was scored: scores are positive, and each row gets some."""
        positive = bool((self.weights[self.scored] > 0).all())
        return positive and any(self.scored[self._leaves(int(root))].any(1).all() for root in self.roots)

    def _leaves(self, root: int) -> list[int]:
        waiting, leaves = [root], []
        while waiting:
            place = waiting.pop()
            if self.modes[place] == LEAF:
                leaves.append(place)
            else:
                waiting += self.children[place].tolist()
        return leaves


def numbers(f: Fusion, name: str) -> Array:
    """Floats of an attribute, or of the tensor that may hold them as doubles instead."""
    stored = f.node.attributes.get(f"{name}_as_tensor")
    return stored.as_tensor().numpy().reshape(-1) if stored is not None else floats(f, name)


def from_names(f: Fusion, kind: str, targets: int) -> Ensemble | None:
    """Of TreeEnsembleRegressor (``kind`` "target") or TreeEnsembleClassifier ("class"); None where it does not fit."""
    words = [str(word) for word in f.node.attributes.get_strings("nodes_modes", ())]
    nodes = list(zip(_ints(f, "nodes_treeids"), _ints(f, "nodes_nodeids"), strict=True))
    places = {node: place for place, node in enumerate(nodes)}
    true, false = _ints(f, "nodes_truenodeids"), _ints(f, "nodes_falsenodeids")
    if len(places) < len(nodes) or len(words) != len(nodes) or not set(words) <= {*MODES, "LEAF"}:
        return None
    modes = np.array([LEAF if word == "LEAF" else MODES.index(word) for word in words])
    children = np.tile(np.arange(len(nodes))[:, None], 2)
    for place, (tree, _) in enumerate(nodes):
        if modes[place] != LEAF:
            ways = [places.get((tree, way[place]), place) for way in (false, true)]
            if place in ways:
                return None
            children[place] = ways
    trees = [tree for tree, _ in nodes]
    roots = [place for place, tree in enumerate(trees) if place == 0 or tree != trees[place - 1]]
    leaves = [places.get(each) for each in zip(_ints(f, f"{kind}_treeids"), _ints(f, f"{kind}_nodeids"), strict=True)]
    scores = _scores(len(nodes), targets, leaves, _ints(f, f"{kind}_ids"), numbers(f, f"{kind}_weights"))
    if scores is None:
        return None
    return Ensemble(np.array(roots), np.array(_ints(f, "nodes_featureids")), numbers(f, "nodes_values"), modes,
                    _flags(f, len(nodes)), children, *scores)  # fmt: skip


def from_numbers(f: Fusion, targets: int) -> Ensemble | None:
    """Of TreeEnsemble, whose inner nodes and leaves are counted apart; None where it does not fit."""
    attributes = f.node.attributes
    splits = attributes["nodes_splits"].as_tensor().numpy().reshape(-1)
    modes = attributes["nodes_modes"].as_tensor().numpy().reshape(-1).astype(np.int64)
    weights = attributes["leaf_weights"].as_tensor().numpy().reshape(-1)
    if (modes >= MEMBER).any():
        return None
    count, leaves = len(splits), len(weights)
    children = np.tile(np.arange(count + leaves)[:, None], 2)
    for column, name in enumerate(("false", "true")):
        ids, ends = np.array(_ints(f, f"nodes_{name}nodeids")), np.array(_ints(f, f"nodes_{name}leafs"))
        children[:count, column] = np.where(ends != 0, ids + count, ids)
    scores = _scores(count + leaves, targets, list(range(count, count + leaves)), _ints(f, "leaf_targetids"), weights)
    if scores is None:
        return None
    kinds = np.concatenate([modes, np.full(leaves, LEAF)])
    features = np.concatenate([_ints(f, "nodes_featureids"), np.zeros(leaves, np.int64)])
    thresholds = np.concatenate([splits, np.zeros(leaves, splits.dtype)])
    missing = np.concatenate([_flags(f, count), np.zeros(leaves, bool)])
    return Ensemble(np.array(_ints(f, "tree_roots")), features, thresholds, kinds, missing, children, *scores)


def _scores(
    count: int, targets: int, leaves: Sequence[int | None], ids: Sequence[int], weights: Array
) -> tuple[Array, Array] | None:
    """What each node gives to each target, and whether it does; None where a leaf gives to one twice.

    Of several numbers of a leaf for the only target ONNX Runtime takes the first.
    """
    table, scored = np.zeros((count, targets), weights.dtype), np.zeros((count, targets), bool)
    for leaf, target, weight in zip(leaves, ids, weights, strict=True):
        if leaf is None or not 0 <= target < targets or (scored[leaf, target] and targets > 1):
            return None
        if scored[leaf, target]:
            continue
        table[leaf, target], scored[leaf, target] = weight, True
    return table, scored


def _ints(f: Fusion, name: str) -> list[int]:
    return list(f.node.attributes.get_ints(name, ()))


def _flags(f: Fusion, count: int) -> Array:
    """Where NaN takes the way of a true comparison."""
    given = _ints(f, "nodes_missing_value_tracks_true")
    return np.array([bool(flag) for flag in given] if given else [False] * count)
