"""Programs whose right answer is known without JAX, run in ONNX Runtime."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

pytest.importorskip("jaxlib.mlir.ir")

from convertkit.converters.stablehlo.importer import to_onnx
from convertkit.errors import SourceError, Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from tests.converters.stablehlo.programs import executed

I64 = np.int64
rng = np.random.default_rng(3)


def main(arguments: str, body: str, result: str) -> str:
    """A module with one function; ``%r`` is returned."""
    return f"func.func public @main({arguments}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"


def run(text: str, *feeds):
    model = to_onnx(text)
    return executed(model, {f"x{index}": np.asarray(feed) for index, feed in enumerate(feeds)})[0]


def reduce(kind: str, dtype: str, start: str, shape: str = "8x9") -> str:
    body = (
        f"%i = stablehlo.constant dense<{start}> : tensor<{dtype}>\n"
        f"%r = stablehlo.reduce(%a init: %i) applies stablehlo.{kind} across dimensions = [1] : "
        f"(tensor<{shape}x{dtype}>, tensor<{dtype}>) -> tensor<{shape.split('x', maxsplit=1)[0]}x{dtype}>"
    )
    return main(f"%a: tensor<{shape}x{dtype}>", body, f"tensor<{shape.split('x', maxsplit=1)[0]}x{dtype}>")


def test_sums_of_integers_wrap():
    x = rng.integers(-(2**63), 2**63, (8, 9))
    assert (run(reduce("add", "i64", "0"), x) == x.sum(1)).all()
    x = rng.integers(-(2**31), 2**31, (8, 9)).astype(np.int32)
    assert (run(reduce("add", "i32", "0"), x) == x.sum(1, dtype=np.int32)).all()


def test_products_of_integers_wrap():
    x = rng.integers(-128, 128, (8, 9)).astype(np.int8)
    assert (run(reduce("multiply", "i8", "1"), x) == x.prod(1, dtype=np.int8)).all()


def test_maximum_of_int64_with_equal_upper_halves():
    x = rng.integers(0, 2**32, (8, 9))
    assert (run(reduce("maximum", "i64", "-9223372036854775808"), x) == x.max(1)).all()
    pair = main(
        "%a: tensor<9xi64>, %b: tensor<9xi64>", "%r = stablehlo.maximum %a, %b : tensor<9xi64>", "tensor<9xi64>"
    )
    assert (run(pair, x[0], x[1]) == np.maximum(x[0], x[1])).all()


def test_bitwise_reductions():
    x = rng.integers(-128, 128, (8, 9)).astype(np.int8)
    assert (run(reduce("and", "i8", "-1"), x) == np.bitwise_and.reduce(x, 1)).all()
    assert (run(reduce("xor", "i8", "0"), x) == np.bitwise_xor.reduce(x, 1)).all()


def test_division_by_zero_does_not_trap():
    text = main("%a: tensor<4xi32>, %b: tensor<4xi32>", "%r = stablehlo.divide %a, %b : tensor<4xi32>", "tensor<4xi32>")
    got = run(text, np.array([5, -5, -(2**31), 7], np.int32), np.array([0, 0, -1, -2], np.int32))
    assert got.tolist() == [-1, -1, -(2**31), -3]


def test_float_to_integer_saturates():
    text = main("%a: tensor<5xf32>", "%r = stablehlo.convert %a : (tensor<5xf32>) -> tensor<5xi32>", "tensor<5xi32>")
    got = run(text, np.array([3e9, -3e9, np.nan, -1.9, 2147483520.0], np.float32))
    assert got.tolist() == [2**31 - 1, -(2**31), 0, -1, 2147483520]


def test_double_to_half_rounds_once():
    x = (
        1 + rng.integers(0, 1024, 5000) / 1024 + 1 / 2048 + rng.choice([-1, 1], 5000) * 2.0**-40
    ) * 2.0 ** rng.integers(-20, 15, 5000)
    text = main(
        "%a: tensor<5000xf64>", "%r = stablehlo.convert %a : (tensor<5000xf64>) -> tensor<5000xf16>", "tensor<5000xf16>"
    )
    assert (run(text, x) == x.astype(np.float16)).all()


def test_shifts_beyond_the_width_give_zero():
    text = main(
        "%a: tensor<4xui16>, %b: tensor<4xui16>", "%r = stablehlo.shift_left %a, %b : tensor<4xui16>", "tensor<4xui16>"
    )
    assert run(text, np.full(4, 3, np.uint16), np.array([0, 15, 16, 999], np.uint16)).tolist() == [3, 2**15, 0, 0]


def test_windows_outside_are_clamped():
    body = "%r = stablehlo.dynamic_slice %a, %i, sizes = [2] : (tensor<5xf32>, tensor<i64>) -> tensor<2xf32>"
    text = main("%a: tensor<5xf32>, %i: tensor<i64>", body, "tensor<2xf32>")
    x = np.arange(5, dtype=np.float32)
    assert run(text, x, np.array(-3)).tolist() == [0, 1]
    assert run(text, x, np.array(2**31 + 5)).tolist() == [3, 4]


def test_a_free_dimension_gets_its_name():
    text = main("%a: tensor<?x3xf32>", "%r = stablehlo.tanh %a : tensor<?x3xf32>", "tensor<?x3xf32>")
    model = to_onnx(text, input_names=["x"], output_names=["y"], dims={(0, 0): "N"}, output_dims={(0, 0): "N"})
    assert [str(dim) for dim in model.graph.inputs[0].shape] == ["N", "3"]
    assert model.graph.outputs[0].name == "y"


def test_an_unknown_custom_call_is_refused():
    body = "%r = stablehlo.custom_call @tpu_custom_call(%a) : (tensor<2xf32>) -> tensor<2xf32>"
    with pytest.raises(Unsupported, match="custom call @tpu_custom_call"):
        to_onnx(main("%a: tensor<2xf32>", body, "tensor<2xf32>"))


def test_an_unrecognised_comparator_is_refused():
    body = """%r = "stablehlo.sort"(%a) <{dimension = 0 : i64}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      %t = stablehlo.compare LT, %s, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    }) : (tensor<5xf32>) -> tensor<5xf32>"""
    with pytest.raises(Unsupported, match="comparator"):
        to_onnx(main("%a: tensor<5xf32>", body, "tensor<5xf32>"))


def test_operators_of_other_dialects_are_named():
    """As TensorFlow's bridge leaves what it cannot convert."""
    body = """%0 = "tf.Dilation2D"(%a) : (tensor<5xf32>) -> tensor<5xf32>
    %r = "tf.BesselI0"(%0) : (tensor<5xf32>) -> tensor<5xf32>"""
    with pytest.raises(SourceError, match=r"not StableHLO's: tf\.BesselI0, tf\.Dilation2D$"):
        to_onnx(main("%a: tensor<5xf32>", body, "tensor<5xf32>"))


@pytest.mark.parametrize("text", ["func.func @main(", "module { foo.bar }", b"ML\xefR\rStableHLO_v1.0.0\0\1\2"])
def test_a_broken_module_is_one_sentence(text):
    with pytest.raises(SourceError, match="cannot be read"):
        to_onnx(text)


@pytest.mark.parametrize("shape", ["", "3x"])
def test_a_whole_is_scattered_without_indices(shape):
    """What ``x.at[...].add(u)`` exports: its index vector has no element."""
    kind, axes = f"tensor<{shape}ui32>", "update_window_dims = [0]" if shape else ""
    body = (
        "%i = stablehlo.constant dense<> : tensor<0xi32>\n"
        f'%r = "stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{axes}>}}> ({{\n'
        "^bb0(%old: tensor<ui32>, %new: tensor<ui32>):\n"
        "%s = stablehlo.add %old, %new : tensor<ui32>\n"
        "stablehlo.return %s : tensor<ui32>\n"
        f"}}) : ({kind}, tensor<0xi32>, {kind}) -> {kind}"
    )
    x, u = (np.full((3,) if shape else (), number, np.uint32) for number in (5, 7))
    assert (run(main(f"%a: {kind}, %u: {kind}", body, kind), x, u) == 12).all()


def test_total_order_tells_zeros_and_nans_apart():
    compared = "%r = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>"
    program = main("%a: tensor<8xf32>, %b: tensor<8xf32>", compared, "tensor<8xi1>")
    inf, nan = np.inf, np.nan
    x = np.float32([-0.0, 0.0, -nan, -inf, inf, nan, 1, 2])
    y = np.float32([0.0, -0.0, -inf, -nan, nan, inf, 2, 1])
    assert run(program, x, y).tolist() == [True, False, True, False, True, False, True, False]


def test_static_slices_of_a_free_axis():
    program = main(
        "%a: tensor<?x3xf32>",
        "%r = stablehlo.slice %a [1:2, 0:3] : (tensor<?x3xf32>) -> tensor<1x3xf32>",
        "tensor<1x3xf32>",
    )
    x = rng.standard_normal((4, 3)).astype(np.float32)
    assert (run(program, x) == x[1:2]).all()


@pytest.mark.parametrize("length", [6, 8])
def test_transforms_of_rows_whose_number_is_free(length):
    kind, result = f"tensor<?x{length}xf32>", f"tensor<?x{length // 2 + 1}xcomplex<f32>>"
    body = f"%r = stablehlo.fft %a, type = RFFT, length = [{length}] : ({kind}) -> {result}"
    x = rng.standard_normal((3, length)).astype(np.float32)
    got = run(main(f"%a: {kind}", body, result), x)
    assert np.abs(got[..., 0] + 1j * got[..., 1] - np.fft.rfft(x)).max() < 1e-5


def test_a_kernel_larger_than_its_input_leaves_nothing():
    body = """%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
      window = {stride = [1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<2x3x4xf32>, tensor<5x3x6xf32>) -> tensor<2x5x0xf32>"""
    text = main("%a: tensor<2x3x4xf32>, %b: tensor<5x3x6xf32>", body, "tensor<2x5x0xf32>")
    assert run(text, np.ones((2, 3, 4), np.float32), np.ones((5, 3, 6), np.float32)).shape == (2, 5, 0)


def test_a_transform_beside_what_needs_a_newer_opset():
    """BitCast came with opset 26, and from 20 on a DFT reads its axis as an input."""
    body = (
        "%c = stablehlo.complex %a, %b : tensor<3x256xcomplex<f32>>\n"
        "%f = stablehlo.fft %c, type = FFT, length = [256] : "
        "(tensor<3x256xcomplex<f32>>) -> tensor<3x256xcomplex<f32>>\n"
        "%n = stablehlo.real %f : (tensor<3x256xcomplex<f32>>) -> tensor<3x256xf32>\n"
        "%r = stablehlo.bitcast_convert %n : (tensor<3x256xf32>) -> tensor<3x256xi32>"
    )
    text = main("%a: tensor<3x256xf32>, %b: tensor<3x256xf32>", body, "tensor<3x256xi32>")
    x = rng.standard_normal((2, 3, 256)).astype(np.float32)
    expected = np.fft.fft(x[0] + 1j * x[1]).real
    np.testing.assert_allclose(run(text, *x).view(np.float32), expected, atol=1e-4)


def test_an_angle_of_nan_is_nan_in_litert_too(tmp_path):
    """LiteRT's maximum and minimum drop NaN, so the greater of two is chosen by comparison."""
    pair = main("%a: tensor<9xf32>, %b: tensor<9xf32>", "%r = stablehlo.atan2 %a, %b : tensor<9xf32>", "tensor<9xf32>")
    y = np.array([np.nan, 1, np.nan, np.inf, -np.inf, -0.0, 0, np.nan, -2], np.float32)
    x = np.array([1, np.nan, 0, 2, -np.inf, -3, -0.0, np.inf, 0.5], np.float32)
    path = tmp_path / "model.tflite"
    compile_model(canonicalize(to_onnx(pair)), Options()).write(path)
    answer = Interpreter(str(path), num_threads=1).get_signature_runner()(x0=y, x1=x)["y0"]
    np.testing.assert_allclose(answer, np.arctan2(y, x), rtol=1e-6)
    np.testing.assert_allclose(run(pair, y, x), np.arctan2(y, x), rtol=1e-6)
