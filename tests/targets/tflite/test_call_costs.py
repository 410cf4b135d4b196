"""What a call takes beside its operators, in estimates of whole files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from convertkit.targets.tflite.compile import Options, compile_model
from convertkit.targets.tflite.costs.calls import call_costs
from convertkit.targets.tflite.costs.estimate import estimates
from convertkit.targets.tflite.devices import MACHINES


def sums(folder: Path, length: int, dtype: int) -> Path:
    """A file of so many additions of eight numbers."""
    names = ["x", *(f"v{place}" for place in range(1, length)), "y"]
    nodes = [helper.make_node("Add", [names[place], "x"], [names[place + 1]]) for place in range(length)]
    infos = [helper.make_tensor_value_info(name, dtype, (1, 8)) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "sums", infos[:1], infos[1:]), ir_version=9)
    path = folder / f"{length}.{dtype}.tflite"
    compile_model(ir.from_proto(model), Options()).write(path)
    return path


def beside(path: Path, device: str) -> float:
    """Nanoseconds that the estimate has beside its operators."""
    (found,) = estimates(path, (device,))
    return (found.ms - sum(node.ms for node in found.nodes)) * 1e6


@pytest.mark.parametrize("device", MACHINES)
def test_a_call_takes_time_whatever_it_computes(device: str, tmp_path: Path) -> None:
    costs = call_costs(device)
    assert costs.call > 100
    for length in (1, 4):
        known = costs.call + length * costs.operator
        assert beside(sums(tmp_path, length, TensorProto.FLOAT), device) == pytest.approx(known)


def test_what_xnnpack_has_no_kernel_for_takes_more(tmp_path: Path) -> None:
    costs = call_costs("arm64-a76")
    assert costs.own > costs.operator
    few, many = (beside(sums(tmp_path, length, TensorProto.INT32), "arm64-a76") for length in (2, 5))
    assert many - few == pytest.approx(3 * (costs.operator + costs.own))


def test_a_machine_that_nothing_has_measured_takes_what_servers_do() -> None:
    assert call_costs("this") == call_costs("x86")
    assert np.isfinite(call_costs("this").call)
