"""Run the model beside this file on the GPU of this machine, and compare with what was verified at the export.

Needs Python 3.9 and NumPy, and at least one of: ONNX Runtime with its CUDA provider (``pip install onnxruntime-gpu``);
TensorRT with its Python package, an engine of ``build_engine.py``, and ``pip install cuda-python``.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
import statistics
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SECONDS = 1.0
Arrays = dict[str, Any]


class Missing(Exception):
    """A runtime is not here; says which."""


def main(words: list[str] | None = None) -> int:
    """Print a line for each runtime.

    0 where all that run agree, 1 where one differs or fails, 2 where nothing runs on the GPU.
    """
    asked = arguments(words)
    try:
        facts = json.loads((HERE / "constraints.json").read_text(encoding="utf-8"))
        vectors = [*golden(facts), *edges(facts)]
    except (OSError, EOFError, ValueError, LookupError, zipfile.BadZipFile) as error:
        print(f"check_gpu.py: this is not a whole package: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    rows = []
    for name, opened in RUNTIMES.items():
        try:
            rows.append({"runtime": name, **judged(opened(facts, asked), vectors, facts, asked)})
        except Missing as reason:
            print(f"{name}: not run: {reason}")
            continue
        except Exception as error:  # noqa: BLE001 - runtimes raise what they like, and the others are run all the same
            rows.append({"runtime": name, "failed": f"{type(error).__name__}: {error}"})
        print(told(rows[-1]))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    on_gpu = [row for row in rows if row["runtime"] != CPU]
    if not on_gpu:
        print("check_gpu.py: nothing here runs the model on a GPU", file=sys.stderr)
        return 2
    return int(any("failed" in row or row["differ"] for row in rows))


def arguments(words: list[str] | None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="Compare what the GPU computes with what was verified at the export.")
    add = parser.add_argument
    add("--engine", type=Path, default=HERE / "model.engine", help="TensorRT's engine [model.engine]")
    add("--no-tf32", action="store_true", help="keep all bits of float32 in ONNX Runtime's products")
    add("--repeat", type=positive, default=50, help="calls that are timed [50]")
    add("--batch", type=positive, help="time calls of so many examples, where the first dimension is dynamic")
    add("--json", type=Path, help="file for the results")
    return parser.parse_args(words)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def golden(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The golden vectors, each with its name, inputs, outputs and what each output may differ by."""
    calls = json.loads((HERE / "golden" / "inputs.json").read_text(encoding="utf-8"))
    results = json.loads((HERE / "golden" / "outputs.json").read_text(encoding="utf-8"))["lst"][0][1]
    if not len(calls) == len(results) == facts["golden"]["vectors"]:
        raise ValueError(f"{len(calls)} inputs, {len(results)} outputs; expected {facts['golden']['vectors']} of each")
    for place, (call, result) in enumerate(zip(calls, results)):
        inputs = {name: array(value) for name, value in call.items()}
        outputs = {name: array(value["values"]) for name, value in result["outputs"].items()}
        yield {"name": f"golden {place + 1}", "inputs": inputs, "outputs": outputs, "atol": facts["golden"]["atol"]}


def edges(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The edge inputs: zeros, tiny and constant values, and others on which models break."""
    if not facts["golden"]["edges"]:
        return
    with np.load(HERE / "golden" / "edges.npz", allow_pickle=False) as kept:
        for place, edge in enumerate(facts["golden"]["edges"]):
            inputs = {each["name"]: kept[f"{place}/inputs/{each['name']}"] for each in facts["inputs"]}
            outputs = {each["name"]: kept[f"{place}/outputs/{each['name']}"] for each in facts["outputs"]}
            yield {**edge, "inputs": inputs, "outputs": outputs}


def array(value: dict[str, str]) -> Any:
    """An array from Polygraphy's JSON."""
    return np.load(io.BytesIO(base64.b64decode(value["array"])), allow_pickle=False)


def judged(
    runtime: Any, vectors: list[dict[str, Any]], facts: dict[str, Any], asked: argparse.Namespace
) -> dict[str, Any]:
    """How far the results are from those of the export, as shares of what is allowed, and what a call takes."""
    shares = {each["name"]: share(each, runtime.run(each["inputs"])) for each in vectors}
    worst = max(shares, key=lambda name: shares[name])
    return {
        "version": runtime.version,
        "vectors": len(shares),
        "differ": [name for name, found in shares.items() if found > 1],
        "worst": worst,
        "share_of_allowed": shares[worst] if math.isfinite(shares[worst]) else None,
        "ms": milliseconds(runtime.call(timed(facts, vectors[0]["inputs"], asked.batch)), asked.repeat),
    }


def timed(facts: dict[str, Any], inputs: Arrays, batch: int | None) -> Arrays:
    """What is timed: the inputs of a golden vector, repeated along the first dimension where that is dynamic."""
    if batch is None:
        return inputs
    free = {each["name"] for each in facts["inputs"] if each["shape"] and isinstance(each["shape"][0], str)}
    return {
        name: np.resize(value, (batch, *value.shape[1:])) if name in free else value for name, value in inputs.items()
    }


def share(vector: dict[str, Any], got: Arrays) -> float:
    """The greatest difference as a share of what is allowed; infinite where only one of two values is a number."""
    found = 0.0
    for name, wanted in vector["outputs"].items():
        if vector["atol"][name] is None:  # integers that rounding decides
            continue
        a, b = np.asarray(wanted, np.float64), np.asarray(got[name], np.float64)
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        same = ~np.isfinite(a)
        if not np.array_equal(a[same], b[same], equal_nan=True):
            return float("inf")
        off = float(np.abs(a[~same] - b[~same]).max(initial=0.0))
        allowed = vector["atol"][name]
        found = max(found, off / allowed if allowed else float("inf") if off else 0.0)
    return found


def milliseconds(call: Callable[[], object], repeat: int) -> float:
    """The median of a call, after some that warm up; a second at most for each."""
    durations(call, 10)
    return statistics.median(durations(call, repeat)) * 1e3


def durations(call: Callable[[], object], most: int) -> list[float]:
    """Seconds of each call, of one at least."""
    taken: list[float] = []
    while len(taken) < max(most, 1) and sum(taken) < SECONDS:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


def told(row: dict[str, Any]) -> str:
    """The line that is printed."""
    if "failed" in row:
        return f"{row['runtime']}: failed: {row['failed']}"
    verdict = f"differs on {', '.join(row['differ'])}, of" if row["differ"] else "agrees on"
    found = row["share_of_allowed"]
    most = "another size, or no number" if found is None else f"at most {found:.2f} of what is allowed"
    return (
        f"{row['runtime']} ({row['version']}): {verdict} {row['vectors']} inputs, {most} ({row['worst']}); "
        f"{row['ms']:.3f} ms"
    )


class OnnxRuntime:
    """The model in ONNX Runtime; inputs and outputs stay in the memory of ``device``."""

    def __init__(self, device: str, facts: dict[str, Any], asked: argparse.Namespace) -> None:
        try:
            import onnxruntime as ort
        except ImportError as error:
            raise Missing("pip install onnxruntime-gpu") from error
        if device == "cuda" and "CUDAExecutionProvider" not in ort.get_available_providers():
            raise Missing("ONNX Runtime is here without its CUDA provider: pip install onnxruntime-gpu")
        if hasattr(ort, "preload_dlls") and device == "cuda":
            ort.preload_dlls()
        options = ort.SessionOptions()
        options.log_severity_level = 3
        if "float8_e4m3fn" in facts["model"]["precisions"]:  # its optimiser takes these pairs for integers
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        cuda = ("CUDAExecutionProvider", {"use_tf32": "0" if asked.no_tf32 else "1"})
        providers = [cuda] if device == "cuda" else []
        file = str(HERE / facts["model"]["file"])
        try:
            self.session = ort.InferenceSession(file, options, providers=[*providers, "CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no other base; on the CPU it lacks bfloat16
            raise Missing(f"ONNX Runtime does not load the model: {error}") from error
        if device == "cuda" and self.session.get_providers()[0] != "CUDAExecutionProvider":
            raise Missing("ONNX Runtime does not start its CUDA provider on this machine")
        self.version, self._device, self._ort = ort.__version__, device, ort

    def run(self, inputs: Arrays) -> Arrays:
        """All outputs by name."""
        names = [each.name for each in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, inputs)))

    def call(self, inputs: Arrays) -> Callable[[], object]:
        """A call of these inputs that returns when the GPU is done."""
        binding = self.session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, self._ort.OrtValue.ortvalue_from_numpy(value, self._device, 0))
        for each in self.session.get_outputs():
            binding.bind_output(each.name, self._device)

        def once() -> None:
            self.session.run_with_iobinding(binding)
            binding.synchronize_outputs()

        return once


class TensorRt:
    """The engine in TensorRT; each tensor has memory of its own on the GPU, which lives as long as the process."""

    def __init__(self, _: dict[str, Any], asked: argparse.Namespace) -> None:
        try:
            import tensorrt as trt
            from cuda.bindings import runtime as cuda
        except ImportError as error:
            raise Missing(f"{error}; it needs TensorRT and cuda-python") from error
        if not asked.engine.exists():
            raise Missing(f"{asked.engine} is not there: run build_engine.py")
        logger = trt.Logger(trt.Logger.WARNING)
        if hasattr(trt, "init_libnvinfer_plugins"):
            trt.init_libnvinfer_plugins(logger, "")
        engine = trt.Runtime(logger).deserialize_cuda_engine(asked.engine.read_bytes())
        if engine is None:
            raise Missing(f"{asked.engine} is not an engine of this release for this GPU: run build_engine.py")
        self.version, self._trt, self._cuda, self._engine = trt.__version__, trt, cuda, engine
        self._context = engine.create_execution_context()
        self._stream = self._made(cuda.cudaStreamCreate())
        names = [engine.get_tensor_name(place) for place in range(engine.num_io_tensors)]
        self._outputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT]

    def run(self, inputs: Arrays) -> Arrays:
        """All outputs by name."""
        call, addresses = self._bound(inputs)
        call()
        found = {}
        for name in self._outputs:
            found[name] = self._empty(name)
            self._copied(found[name].ctypes.data, addresses[name], found[name].nbytes)
        return found

    def call(self, inputs: Arrays) -> Callable[[], object]:
        """A call of these inputs that returns when the GPU is done."""
        return self._bound(inputs)[0]

    def _bound(self, inputs: Arrays) -> tuple[Callable[[], None], dict[str, int]]:
        addresses = {}
        for name, value in inputs.items():
            kept = np.ascontiguousarray(value, self._dtype(name))  # TensorRT 8 has int32 where the model has int64
            self._context.set_input_shape(name, kept.shape)
            addresses[name] = self._made(self._cuda.cudaMalloc(max(kept.nbytes, 1)))
            self._copied(addresses[name], kept.ctypes.data, kept.nbytes)
        for name in self._outputs:
            addresses[name] = self._made(self._cuda.cudaMalloc(max(self._empty(name).nbytes, 1)))
        for name, address in addresses.items():
            self._context.set_tensor_address(name, int(address))

        def once() -> None:
            if not self._context.execute_async_v3(self._stream):
                raise RuntimeError("TensorRT does not run the engine; its messages are above")
            self._made(self._cuda.cudaStreamSynchronize(self._stream))

        return once, addresses

    def _empty(self, name: str) -> Any:
        return np.empty(tuple(self._context.get_tensor_shape(name)), self._dtype(name))

    def _dtype(self, name: str) -> Any:
        return self._trt.nptype(self._engine.get_tensor_dtype(name))

    def _copied(self, to: int, from_: int, size: int) -> None:
        self._made(self._cuda.cudaMemcpy(to, from_, size, self._cuda.cudaMemcpyKind.cudaMemcpyDefault))

    def _made(self, answer: tuple[Any, ...]) -> Any:
        """What a call of CUDA gives behind its error code."""
        if answer[0] != self._cuda.cudaError_t.cudaSuccess:
            raise RuntimeError(f"CUDA: {answer[0]}")
        return answer[1] if len(answer) > 1 else None


CPU = "ONNX Runtime, CPU"
RUNTIMES: dict[str, Callable[[dict[str, Any], argparse.Namespace], Any]] = {
    CPU: lambda facts, asked: OnnxRuntime("cpu", facts, asked),
    "ONNX Runtime, CUDA": lambda facts, asked: OnnxRuntime("cuda", facts, asked),
    "TensorRT": TensorRt,
}


if __name__ == "__main__":
    sys.exit(main())
