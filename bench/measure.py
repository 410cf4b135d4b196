"""What an artifact computes and how fast: outputs against a reference, operators, and interleaved latency.

``measure.py probe ARTIFACT MODEL.onnx EVAL.npz`` prints one JSON line;
``measure.py latency SECONDS OURS EVAL.npz ARTIFACT…`` times the artifacts in turns, in one process and on
one thread, and prints one JSON line.  Each runs in a process of its own, because a kernel may abort it.
"""

from __future__ import annotations

import collections
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray]
ORDERS = {4: [(0, 1, 2, 3), (0, 2, 3, 1)], 3: [(0, 1, 2), (0, 2, 1)]}
CALLS_PER_ROUND = 3


def feeds(path: Path) -> list[Feed]:
    """The samples of an .npz as feeds of batch 1; the array ``label`` is not an input."""
    arrays = {name: array for name, array in np.load(path).items() if name != "label"}
    return [{k: v[i : i + 1] for k, v in arrays.items()} for i in range(len(next(iter(arrays.values()))))]


def reference(model: Path, samples: list[Feed]) -> list[list[np.ndarray]]:
    """ONNX Runtime's outputs of the float model."""
    import onnxruntime

    session = onnx_session(model, onnxruntime)
    return [session.run(None, feed) for feed in samples]


def onnx_session(model: Path, onnxruntime) -> object:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if os.environ.get("MEASURE_PLAIN"):  # what the graph says, without fused kernels of integers
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


class OnnxArtifact:
    """An .onnx file in ONNX Runtime, one thread."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self.session = onnx_session(path, onnxruntime)
        self.feed: Feed = {}

    def set(self, feed: Feed) -> None:
        self.feed = {i.name: feed[i.name] for i in self.session.get_inputs()}

    def invoke(self) -> None:
        self.outputs = self.session.run(None, self.feed)

    def results(self, expected: list[np.ndarray]) -> list[np.ndarray]:
        return self.outputs

    def operators(self) -> dict[str, int]:
        return {}


class TfliteArtifact:
    """A .tflite file in LiteRT with XNNPACK, one thread; feeds and results speak the source's layout."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.path = path
        self.interpreter = Interpreter(model_path=str(path), num_threads=1)
        self.interpreter.allocate_tensors()
        self.inputs = self.interpreter.get_input_details()
        self.signature = next(iter(self.interpreter.get_signature_list().values()), None)

    def _sources(self, feed: Feed) -> dict[int, np.ndarray]:
        """Arrays by tensor index: by name where names agree, else by position."""
        names = list(feed)
        clean = [d["name"].replace("serving_default_", "").split(":")[0] for d in self.inputs]
        if set(clean) <= set(names):
            return {d["index"]: feed[c] for d, c in zip(self.inputs, clean, strict=True)}
        order = sorted(range(len(self.inputs)), key=lambda i: self.inputs[i]["name"])
        return {self.inputs[i]["index"]: feed[names[n]] for n, i in enumerate(order)}

    def set(self, feed: Feed) -> None:
        sources = self._sources(feed)
        for detail in self.inputs:
            array = fitted(sources[detail["index"]], tuple(detail["shape"]))
            scale, zero = detail["quantization"]
            if np.dtype(detail["dtype"]).kind in "iu" and scale:
                limits = np.iinfo(detail["dtype"])
                array = np.clip(np.round(array / scale) + zero, limits.min, limits.max)
            self.interpreter.set_tensor(detail["index"], np.ascontiguousarray(array).astype(detail["dtype"]))

    def invoke(self) -> None:
        self.interpreter.invoke()

    def results(self, expected: list[np.ndarray]) -> list[np.ndarray]:
        found = []
        for detail in self.interpreter.get_output_details():
            array = self.interpreter.get_tensor(detail["index"])
            scale, zero = detail["quantization"]
            if array.dtype.kind in "iu" and scale:
                array = (array.astype(np.float64) - zero) * scale
            found.append(array)
        return [closest(array, reference) for array, reference in zip(found, expected, strict=True)]

    def operators(self) -> dict[str, int]:
        """Operators of the main subgraph as written, without delegates."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        plain = Interpreter(
            model_path=str(self.path),
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        return dict(collections.Counter(o["op_name"] for o in plain._get_ops_details()).most_common())

    def partition(self) -> dict[str, int]:
        """The execution plan with XNNPACK: number of delegate calls and operators left to the builtin kernels."""
        details = self.interpreter._get_ops_details()
        delegates = sum(o["op_name"] == "DELEGATE" for o in details)
        return {"delegate_calls": delegates}


def fitted(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    for order in ORDERS.get(array.ndim, [tuple(range(array.ndim))]):
        if tuple(array.shape[axis] for axis in order) == shape:
            return array.transpose(order)
    raise SystemExit(f"sample {array.shape} does not fit input {shape}")


def closest(array: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """``array`` in the layout of ``expected``: a peer may leave the channels last."""
    best = None
    for order in ORDERS.get(array.ndim, [tuple(range(array.ndim))]):
        turned = array.transpose(np.argsort(order))
        if turned.shape == expected.shape:
            error = float(np.abs(turned - expected).max())
            if best is None or error < best[0]:
                best = (error, turned)
    if best is None:
        raise SystemExit(f"output {array.shape} does not fit the reference {expected.shape}")
    return best[1]


def load(path: Path) -> Any:
    """An artifact by its suffix; a folder is a SavedModel."""
    if path.suffix == ".xml" or path.is_dir():
        import server_artifacts

        return (server_artifacts.SavedModelArtifact if path.is_dir() else server_artifacts.OpenVinoArtifact)(path)
    return OnnxArtifact(path) if path.suffix == ".onnx" else TfliteArtifact(path)


def probe(path: Path, model: Path, data: Path) -> dict[str, object]:
    """Errors over all samples through one interpreter (so state that leaks between calls shows), and operators."""
    samples = feeds(data)
    expected = reference(model, samples)
    artifact = load(path)
    worst, finite, same, classes = 0.0, True, [], []
    powers = np.zeros((len(samples), 2))
    for place, (feed, truth) in enumerate(zip(samples, expected, strict=True)):
        artifact.set(feed)
        artifact.invoke()
        for found, wanted in zip(artifact.results(truth), truth, strict=True):
            finite = finite and bool(np.isfinite(found).all())
            difference = found.astype(np.float64) - wanted
            worst = max(worst, float(np.abs(difference).max() / np.abs(wanted).max()))
            powers[place] += (wanted.astype(np.float64) ** 2).sum(), (difference**2).sum()
            same.append(float((found.argmax(-1) == wanted.argmax(-1)).mean()))
        classes.append(int(artifact.results(truth)[0].reshape(-1).argmax()))
    operators = artifact.operators()
    labels = np.load(data).get("label")
    signal, noise = np.maximum(powers, 1e-300).T
    each = 10 * np.log10(signal / noise)
    return {
        "ok": finite,
        "top1": None if labels is None else round(100 * float((np.array(classes) == labels.reshape(-1)).mean()), 2),
        "bytes": path.stat().st_size,
        "relative_error": worst,
        "snr_db": round(10 * float(np.log10(signal.sum() / noise.sum())), 2),
        "snr_median_db": round(float(np.median(each)), 2),
        "snr_p5_db": round(float(np.quantile(each, 0.05)), 2),
        "argmax_agreement": round(float(np.mean(same)), 4),
        "operators": sum(operators.values()),
        "transposes": operators.get("TRANSPOSE", 0),
        "histogram": operators,
        **(artifact.partition() if isinstance(artifact, TfliteArtifact) else {}),
    }


def timed(call: Callable[[], None], calls: int, clock: Callable[[], int] = time.thread_time_ns) -> float:
    """The fastest of ``calls`` consecutive calls in milliseconds of the calling thread, or of another ``clock``.

    Everything runs on that one thread.  Its clock stands still while other programs have the core, so a
    busy machine adds cache misses but not waiting; on an idle one it agrees with the wall clock.
    """
    times = []
    for _ in range(calls):
        started = clock()
        call()
        times.append(clock() - started)
    return 1e-6 * min(times)


def interval(values: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    draws = np.median(rng.choice(values, (400, len(values))), axis=1)
    return float(np.quantile(draws, 0.025)), float(np.quantile(draws, 0.975))


def latency(paths: list[Path], data: Path, seconds: float, ours: int) -> dict[str, object]:
    """Interleaved rounds in a shuffled order; medians, intervals, and the ratios of the first ``ours`` to all."""
    artifacts = [load(path) for path in paths]
    # OpenVINO and TensorFlow compute on a thread of their own.
    outside = any(path.suffix == ".xml" or path.is_dir() for path in paths)
    clock = time.process_time_ns if outside else time.thread_time_ns
    feed = feeds(data)[0]
    for artifact in artifacts:
        artifact.set(feed)
        for _ in range(3):
            artifact.invoke()
    rng = np.random.default_rng(0)
    once = sum(timed(a.invoke, 2, clock) for a in artifacts) / 1e3
    rounds = int(np.clip(seconds / max(once * (CALLS_PER_ROUND + 1), 1e-6), 12, 400))
    table = np.zeros((rounds, len(artifacts)))
    for row in table:
        for i in rng.permutation(len(artifacts)):
            artifacts[i].invoke()
            row[i] = timed(artifacts[i].invoke, CALLS_PER_ROUND, clock)
    medians = [float(np.median(column)) for column in table.T]
    return {
        "rounds": rounds,
        "ms": [round(v, 4) for v in medians],
        "interval": [[round(v, 4) for v in interval(column, rng)] for column in table.T],
        "best_ms": [round(float(column.min()), 4) for column in table.T],
        # ratio[i][j]: artifact i against artifact j, paired by round: drift of the machine cancels.
        "ratio": [[round(float(np.median(table[:, i] / column)), 4) for column in table.T] for i in range(ours)],
        "ratio_interval": [
            [[round(v, 4) for v in interval(table[:, i] / column, rng)] for column in table.T] for i in range(ours)
        ],
    }


def main() -> int:
    if sys.argv[1] == "probe":
        result = probe(*map(Path, sys.argv[2:5]))
    else:
        result = latency([Path(p) for p in sys.argv[5:]], Path(sys.argv[4]), float(sys.argv[2]), int(sys.argv[3]))
    print("RESULT " + json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
