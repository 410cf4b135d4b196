"""scikit-learn's estimators as skl2onnx writes them, for ``bench/outside.py``; skl2onnx has to be importable.

pip install skl2onnx --no-deps        scikit-learn itself is a development tool of this project
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, NameError)
FEATURES = 6
REGRESSORS = ("ridge", "lasso", "svr-poly")


def estimators() -> Mapping[str, Callable[[], Any]]:
    """Classifiers, regressors, transformers and pipelines with their defaults, small."""
    from sklearn import (
        cluster,
        decomposition,
        ensemble,
        linear_model,
        mixture,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )  # fmt: skip

    return {
        "logistic": linear_model.LogisticRegression,
        "ridge": linear_model.Ridge,
        "lasso": lambda: linear_model.Lasso(alpha=0.05),
        "sgd-classifier": lambda: linear_model.SGDClassifier(loss="log_loss", random_state=0),
        "perceptron": lambda: linear_model.Perceptron(random_state=0),
        "huber": linear_model.HuberRegressor,
        "tree-classifier": lambda: tree.DecisionTreeClassifier(max_depth=5, random_state=0),
        "tree-regressor": lambda: tree.DecisionTreeRegressor(max_depth=5, random_state=0),
        "forest-classifier": lambda: ensemble.RandomForestClassifier(8, max_depth=4, random_state=0),
        "forest-regressor": lambda: ensemble.RandomForestRegressor(8, max_depth=4, random_state=0),
        "extra-trees": lambda: ensemble.ExtraTreesRegressor(6, max_depth=4, random_state=0),
        "boosting-classifier": lambda: ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0),
        "boosting-regressor": lambda: ensemble.GradientBoostingRegressor(n_estimators=6, random_state=0),
        "histogram-boosting": lambda: ensemble.HistGradientBoostingRegressor(max_iter=6, random_state=0),
        "adaboost": lambda: ensemble.AdaBoostClassifier(n_estimators=4, random_state=0),
        "bagging": lambda: ensemble.BaggingRegressor(n_estimators=3, random_state=0),
        "isolation-forest": lambda: ensemble.IsolationForest(n_estimators=6, random_state=0),
        "svc-rbf": svm.SVC,
        "svc-linear": lambda: svm.SVC(kernel="linear"),
        "svr-poly": lambda: svm.SVR(kernel="poly"),
        "linear-svc": svm.LinearSVC,
        "neighbours-classifier": lambda: neighbors.KNeighborsClassifier(3),
        "neighbours-regressor": lambda: neighbors.KNeighborsRegressor(3, weights="distance"),
        "perceptrons-classifier": lambda: neural_network.MLPClassifier(
            hidden_layer_sizes=(8,), max_iter=60, random_state=0),
        "perceptrons-regressor": lambda: neural_network.MLPRegressor(
            hidden_layer_sizes=(8, 5), activation="tanh", max_iter=60, random_state=0),
        "bayes": naive_bayes.GaussianNB,
        "kmeans": lambda: cluster.KMeans(4, n_init=2, random_state=0),
        "mixture": lambda: mixture.GaussianMixture(3, random_state=0),
        "pca": lambda: decomposition.PCA(3),
        "scaler": preprocessing.StandardScaler,
        "robust-scaler": preprocessing.RobustScaler,
        "normalizer": preprocessing.Normalizer,
        "polynomial": lambda: preprocessing.PolynomialFeatures(2),
        "bins": lambda: preprocessing.KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
        "pipeline": lambda: pipeline.make_pipeline(
            preprocessing.StandardScaler(), decomposition.PCA(4), linear_model.LogisticRegression()),
        "union": lambda: pipeline.make_union(preprocessing.MinMaxScaler(), decomposition.PCA(2)),
    }  # fmt: skip


def answers(model: Any, x: np.ndarray) -> list[np.ndarray]:
    """What skl2onnx's outputs stand for: labels and probabilities, scores, numbers, or transformed features."""
    if hasattr(model, "transform") and not hasattr(model, "predict"):
        found = model.transform(x)
        return [np.asarray(found.todense() if hasattr(found, "todense") else found)]
    labels = np.asarray(model.predict(x))
    for name in ("predict_proba", "decision_function", "transform"):
        if hasattr(model, name):
            return [labels, np.asarray(getattr(model, name)(x))]
    return [labels.reshape(len(x), -1)]


def as_written(answer: np.ndarray, own: Any) -> np.ndarray:
    """scikit-learn's answer in the shape of the file's own; ``ValueError`` where skl2onnx wrote something else."""
    if not isinstance(own, np.ndarray) or own.size != answer.size:
        return answer  # probabilities are dictionaries in the file
    if own.dtype.kind == "f" and not np.allclose(own.ravel(), answer.ravel(), rtol=1e-3, atol=1e-3):
        raise ValueError("skl2onnx's file itself gives other numbers")
    return np.reshape(answer, own.shape)


def one(folder: Path, name: str, model: Any) -> None:
    """NAME.onnx and NAME.pkl; inputs are drawn as the features it was fitted on, in float32."""
    import onnx
    import onnxruntime as ort
    from skl2onnx import to_onnx

    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, FEATURES)).astype(np.float32)
    is_regressor = "regressor" in type(model).__name__.lower() or name in REGRESSORS
    numbers = x[:, 0] * 2 - x[:, 1] ** 2
    model.fit(x.astype(np.float64), numbers if is_regressor else np.digitize(numbers, [-1.5, 0.5]))
    needs_raw = name in ("svc-rbf", "svc-linear", "linear-svc", "perceptron")
    options = {id(model): {"raw_scores": True}} if needs_raw else None
    made = to_onnx(model, x[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
    session, rows = ort.InferenceSession(made.SerializeToString()), {}
    for kind, size in (("batch 2", 2), ("batch 1", 1), ("batch 7", 7)):
        given = rng.normal(size=(size, FEATURES)).astype(np.float32)
        own = session.run(None, {"X": given})
        double = [as_written(*pair) for pair in zip(answers(model, given.astype(np.float64)), own, strict=True)]
        outs = [each.astype(np.float32) if each.dtype.kind == "f" else each for each in double]
        rows[kind] = {"inputs": [given], "outs": outs, "double": double}
    onnx.save(made, folder / f"{name}.onnx")
    (folder / f"{name}.pkl").write_bytes(pickle.dumps({"rows": rows, "flags": []}))
    print(f"{name}: {[each.shape for each in rows['batch 2']['outs']]}", flush=True)


def make(folder: Path, names: list[str]) -> None:
    """Each estimator that is not there; what skl2onnx does not write is said."""
    for name, maker in estimators().items():
        if (names and name not in names) or (folder / f"{name}.pkl").exists():
            continue
        try:
            one(folder, name, maker())
        except REFUSALS as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:200]!r}", flush=True)
