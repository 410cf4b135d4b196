"""Where OpenVINO's CPU plugin spends a call, by kind of kernel, and what activations with a sign would save.

    python bench/openvino_kernels.py EVAL.npz MODEL.xml [MODEL.xml …]
    python bench/openvino_kernels.py EVAL.npz MODEL.xml --signed near|all OUT.xml

Prints microseconds of a call on one thread by kind and implementation of the kernels, the sum of each kernel's median
over 100 calls, as the plugin counts them (whole microseconds, so that the shortest count as 0).  ``--signed`` writes
MODEL.xml with int8 activations around 0 in place of uint8 with a zero point: *near*, those whose ends differ by less
than a factor of four, or *all*.  Such files are for ``measure.py``; convertkit delivers none.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import openvino
from openvino import opset13
from server_artifacts import SETTINGS

WARM, CALLS = 20, 100
NEAR = 0.25


def times(path: Path, data: dict[str, np.ndarray]) -> dict[tuple[str, str], float]:
    """Microseconds by kind and implementation."""
    model = openvino.Core().compile_model(path, "CPU", SETTINGS | {"PERF_COUNT": "YES"})
    request = model.create_infer_request()
    feed = {
        port.any_name: np.ascontiguousarray(data[port.any_name][:1].astype(port.element_type.to_dtype()))
        for port in model.inputs
    }
    counted: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for call in range(WARM + CALLS):
        request.infer(feed)
        for kernel in request.profiling_info if call >= WARM else ():
            if kernel.status == openvino.ProfilingInfo.Status.EXECUTED:
                which = kernel.node_name, kernel.node_type, kernel.exec_type
                counted[which].append(kernel.real_time.total_seconds() * 1e6)
    found: dict[tuple[str, str], float] = defaultdict(float)
    for (_, kind, implementation), spent in counted.items():
        found[kind, implementation] += float(np.median(spent))
    return found


def signed(path: Path, whole: bool, out: Path) -> None:
    """The same model with symmetric activations."""
    model = openvino.Core().read_model(path)
    for node in model.get_ordered_ops():
        if node.get_type_name() != "FakeQuantize":
            continue
        low, high = (abs(node.input_value(place).get_node().get_vector()[0]) for place in (1, 2))
        if not whole and min(low, high) < NEAR * max(low, high):
            continue
        last = node
        while last.get_type_name() != "Multiply":  # the scale behind the integers and their zero point
            last = next(iter(last.output(0).get_target_inputs())).get_node()
        scale = max(low / 128, high / 127)
        ends = [opset13.constant(np.float32(end * scale)) for end in (-128, 127, -128, 127)]
        made = opset13.fake_quantize(node.input_value(0), *ends, 256)
        for reader in list(last.output(0).get_target_inputs()):
            reader.replace_source_output(made.output(0))
    model.validate_nodes_and_infer_types()
    openvino.save_model(model, out, compress_to_fp16=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--signed", nargs=2, metavar=("WHICH", "OUT"))
    options = parser.parse_args()
    if options.signed:
        signed(options.models[0], options.signed[0] == "all", Path(options.signed[1]))
        return 0
    data = dict(np.load(options.data))
    for path in options.models:
        found = times(path, data)
        print(f"{path}: {sum(found.values()):.0f} µs")
        for (kind, implementation), spent in sorted(found.items(), key=lambda each: -each[1]):
            print(f"  {spent:8.1f}  {kind} {implementation}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
