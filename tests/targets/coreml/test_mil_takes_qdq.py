"""A graph quantized by Core ML's profile, pair by pair in MIL: coremltools takes every parameter and writes a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from convertkit.data.feeds import load_feeds
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.quantization.stage import build
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from convertkit.targets.coreml.profile import profile

RNG = np.random.default_rng(0)
DATA = RNG.normal(0, 1, (24, 3, 12, 12)).astype(np.float32)


class FakeTarget:
    name = "coreml"

    def profile(self, options: ExportOptions):
        return profile(options)


def network() -> ir.Model:
    c = {"w": (8, 3, 3, 3), "b": (8,), "v": (8, 8, 1, 1), "u": (5, 288), "c": (5,)}
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[1,3,12,12] x) => (float[1,5] y) {
        a = Conv <pads=[1,1,1,1]> (x, w, b)
        r = Relu (a)
        d = Conv (r, v)
        s = Add (d, r)
        p = MaxPool <kernel_shape=[2,2], strides=[2,2]> (s)
        f = Flatten (p)
        y = Gemm <transB=1> (f, u, c)
    }"""
    model = ir.from_onnx_text(text)
    for name, shape in c.items():
        value = next(v for node in model.graph for v in node.inputs if v is not None and v.name == name)
        value.const_value = ir.tensor(RNG.normal(0, 0.3, shape).astype(np.float32), name=name)
        value.shape, value.dtype = ir.Shape(shape), ir.DataType.FLOAT
        model.graph.register_initializer(value)
    return model


def quantized(folder: Path, precision: str) -> ir.Model:
    source = save_model(canonicalize(network()), folder / "float.onnx", "test")
    feeds = load_feeds(DATA, source.inputs)
    options = ExportOptions("x", precision=precision)  # type: ignore[arg-type]
    stage = build(BuildContext(options, FakeTarget(), calibration=feeds))  # type: ignore[arg-type]
    return load_model(stage.run(source, folder).path)


def test_integers_are_symmetric_and_only_where_coreml_has_them(tmp_path: Path) -> None:
    graph = quantized(tmp_path, "int8").graph
    arrays = {name: value.const_value.numpy() for name, value in graph.initializers.items()}
    pairs = [node for node in graph if node.op_type.endswith("tizeLinear")]
    assert all(not arrays[node.inputs[2].name].any() for node in pairs)
    assert not any(array.dtype == np.int32 for array in arrays.values()), "biases are float"
    read = {node.op_type for node in graph if node.inputs[0].producer() in pairs}
    assert {"Conv", "Add", "MaxPool", "Gemm"} <= read
    assert read <= {"Conv", "Relu", "Add", "MaxPool", "Gemm", "QuantizeLinear", "DequantizeLinear", "Reshape"}


def in_mil(graph: ir.Graph) -> Callable:
    """The graph in MIL's own operators; weights stay integers."""
    from coremltools.converters.mil import Builder as mb

    constants = {value: value.const_value.numpy() for value in graph.initializers.values()}

    def dequantize(node: ir.Node, values: dict):
        integers, scale = node.inputs[0], constants[node.inputs[1]]
        if integers not in constants:
            return mb.dequantize(input=values[integers], scale=scale)
        axis = node.attributes.get_int("axis", 0)
        zeros = np.zeros(scale.shape, np.int8)
        return mb.constexpr_affine_dequantize(
            quantized_data=constants[integers], scale=scale, zero_point=zeros, axis=np.int32(axis)
        )

    def product(op: str, node: ir.Node, values: dict):
        bias = {} if len(node.inputs) < 3 else {"bias": constants[node.inputs[2]]}
        x, weight = values[node.inputs[0]], values[node.inputs[1]]
        if op == "Gemm":
            return mb.linear(x=x, weight=weight, **bias)
        return mb.conv(x=x, weight=weight, pad_type="custom", pad=node.attributes.get_ints("pads", [0] * 4), **bias)

    def run(x):
        values = {graph.inputs[0]: x}
        rules = {
            "QuantizeLinear": lambda n: mb.quantize(
                input=values[n.inputs[0]], scale=constants[n.inputs[1]], output_dtype="int8"
            ),
            "DequantizeLinear": lambda n: dequantize(n, values),
            "Conv": lambda n: product("Conv", n, values),
            "Gemm": lambda n: product("Gemm", n, values),
            "Relu": lambda n: mb.relu(x=values[n.inputs[0]]),
            "Add": lambda n: mb.add(x=values[n.inputs[0]], y=values[n.inputs[1]]),
            "MaxPool": lambda n: mb.max_pool(
                x=values[n.inputs[0]], kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"
            ),
            "Reshape": lambda n: mb.reshape(x=values[n.inputs[0]], shape=[1, -1]),
        }
        for node in graph:
            values[node.outputs[0]] = rules[node.op_type](node)
        return mb.identity(x=values[graph.outputs[0]], name="y")

    return run


@pytest.mark.nightly  # importing coremltools takes 13 s
def test_coremltools_takes_every_parameter(tmp_path: Path) -> None:
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb

    model = quantized(tmp_path, "int8")
    run = in_mil(model.graph)

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 3, 12, 12))], opset_version=ct.target.iOS17)
    def program(x):
        return run(x)

    made = ct.convert(
        program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS17,
        pass_pipeline=ct.PassPipeline.EMPTY, skip_model_load=True,  # its passes join pairs
    )  # fmt: skip
    made.save(str(tmp_path / "model.mlpackage"))
    spec = ct.models.MLModel(str(tmp_path / "model.mlpackage"), skip_model_load=True).get_spec()
    (block,) = spec.mlProgram.functions["main"].block_specializations.values()
    found = Counter(operation.type for operation in block.operations)
    kinds = Counter(node.op_type for node in model.graph)
    weights = sum(node.inputs[0].is_initializer() for node in model.graph if node.op_type == "DequantizeLinear")
    assert found["quantize"] == kinds["QuantizeLinear"] > 3
    assert found["constexpr_affine_dequantize"] == weights == 3
    assert found["dequantize"] == kinds["DequantizeLinear"] - weights
