"""Runs .tflite files in an old runtime, each in a child process: ``python old_runtime_service.py FOLDER``.

Executed by an old Python that has an old runtime and NumPy only.  The arrays of ``NAME.feed.npz`` (by tensor name) go
into ``NAME.tflite``; ``NAME.result.npz`` or, where the runtime refuses or dies, ``NAME.error`` comes out.
"""

import os
import sys
import traceback

import numpy as np

try:
    from tflite_runtime.interpreter import Interpreter
except ModuleNotFoundError:  # the package had this name up to 2.14
    from ai_edge_litert.interpreter import Interpreter


def run(path, stem):
    interpreter = Interpreter(model_path=path, num_threads=1)
    feed = dict(np.load(stem + ".feed.npz"))
    inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
    for name, detail in inputs.items():
        interpreter.resize_tensor_input(detail["index"], feed[name].shape)
    interpreter.allocate_tensors()
    for name, detail in inputs.items():
        interpreter.set_tensor(detail["index"], feed[name])
    interpreter.invoke()
    np.savez(
        stem + ".result.npz",
        **{d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()},
    )


def isolated(path):
    stem = path[: -len(".tflite")]
    child = os.fork()
    if child == 0:
        try:
            run(path, stem)
        except Exception:  # noqa: BLE001 - whatever an old runtime raises is the answer
            with open(stem + ".error", "w") as stream:
                stream.write(traceback.format_exc().strip().splitlines()[-1])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        with open(stem + ".error", "w") as stream:
            stream.write(f"died with status {status}")


for entry in sorted(os.listdir(sys.argv[1])):
    if entry.endswith(".tflite"):
        isolated(os.path.join(sys.argv[1], entry))
