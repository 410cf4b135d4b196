"""The evaluator beside what MIL itself infers of constants, for the operations that it infers something of.

Convolutions, pooling, norms, recurrent layers and others it does not; they are held against ONNX Runtime alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from convertkit.targets.coreml.evaluator import TABLE
from convertkit.workers.process import Worker
from tests.targets.coreml.apple_packages import numbers

X, Y = numbers(3, 5), numbers(3, 5, seed=1)
P, Q = np.abs(X) + 0.1, np.abs(Y) + 0.1
FIRST, SECOND = np.int32([[7, -8, 3, 0], [-5, 9, 2, 1]]), np.int32([[2, 3, -4, 5], [3, -2, 7, 1]])
B, C = X > 0, Y > 0
U = np.tanh(X)
LUT = np.sort(numbers(16, seed=3))
PLACES = np.random.default_rng(4).integers(0, 16, (6, 5)).astype(np.uint8)
Row = tuple[str, dict[str, Any]]


def rows() -> Iterator[Row]:
    for kind in ("abs", "atan", "ceil", "cos", "cosh", "erf", "exp", "exp2", "floor", "round", "sign", "sin", "sinh"):
        yield kind, {"x": X}
    for kind in ("square", "tan", "tanh", "relu", "sigmoid", "softplus", "softsign", "identity"):
        yield kind, {"x": X}
    for kind in ("acos", "asin", "atanh"):
        yield kind, {"x": U}
    yield "sqrt", {"x": P}
    yield "log", {"x": P, "epsilon": np.float32(1e-3)}
    yield "inverse", {"x": P, "epsilon": np.float32(1e-3)}
    yield "rsqrt", {"x": P, "epsilon": np.float32(1e-3)}
    yield "logical_not", {"x": B}
    for kind in ("add", "sub", "mul", "real_div", "maximum", "minimum", "floor_div", "mod"):
        yield kind, {"x": X, "y": Q}
    yield "pow", {"x": P, "y": Y}
    for kind in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
        yield kind, {"x": FIRST, "y": SECOND}
    for kind in ("add", "sub", "mul", "maximum", "minimum", "floor_div", "mod"):
        yield kind, {"x": FIRST, "y": SECOND}
    for kind in ("logical_and", "logical_or", "logical_xor"):
        yield kind, {"x": B, "y": C}
    yield "clip", {"x": X, "alpha": np.float32(-0.5), "beta": np.float32(0.75)}
    yield "leaky_relu", {"x": X, "alpha": np.float32(0.2)}
    yield "elu", {"x": X, "alpha": np.float32(0.7)}
    yield "sigmoid_hard", {"x": X, "alpha": np.float32(0.3), "beta": np.float32(0.6)}
    yield "thresholded_relu", {"x": X, "alpha": np.float32(0.4)}
    yield "scaled_tanh", {"x": X, "alpha": np.float32(0.4), "beta": np.float32(1.3)}
    yield "relu6", {"x": 9 * X}
    for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"):
        yield "gelu", {"x": X, "mode": mode}
    yield "prelu", {"x": numbers(2, 3, 4, 5), "alpha": np.float32([0.1, 0.2, 0.3])}
    for short in ("int32", "bool", "fp16"):
        yield "cast", {"x": 3 * X, "dtype": short}
    yield "select", {"cond": B, "a": X, "b": Y}
    yield from products()
    yield from reductions()
    yield from moves()
    yield from picks()
    yield from narrow()


def products() -> Iterator[Row]:
    yield "linear", {"x": X, "weight": numbers(4, 5), "bias": numbers(4, seed=1)}
    yield "matmul", {"x": numbers(2, 3, 4), "y": numbers(2, 4, 5), "transpose_x": False, "transpose_y": False}
    yield "matmul", {"x": numbers(2, 4, 3), "y": numbers(2, 5, 4), "transpose_x": True, "transpose_y": True}
    yield "einsum", {"values": [numbers(2, 3, 4, 5), numbers(2, 5, 4, 6)], "equation": "bnhd,bdhm->bnhm"}


def reductions() -> Iterator[Row]:
    for kind in ("sum", "mean", "max", "min", "prod", "l1_norm", "l2_norm", "sum_square", "log_sum", "log_sum_exp"):
        yield f"reduce_{kind}", {"x": np.abs(numbers(2, 3, 4)), "axes": np.int32([0, -1]), "keep_dims": True}
    for kind in ("argmax", "argmin"):
        yield f"reduce_{kind}", {"x": numbers(3, 4), "axis": np.int32(1), "keep_dims": False}
    yield "softmax", {"x": X, "axis": np.int32(0)}


def moves() -> Iterator[Row]:
    z = numbers(2, 3, 4)
    yield "reshape", {"x": z, "shape": np.int32([4, -1])}
    yield "transpose", {"x": z, "perm": np.int32([2, 0, 1])}
    yield "squeeze", {"x": z[:, :1], "axes": np.int32([1])}
    yield "expand_dims", {"x": z, "axes": np.int32([0, 2])}
    yield "concat", {"values": [z, z + 1], "axis": np.int32(1), "interleave": False}
    yield "stack", {"values": [z, z + 1], "axis": np.int32(1)}
    yield "split", {"x": z, "split_sizes": np.int32([1, 3]), "axis": np.int32(2)}
    yield "slice_by_index", {
        "x": z, "begin": np.int32([1, 2, 0]), "end": np.int32([2, 0, 4]), "stride": np.int32([1, -1, 2]),
        "begin_mask": np.array([True, False, False]), "end_mask": np.array([False, False, True]),
    }  # fmt: skip
    yield "slice_by_size", {"x": z, "begin": np.int32([0, 1, 2]), "size": np.int32([2, -1, 1])}
    yield "tile", {"x": z, "reps": np.int32([2, 1, 3])}
    yield "reverse", {"x": z, "axes": np.int32([0, 2])}
    yield "shape", {"x": z}
    yield "fill", {"shape": np.int32([2, 3]), "value": np.float32(1.5)}
    yield "range_1d", {"start": np.int32(2), "end": np.int32(11), "step": np.int32(3)}
    yield "flatten2d", {"x": z, "axis": np.int32(2)}
    yield "band_part", {"x": X, "lower": np.int32(1), "upper": np.int32(0)}
    for mode in ("constant", "reflect", "replicate"):
        yield "pad", {"x": z, "pad": np.int32([0, 0, 1, 2]), "mode": mode, "constant_val": np.float32(0.5)}


def picks() -> Iterator[Row]:
    z = numbers(4, 3, 5)
    yield "gather", {"x": z, "indices": np.int32([2, 0, 2]), "axis": np.int32(1)}
    yield "gather_along_axis", {"x": X, "indices": np.int32([[0, 2, 1, 1, 0]]), "axis": np.int32(0)}
    yield "scatter_along_axis", {
        "data": X, "indices": np.int32([[0, 2, 1, 1, 0]]), "updates": numbers(1, 5), "axis": np.int32(0),
        "mode": "update",
    }  # fmt: skip
    yield "topk", {"x": X, "k": np.int32(2), "axis": np.int32(1), "ascending": True}
    yield "argsort", {"x": X, "axis": np.int32(1), "ascending": False}
    yield "non_zero", {"x": FIRST}


def narrow() -> Iterator[Row]:
    scale, zero = np.float32([0.1, 0.2, 0.05]), np.int8([1, -2, 3])
    yield "quantize", {"input": X, "scale": scale, "zero_point": zero, "axis": np.int32(0), "output_dtype": "int8"}
    whole = np.random.default_rng(5).integers(-128, 128, (3, 5), np.int8)
    yield "dequantize", {"input": whole, "scale": scale, "zero_point": zero, "axis": np.int32(0)}
    yield "constexpr_affine_dequantize", {
        "quantized_data": whole, "scale": scale, "zero_point": zero, "axis": np.int32(0),
    }  # fmt: skip
    bits = (PLACES.reshape(-1, 1) >> np.arange(4)) & 1
    raw = np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little")
    yield "constexpr_lut_to_dense", {"indices": raw, "lut": LUT, "shape": np.uint32([6, 5])}


@pytest.mark.parametrize(("kind", "given"), [pytest.param(*row, id=f"{row[0]}-{at}") for at, row in enumerate(rows())])
def test_as_mil_infers_it(kind, given, worker: Worker, mil: Worker):
    """Floats within float32's roundings, everything else equal."""
    assert kind in TABLE
    lists = {name: [f"{name}{at}" for at in range(len(each))] for name, each in given.items() if isinstance(each, list)}
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray | np.generic)}
    arrays |= {key: each for name, keys in lists.items() for key, each in zip(keys, given[name], strict=True)}
    plain = {name: value for name, value in given.items() if isinstance(value, str | bool)}
    params = {"kind": kind, "system": "iOS17", "plain": plain, "lists": lists}
    told = mil.call("infer", params, {name: np.asarray(value) for name, value in arrays.items()})
    found = TABLE[kind](**{name: each if isinstance(each, list) else np.asarray(each) for name, each in given.items()})
    found = found if isinstance(found, tuple) else (found,)
    assert told.value, "MIL infers nothing"
    for at, each in told.arrays.items():
        got = np.asarray(found[int(at)])
        assert got.shape == each.shape
        if each.dtype.kind == "f":
            np.testing.assert_allclose(got.astype(each.dtype), each, rtol=2e-6, atol=1e-6)
        else:
            assert np.array_equal(got.astype(each.dtype), each)


@pytest.fixture(scope="module")
def mil() -> Iterator[Worker]:
    with Worker("tests.targets.coreml.mil_values_service:Values", timeout_s=120) as made:
        yield made
