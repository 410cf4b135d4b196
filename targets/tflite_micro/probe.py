"""A program of its own that asks TensorFlow Lite Micro how much memory a model takes: too little may crash it.

python probe.py MODEL START STOP    sets the model up in arenas of START bytes, 16 less, … down to STOP

Prints a line for each arena that is enough, and ends, or crashes, at the first that is not.  Where START is STOP, it
also runs the model, on zeros, and says what is in use.  Imports nothing of convertkit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from tflite_micro import runtime

STEP_BYTES = 16


def main(model: bytes, start: int, stop: int) -> None:
    """Try the arenas, the largest first."""
    for size in range(start, stop - 1, -STEP_BYTES):
        interpreter = runtime.Interpreter(model, [], size)
        if start == stop:
            _run(interpreter, runtime.convert_bytearray_to_object(model).subgraphs[0])
        print(size, flush=True)


def _run(interpreter: runtime.Interpreter, graph: object) -> None:
    for place in range(len(graph.inputs)):  # type: ignore[attr-defined]
        details = interpreter.get_input_details(place)
        interpreter.set_input(np.zeros(details["shape"], details["dtype"]), place)
    interpreter.invoke()
    interpreter.print_allocations()


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_bytes(), int(sys.argv[2]), int(sys.argv[3]))
