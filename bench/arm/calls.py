"""Runs inside the emulator: ``calls.py LIST CALLS KERNELS``; calls each file of the list once and CALLS times.

TFLite files are run by LiteRT, ``.onnx`` files by ONNX Runtime on one thread.  KERNELS is ``xnnpack``, or ``builtin``
for LiteRT's own.  A call of getppid() comes before the first call, which is to
fill the caches, and before and behind each of the two: the plugin counts from there and to there (``blocks.c``).
Prints a line for each file, with the sum of what it computed: so one sees that the emulated kernels are right.
"""

import os
import sys
from pathlib import Path

import numpy as np


class LiteRt:
    """A TFLite file."""

    def __init__(self, path, own):
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if own else OpResolverType.AUTO
        runner = Interpreter(path, num_threads=1, experimental_op_resolver_type=resolver)
        runner.allocate_tensors()
        filled(runner, 0)
        self._runner, self.call = runner, runner.invoke

    def results(self):
        return [self._runner.get_tensor(detail["index"]) for detail in self._runner.get_output_details()]


class OnnxRuntime:
    """An ONNX file; what is bound beforehand is not a part of a call."""

    def __init__(self, path):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._binding = session.io_binding()
        rng = np.random.default_rng(0)
        for value in session.get_inputs():
            shape = [size if isinstance(size, int) else 1 for size in value.shape]
            kind = _KINDS[value.type.removeprefix("tensor(").removesuffix(")")]
            real = np.dtype(kind).kind == "f"
            self._binding.bind_cpu_input(value.name, (rng.normal(0, 1, shape) if real else np.ones(shape)).astype(kind))
        for value in session.get_outputs():
            self._binding.bind_output(value.name)
        self.call = lambda: session.run_with_iobinding(self._binding)

    def results(self):
        return self._binding.copy_outputs_to_cpu()


_KINDS = {"float": "float32", "double": "float64", "float16": "float16", "bool": "bool"}
_KINDS |= {f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def filled(runner, seed):
    """Inputs that no operator refuses: small integers for indices, the whole range for quantized ones."""
    rng = np.random.default_rng(seed)
    for detail in runner.get_input_details():
        kind, shape = np.dtype(detail["dtype"]), detail["shape"]
        if kind.kind == "f":
            value = rng.normal(0, 1, shape)
        elif kind in (np.int8, np.int16, np.uint8) and detail["quantization"][0]:
            value = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape)
        else:
            value = np.ones(shape)
        runner.set_tensor(detail["index"], np.asarray(value).astype(kind))


def main():
    """Call them."""
    calls = int(sys.argv[2])
    own = sys.argv[3] == "builtin"
    for path in Path(sys.argv[1]).read_text().splitlines():
        runner = OnnxRuntime(path) if path.endswith(".onnx") else LiteRt(path, own)
        os.getppid()  # what runs from here on is counted
        runner.call()
        for times in (1, calls) if calls > 1 else (1,):
            os.getppid()
            for _ in range(times):
                runner.call()
            os.getppid()
        print(path, *(f"{np.sum(each, dtype=np.float64):.9g}" for each in runner.results()), flush=True)


if __name__ == "__main__":
    main()
