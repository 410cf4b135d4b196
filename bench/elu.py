"""ONNX Runtime's Elu beside the operators that are delivered for it: thread time of one call on one thread.

python bench/elu.py
"""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.onnxruntime.exponentials import keep_small_exponentials

CALLS = 60


def milliseconds(model: ir.Model, x: np.ndarray) -> float:
    """The median of calls."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"])
    taken = []
    for _ in range(CALLS):
        began = time.thread_time()
        session.run(None, {"x": x})
        taken.append(time.thread_time() - began)
    return float(np.median(taken)) * 1e3


def main() -> None:
    for shape in ((1, 64, 56, 56), (1, 8, 7, 7)):
        sizes = ",".join(map(str, shape))
        head = '<ir_version: 8, opset_import: ["" : 18]> g'
        text = f"{head} (float[{sizes}] x) => (float[{sizes}] y) {{ y = Elu(x) }}"
        model = canonicalize(ir.from_proto(onnx.parser.parse_model(text)))
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        before = milliseconds(model, x)
        keep_small_exponentials(model)
        print(f"{sizes}: {before:.4f} ms as Elu, {milliseconds(model, x):.4f} ms as delivered")


if __name__ == "__main__":
    main()
