"""Two narrow products for a large one: their outputs, where they go, and what a gate allows."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import convertkit
from convertkit import plugins
from convertkit.data.feeds import load_feeds
from convertkit.errors import Unsupported
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.quantization import low_rank
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.units import constant, find_units
from convertkit.quantization.pruning.factors import factorise, factors, ranks
from convertkit.quantization.pruning.scores import Product
from convertkit.quantization.pruning.surgery import PRODUCTS
from convertkit.quantization.weights.patches import moments
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from tests.quantization.models import artifact_of, model_of

RNG = np.random.default_rng(5)


def narrow(outputs: int, inputs: int, rank: int) -> np.ndarray:
    """A matrix of nearly this rank."""
    made = RNG.normal(0, 1, (outputs, rank)) @ RNG.normal(0, 1, (rank, inputs)) / np.sqrt(rank * inputs)
    return (made + RNG.normal(0, 0.002, made.shape)).astype("f4")


def model(form: str) -> onnx.ModelProto:
    """One product of 96 × 160, of rank 12, in each form, in front of a Relu and a mean."""
    weight, bias = narrow(96, 160, 12), RNG.normal(0, 0.3, 96).astype("f4")
    if form == "conv":
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["p"], "product", strides=[2, 1])]
        constants = {"w": weight[:, :, None, None], "b": bias, "axes": np.array([2, 3])}
        shape = [1, 160, 10, 9]
    elif form == "gemm":
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["p"], "product", transB=1)]
        constants, shape = {"w": weight, "b": bias, "axes": np.array([0])}, [40, 160]
    else:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], "product"), helper.make_node("Add", ["m", "b"], ["p"])]
        constants, shape = {"w": weight.T.copy(), "b": bias, "axes": np.array([1])}, [1, 40, 160]
    nodes += [helper.make_node("Tanh", ["p"], ["t"], "t"),
              helper.make_node("ReduceMean", ["t", "axes"], ["y"], "mean", keepdims=0)]  # fmt: skip
    return model_of(nodes, constants, {"x": shape}, {"y": None})


def samples(proto: onnx.ModelProto, count: int = 24) -> np.ndarray:
    """Inputs of unequal power that are correlated."""
    shape = tuple(dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim)
    drawn = RNG.normal(0.3, 1, (count, *shape)).astype("f4")
    return drawn * np.linspace(0.2, 1.5, 160, dtype="f4").reshape([160 if size == 160 else 1 for size in shape])


def stage_of(wanted: str, feeds, **choices: object):
    options = ExportOptions("x", low_rank=wanted, **choices)  # type: ignore[arg-type]
    return low_rank.stage(BuildContext(options, plugins.target("tflite"), calibration=feeds))


@pytest.mark.parametrize("form", ["conv", "gemm", "matmul"])
def test_factors_of_full_rank_are_the_product_and_of_a_lower_one_lose_what_is_told(form: str, tmp_path) -> None:
    proto = model(form)
    source = artifact_of(proto, tmp_path)
    data, loaded = samples(proto), load_model(source.path)
    unit = next(unit for unit in find_units(loaded.graph, PRODUCTS) if unit.weight is not None)
    found = moments(loaded, [unit], [{"x": each} for each in data], {}, np.random.default_rng(0))
    made = factors(Product(unit, found[unit.name]))
    np.testing.assert_allclose(made.left @ made.right, made.product.rows, atol=1e-6)
    lost = made.product.rows - made.left[:, :8] @ made.right[:8]
    power = np.sum((lost @ made.product.damped(made.product.second)) * lost)
    whole = np.sum((made.product.rows @ made.product.second) * made.product.rows)
    assert power / whole == pytest.approx(made.loss[8], rel=1e-3)
    narrowed = loaded.clone()
    factorise(narrowed.graph, next(node for node in narrowed.graph if node.name == "product"), made, 8)
    lost_mean = mean_of_product(loaded, data) - mean_of_product(narrowed, data)
    without = lost @ made.product.moments.mean[0]  # of inputs with a mean of 0.3, at some of the positions
    assert np.square(lost_mean).sum() < 0.1 * np.square(without).sum()
    copy = loaded.clone()
    factorise(copy.graph, next(node for node in copy.graph if node.name == "product"), made, 96)
    onnx.checker.check_model(ir.to_proto(copy), full_check=True)
    ir.save(copy, tmp_path / "two.onnx")
    with OnnxRunner(source) as one, OnnxRunner(artifact_at(tmp_path / "two.onnx", source)) as other:
        expected, got = (runner.run({"x": data[0]})["y"] for runner in (one, other))
    np.testing.assert_allclose(got, expected, atol=1e-4)


def mean_of_product(loaded: ir.Model, data: np.ndarray) -> np.ndarray:
    """Of each of the 96 outputs in front of the Tanh."""
    copy = loaded.clone()
    copy.graph.outputs.append(next(node for node in copy.graph if node.op_type == "Tanh").inputs[0])
    name = str(copy.graph.outputs[-1].name)
    found = [answer[name] for answer in run_all(open_session(copy), [name], [{"x": each} for each in data], {})]
    return np.moveaxis(np.stack(found), found[0].shape.index(96) + 1, -1).reshape(-1, 96).mean(axis=0)


def artifact_at(path, like):
    import dataclasses

    return dataclasses.replace(like, path=path)


def test_ranks_win_time_and_no_rank_of_a_small_product_does(tmp_path) -> None:
    profile = plugins.target("tflite").profile(ExportOptions("x"))
    units = find_units(load_model(artifact_of(model("conv"), tmp_path).path).graph, PRODUCTS)
    found = ranks(next(unit for unit in units if unit.weight is not None), profile, integers=False)
    assert found
    assert all(rank % 8 == 0 and saved > 0 for rank, saved in found.items())
    assert max(found) < 96 * 160 / (96 + 160)  # beyond, two products have more multiply-adds than one
    assert found[min(found)] > found[max(found)]


@pytest.mark.parametrize("form", ["conv", "gemm", "matmul"])
def test_a_share_of_the_power_finds_the_rank_that_the_weights_have(form: str, tmp_path) -> None:
    proto = model(form)
    source = artifact_of(proto, tmp_path)
    stage = stage_of("0.99", load_feeds(samples(proto), source.inputs))
    result = stage.run(source, tmp_path)
    (layer,) = stage.diagnosis["factors"]
    assert layer["rank"] == 16  # 12, and whole tiles of 8
    assert stage.diagnosis["estimated_time"] < 0.9
    assert stage.diagnosis["held_out"]["snr_db"] > 20
    sizes = [constant(v).size for v in load_model(result.path).graph.initializers.values()]
    assert sum(sizes) < 0.4 * 96 * 160


def test_auto_takes_what_stays_good_and_refuses_what_does_not(tmp_path) -> None:
    proto = model("gemm")
    source = artifact_of(proto, tmp_path)
    stage = stage_of("auto", load_feeds(samples(proto, 40), source.inputs), calib="given")
    stage.run(source, tmp_path)
    (layer,) = stage.diagnosis["factors"]
    assert layer["rank"] in (8, 16, 24, 32)
    full = model("gemm")
    next(each for each in full.graph.initializer if each.name == "w").CopyFrom(
        onnx.numpy_helper.from_array(RNG.normal(0, 0.1, (96, 160)).astype("f4"), "w")
    )
    other = artifact_of(full, tmp_path)
    stage = stage_of("auto", load_feeds(samples(full, 40), other.inputs), calib="given")
    with pytest.raises(Unsupported, match="--low-rank auto: what wins time costs too much"):
        stage.run(other, tmp_path)


def test_an_export_tells_the_ranks(tmp_path) -> None:
    proto = model("gemm")
    onnx.save(proto, tmp_path / "gemm.onnx")
    result = convertkit.export(
        str(tmp_path / "gemm.onnx"), "tflite", output=str(tmp_path / "out"), low_rank=0.99, int8=True,
        calib={"x": samples(proto, 40)},
    )  # fmt: skip
    stages = [step["stage"] for step in result.report["steps"]]
    assert stages.index("low-rank") < stages.index("quantize")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Products as two factors" in page


def test_a_model_without_large_products_is_refused(tmp_path) -> None:
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "product", transB=1)]
    source = artifact_of(model_of(nodes, {"w": narrow(8, 12, 4)}, {"x": [1, 12]}, {"y": [1, 8]}), tmp_path)
    with pytest.raises(Unsupported, match="no dense layer or 1 × 1 convolution is faster as two by the cost table"):
        stage_of("0.9", None).run(source, tmp_path)
