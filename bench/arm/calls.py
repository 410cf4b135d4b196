"""Runs inside the emulator: ``calls.py LIST CALLS KERNELS``; calls each TFLite file of the list once and CALLS times.

KERNELS is ``xnnpack``, or ``builtin`` for the runtime's own.  Each of the two is between two calls of getppid(), which
the plugin counts from and to (``blocks.c``).  Prints a line
for each file, with the sum of what it computed: so one sees that the emulated kernels are right.
"""

import os
import sys
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType


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
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if own else OpResolverType.AUTO
    for path in Path(sys.argv[1]).read_text().splitlines():
        runner = Interpreter(path, num_threads=1, experimental_op_resolver_type=resolver)
        runner.allocate_tensors()
        filled(runner, 0)
        runner.invoke()
        for times in (1, calls) if calls > 1 else (1,):
            os.getppid()
            for _ in range(times):
                runner.invoke()
            os.getppid()
        results = [runner.get_tensor(detail["index"]) for detail in runner.get_output_details()]
        print(path, *(f"{np.sum(each, dtype=np.float64):.9g}" for each in results), flush=True)


if __name__ == "__main__":
    main()
