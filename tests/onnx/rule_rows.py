"""Graphs for each rewriting rule: those that it is meant for, and those that nearly are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Known = Mapping[str, object]
_OFF = (1e-12, -1e-12, 1e-9, -1e-9, 1e-6)
FINITE = (0.0, -0.0, 1e-40, -1e-40, 1e-10, 1e-5, 0.3, 1.0, -1.0, 5.9999995, 1e10, -1e-10, -3e4, 1 + 2**-11 + 2**-30)
"""The last lies next to the middle of two halves, and in float32 on it."""
EDGES = (*FINITE, np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class Row:
    """Graphs for one rule: ``T`` stands for float and for double, ``known`` are constants that they may read.

    ``graph`` with ``known`` is one that the rule rewrites; with each of ``near`` in its place, or each of ``others``
    as the graph, it may be left alone or rewritten, and says the same in either case.
    """

    graph: str
    known: Known = field(default_factory=dict)
    near: tuple[Known, ...] = ()
    others: tuple[str, ...] = ()
    finite: bool = False
    inputs: Known = field(default_factory=dict)
    either_zero: bool = False
    """Whether the sign of a zero is undefined: ONNX does not say which of 0.0 and -0.0 is the greater one."""
    rounds: int = 0
    """By how many units in the last place of the largest result it may differ: 0 but for named roundings."""


def _around(value: float) -> tuple[Known, ...]:
    """``value`` one unit in the last place off, and off by as little as tolerances usually are."""
    single = [np.nextafter(np.float32(value), np.float32(to)) for to in (-1e9, 1e9)]
    double = [np.nextafter(value, to) for to in (-1e9, 1e9)]
    return tuple({"c": each} for each in (*single, *double, *(value + off for off in _OFF)))


_V = "g (T[17] x) => (T[17] y)"
_SLICED = "g (T[2,3,4,5] x) => (T[] y)"
_IMAGE = "g (T[1,2,6,6] x) => (T[] y)"
_ONE_NEAR = (*_around(1), {"c": [1.0]}, {"c": [[1.0]]}, {"c": -1.0}, {"c": 0.0}, {"c": np.nan})
_ZERO_NEAR = (*_around(0), {"c": 0.0}, {"c": -0.0}, {"c": [-0.0]}, {"c": [[0.0]]}, {"c": 1e-40}, {"c": np.nan})
_CLIPS = tuple(
    {"a": float(a), "b": float(b), "c": float(c), "d": float(d)}
    for a, b, c, d in ((0, 1, 2, 3), (2, 3, 0, 1), (0, 6, 6, 7), (0, 6, 6.0000005, 7), (5, 1, 0, 9), (np.nan, 1, 0, 1))
)
_BATCHNORM = {
    "w": np.linspace(-1, 1, 36).reshape(2, 2, 3, 3), "q": [0.5, -1.0], "s": [1.5, -0.3], "b": [0.1, 2.0],
    "m": [0.5, -1.0], "v": [0.0, 3.0],
}  # fmt: skip
_DENSE_NORM = {**_BATCHNORM, "w": np.linspace(-1, 1, 8).reshape(4, 2)}
_NORM = "BatchNormalization<epsilon = 0.001>(a, s, b, m, v)"
_PADS = np.array([0, 0, 1, 2, 0, 0, 1, 0])
_KERNEL = {"w": np.linspace(-1, 1, 36).reshape(2, 2, 3, 3)}
_INT_KERNEL = {"w": np.arange(-18, 18, dtype=np.int8).reshape(2, 2, 3, 3)}
_INT_IMAGE = "g (int8[1,2,6,6] x) => (int32[] y)"

ROWS: dict[str, tuple[Row, ...]] = {
    "Mul(x, 1)": (
        Row(f"{_V} {{y = Mul(x, c)}}", {"c": 1.0}, _ONE_NEAR),
        Row("g (int64[17] x) => (int64[17] y) {y = Mul(x, c)}", {"c": np.int64(1)}, ({"c": np.int64(2)},)),
    ),
    "Mul(1, x)": (Row(f"{_V} {{y = Mul(c, x)}}", {"c": 1.0}, _ONE_NEAR),),
    "Add(x, 0)": (
        Row(f"{_V} {{y = Add(x, c)}}", {"c": -0.0}, _ZERO_NEAR),
        Row("g (int64[17] x) => (int64[17] y) {y = Add(x, c)}", {"c": np.int64(0)}, ({"c": np.int64(1)},)),
    ),
    "Add(0, x)": (Row(f"{_V} {{y = Add(c, x)}}", {"c": -0.0}, _ZERO_NEAR),),
    "Sub(x, 0)": (Row(f"{_V} {{y = Sub(x, c)}}", {"c": 0.0}, _ZERO_NEAR),),
    "Div(x, 1)": (Row(f"{_V} {{y = Div(x, c)}}", {"c": 1.0}, _ONE_NEAR),),
    "Reshape(input_a, shape_a) > Reshape(input_b, shape_b) > MatMul(., .) > Reshape(., shape_c)"
    " if check_if_not_need_reshape": (
        Row(
            "g (T[1,3,4,5] x, T[1,3,5,2] u) => (T[] y) {a = Reshape(x, p) b = Reshape(u, q) m = MatMul(a, b)"
            " y = Reshape(m, r)}",
            {"p": [3, 4, 5], "q": [3, 5, 2], "r": [1, 3, 4, 2]},
            others=(
                "g (T[4,4] x, T[4,4] u) => (T[] y) {p = Constant<value_ints = [4, 2, 2]>()"
                " r = Constant<value_ints = [4, 4]>() a = Reshape(x, p) b = Reshape(u, p) m = MatMul(a, b)"
                " y = Reshape(m, r)}",
                "g (T[2,3,4,5] x, T[3,2,5,4] u) => (T[] y) {p = Constant<value_ints = [6, 4, 5]>()"
                " q = Constant<value_ints = [6, 5, 4]>() r = Constant<value_ints = [2, 3, 4, 4]>()"
                " a = Reshape(x, p) b = Reshape(u, q) m = MatMul(a, b) y = Reshape(m, r)}",
            ),
            finite=True,
        ),
    ),
    "Reshape(input_a, shape_a) > MatMul(., input_b) > Reshape(., shape_c) if check_if_not_need_reshape": (
        Row(
            "g (T[2,3,4] x, T[4,2] u) => (T[] y) {a = Reshape(x, p) m = MatMul(a, u) y = Reshape(m, r)}",
            {"p": [6, 4], "r": [2, 3, 2]},
            ({"p": [2, 3, 4], "r": [2, 3, 2]}, {"p": [3, 2, 4], "r": [2, 3, 2]}),
            others=(
                "g (T[2,2,2,4] x, T[2,4,3] u) => (T[] y) {p = Constant<value_ints = [2, 4, 4]>()"
                " r = Constant<value_ints = [2, 2, 2, 3]>() a = Reshape(x, p) m = MatMul(a, u) y = Reshape(m, r)}",
            ),
            finite=True,
        ),
    ),
    "ConstantOfShape(shape, value=scalar) > Cast(., to=dtype)": (
        Row(
            "g (int64[1] x) => (int64[] y) {c = ConstantOfShape<value = float[1] {3.0}>(x) y = Cast<to = 7>(c)}",
            others=tuple(
                f"g (int64[1] x) => ({to}[] y) {{c = ConstantOfShape<value = {of}[1] {{{value}}}>(x)"
                f" y = Cast<to = {number}>(c)}}"
                for to, number, of, value in (
                    ("int64", 7, "float", 2.7),
                    ("int64", 7, "float", -2.7),
                    ("float16", 10, "float", 1e6),
                    ("bool", 9, "float", 0.5),
                    ("uint8", 2, "int64", 300),
                    ("float", 1, "double", 1e-50),
                    ("float", 1, "int64", 16777217),
                )
            ),
        ),
    ),
    "ConstantOfShape(shape) > Cast(., to=dtype)": (
        Row("g (int64[1] x) => (int64[] y) {c = ConstantOfShape(x) y = Cast<to = 7>(c)}"),
    ),
    "Slice(data, starts, ends, axes, steps) if _check_if_redundant_slice": (
        Row(
            f"{_SLICED} {{y = Slice(x, b, e, a, s)}}",
            {"b": [0], "e": [4], "a": [2], "s": [1]},
            tuple(
                {"b": [b], "e": [e], "a": [a], "s": [s]}
                for b, e, a, s in (
                    (0, 3, 2, 1),
                    (1, 4, 2, 1),
                    (0, 4, -1, 1),
                    (0, 2**63 - 1, 1, 2),
                    (3, -(2**63), 2, -1),
                )
            ),
        ),
    ),
    "Slice(data, starts, ends, axes, steps) if _same_shape": (
        Row(
            f"{_SLICED} {{y = Slice(x, b, e, a, s)}}",
            {"b": [0], "e": [4], "a": [2], "s": [1]},
            tuple(
                {"b": [b], "e": [e], "a": [a], "s": [s]}
                for b, e, a, s in ((0, 3, 2, 1), (-4, 9, 2, 1), (-1, -(2**63), 2, -1))
            ),
        ),
    ),
    "MaterializeReshapeShape": (
        Row(
            "g (T[2,6,1] x, int64[3] u) => (T[3,4,1] y) {y = Reshape(x, u)}",
            others=("g (T[2,6,0] x, int64[3] u) => (T[M,4,0] y) {y = Reshape(x, u)}",),
            inputs={"u": [3, 4, 0]},
        ),
    ),
    "FuseSuccessiveMin": (
        Row(
            f"{_V} {{a = Min(x, c) y = Min(a, d)}}",
            {"c": 1.0, "d": 0.5},
            ({"c": np.nan, "d": 1.0}, {"c": [1.0], "d": -0.5}),
            others=(f"{_V} {{a = Min(x) y = Min(a)}}",),
        ),
    ),
    "FuseSuccessiveMax": (
        Row(
            f"{_V} {{a = Max(x, c) y = Max(a, d)}}",
            {"c": 1.0, "d": 0.5},
            ({"c": np.nan, "d": 1.0}, {"c": [1.0], "d": -0.5}),
            others=(f"{_V} {{a = Max(x) y = Max(a)}}",),
        ),
    ),
    "FuseMinMaxToClip": (
        Row(
            f"{_V} {{a = Min(x, c) y = Max(a, d)}}",
            {"c": 6.0, "d": 0.5},
            ({"c": 1.0, "d": 2.0}, {"c": [[6.0]], "d": 0.5}, {"c": np.nan, "d": 1.0}, {"c": 1e-40, "d": 1e-12}),
        ),
    ),
    "FuseMaxMinToClip": (
        Row(
            f"{_V} {{a = Max(x, c) y = Min(a, d)}}",
            {"c": 0.5, "d": 6.0},
            ({"c": 2.0, "d": 1.0}, {"c": [[0.5]], "d": 6.0}, {"c": 1.0, "d": np.nan}, {"c": 1e-40, "d": 1e-12}),
            others=(f"{_V} {{a = Max(x) y = Min(a)}}",),
        ),
    ),
    "FuseSuccessiveClipRelu": (
        Row(
            f"{_V} {{a = Relu(x) y = Clip(a, c, d)}}",
            {"c": -1.0, "d": 6.0},
            ({"c": 1.0, "d": 6.0}, {"c": -2.0, "d": -1.0}, {"c": 1e-40, "d": 1e-12}),
            either_zero=True,
        ),
        Row(
            "g (int64[17] x) => (int64[17] y) {a = Relu(x) y = Clip(a, c)}",
            {"c": np.int64(3)},
            ({"c": np.int64(2**53 + 1)},),
        ),
    ),
    "FuseSuccessiveReluClip": (
        Row(
            f"{_V} {{a = Clip(x, c, d) y = Relu(a)}}",
            {"c": -1.0, "d": 6.0},
            ({"c": 1.0, "d": 6.0}, {"c": -2.0, "d": -1.0}, {"c": -2.0, "d": -1e-12}, {"c": 3.0, "d": 1.0}),
            either_zero=True,
        ),
    ),
    "FuseSuccessiveRelu": (Row(f"{_V} {{a = Relu(x) y = Relu(a)}}"),),
    "FuseSuccessiveClip": (
        Row(f"{_V} {{p = Clip(x, a, b) y = Clip(p, c, d)}}", {"a": 0.0, "b": 6.0, "c": 1.0, "d": 9.0}, _CLIPS),
        Row(
            f"{_V} {{p = Clip(x, a) y = Clip(p, , d)}}", {"a": 0.0, "d": 9.0}, ({"a": 1.0, "d": 0.0},), either_zero=True
        ),
    ),
    "CastCast": (
        Row(
            "g (uint8[17] x) => (float16[17] y) {a = Cast<to = 1>(x) y = Cast<to = 10>(a)}",
            others=tuple(
                f"g ({of}[17] x) => ({to}[17] y) {{a = Cast<to = {middle}>(x) y = Cast<to = {number}>(a)}}"
                for of, middle, to, number in (
                    ("double", 1, "float16", 10),
                    ("int64", 1, "float16", 10),
                    ("float", 10, "float", 1),
                    ("float", 7, "float", 1),
                    ("float16", 1, "float16", 10),
                )
            ),
        ),
    ),
    "CastIdentity": (Row("g (float[17] x) => (float[17] y) {y = Cast<to = 1>(x)}"),),
    "ExpandIdentity": (Row(f"{_V} {{y = Expand(x, c)}}", {"c": [17]}, ({"c": [1]}, {"c": [1, 17]}, {"c": [2, 17]})),),
    "Flatten2Reshape": (
        Row(
            "g (T[2,3,4] x) => (T[] y) {y = Flatten<axis = 2>(x)}",
            others=tuple(
                f"g (T[{s}] x) => (T[] y) {{y = Flatten<axis = {a}>(x)}}"
                for s, axes in (("2,3,4", (0, 1, 2, 3, -1, -3)), ("2,3,0", (0, 1, 2)))
                for a in axes
            ),
        ),
    ),
    "ReshapeReshape": (
        Row(
            "g (T[2,3,4] x) => (T[] y) {a = Reshape(x, c) y = Reshape(a, d)}",
            {"c": [6, 4], "d": [4, -1]},
            ({"c": [6, 4], "d": [0, -1]}, {"c": [6, 4], "d": [-1, 0]}, {"c": [4, 6], "d": [0, 2, 3]}),
        ),
    ),
    "TransposeIdentity": (
        Row(
            "g (T[2,3,4] x) => (T[] y) {y = Transpose<perm = [0, 1, 2]>(x)}",
            others=(
                "g (T[2,2,2] x) => (T[] y) {y = Transpose<perm = [0, 2, 1]>(x)}",
                "g (T[2,2] x) => (T[] y) {y = Transpose(x)}",
            ),
        ),
    ),
    "TransposeTranspose": (
        Row(
            "g (T[2,3,4] x) => (T[] y) {a = Transpose<perm = [2, 0, 1]>(x) y = Transpose<perm = [1, 2, 0]>(a)}",
            others=(
                "g (T[2,3,4] x) => (T[] y) {a = Transpose<perm = [2, 0, 1]>(x) y = Transpose<perm = [2, 0, 1]>(a)}",
                "g (T[2,3,4] x) => (T[] y) {a = Transpose<perm = [2, 0, 1]>(x) y = Transpose(a)}",
            ),
        ),
    ),
    "UnsqueezeUnsqueeze": (
        Row(
            "g (T[2,3] x) => (T[] y) {a = Unsqueeze(x, c) y = Unsqueeze(a, d)}",
            {"c": [1], "d": [0]},
            tuple({"c": [c], "d": [d]} for c in (0, 1, 2, -1) for d in (0, 1, 2, 3, -1)),
        ),
    ),
    "SqueezeReshape1d": (
        Row(
            "g (int64[N] x) => (int64[] y) {a = Squeeze(x) y = Reshape(a, c)}",
            {"c": [-1]},
            others=("g (T[1,4] x) => (T[] y) {c = Constant<value_ints = [-1]>() a = Squeeze(x) y = Reshape(a, c)}",),
        ),
    ),
    "ScatterAllDynamic": (
        Row(
            "g (T[3,4] x, T[3,4] u) => (T[] y) {s = Shape<start = 0>(x) d = Gather<axis = 0>(s, i)"
            ' r = Range(o, d, e) n = Unsqueeze(r, l) y = ScatterND<reduction = "none">(x, n, u)}',
            {"i": np.int64(0), "o": np.int64(0), "e": np.int64(1), "l": [-1]},
        ),
    ),
    "ScatterAllStatic": (
        Row(
            "g (T[3,4] x, T[3,4] u) => (T[] y) {y = ScatterND(x, i, u)}",
            {"i": [[0], [1], [2]]},
            ({"i": [[0], [2], [1]]},),
            others=tuple(
                f"g (T[3,4] x, T[3,4] u) => (T[] y) {{i = Constant<value = int64[3,1] {{0, 1, 2}}>()"
                f' y = ScatterND<reduction = "{how}">(x, i, u)}}'
                for how in ("add", "mul", "max")
            ),
        ),
    ),
    "NormalizePadFormatConv": (
        Row(
            f'{_IMAGE} {{y = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)}}',
            _KERNEL,
            finite=True,
            others=tuple(
                f'{_IMAGE} {{y = Conv<auto_pad = "{how}", dilations = [{wide}, {wide}]>(x, w)}}'
                for how in ("SAME_UPPER", "SAME_LOWER", "VALID")
                for wide in (1, 2)
            ),
        ),
    ),
    "NormalizePadFormatConvInteger": (
        Row(f'{_INT_IMAGE} {{y = ConvInteger<auto_pad = "SAME_UPPER">(x, w)}}', _INT_KERNEL),
    ),
    "FuseConvPad": (
        Row(
            f"{_IMAGE} {{a = Pad(x, p, c) y = Conv(a, w)}}",
            {**_KERNEL, "p": _PADS, "c": 0.0},
            tuple({**_KERNEL, "p": _PADS, **each} for each in _around(0)),
            finite=True,
        ),
    ),
    "FuseConvIntegerPad": (
        Row(f"{_INT_IMAGE} {{a = Pad(x, p) y = ConvInteger(a, w)}}", {**_INT_KERNEL, "p": _PADS}),
        Row(
            f"{_INT_IMAGE} {{a = Pad(x, p) y = ConvInteger(a, w, z)}}",
            {**_INT_KERNEL, "p": _PADS, "z": np.int8(0)},
            ({**_INT_KERNEL, "p": _PADS, "z": np.int8(3)},),
        ),
    ),
    "FuseBatchNormIntoConv": (
        Row(
            f"{_IMAGE} {{a = Conv(x, w, q) y = {_NORM}}}",
            _BATCHNORM,
            ({**_BATCHNORM, "s": [3e38, 1.0]}, {**_BATCHNORM, "v": [-1.0, 1.0]}),
            finite=True,
            rounds=64,
        ),
    ),
    "FuseBatchNormIntoConvTranspose": (
        Row(f"{_IMAGE} {{a = ConvTranspose(x, w, q) y = {_NORM}}}", _BATCHNORM, finite=True, rounds=64),
    ),
    "FuseBatchNormIntoGemm": (
        Row(
            f"g (T[3,4] x) => (T[] y) {{a = Gemm<alpha = 0.5, beta = 2.0>(x, w, q) y = {_NORM}}}",
            _DENSE_NORM,
            finite=True,
            rounds=64,
        ),
    ),
    "RemoveOptionalBiasFromConv": (
        Row(
            f"{_IMAGE} {{y = Conv(x, w, c)}}",
            {**_KERNEL, "c": [0.0, 0.0]},
            ({**_KERNEL, "c": [0.0, 1e-40]}, {**_KERNEL, "c": [1e-12, 0.0]}),
            finite=True,
        ),
    ),
    "RemoveOptionalBiasFromConvTranspose": (
        Row(
            f"{_IMAGE} {{y = ConvTranspose(x, w, c)}}",
            {**_KERNEL, "c": [0.0, 0.0]},
            ({**_KERNEL, "c": [0.0, 1e-40]}, {**_KERNEL, "c": [1e-12, 0.0]}),
            finite=True,
        ),
    ),
    "RemoveOptionalBiasFromQLinearConv": (
        Row(
            "g (uint8[1,2,6,6] x) => (uint8[] y) {y = QLinearConv(x, s, z, w, s, z, s, z, c)}",
            {
                "w": np.arange(36, dtype=np.uint8).reshape(2, 2, 3, 3),
                "s": np.float32(0.5),
                "z": np.uint8(3),
                "c": np.zeros(2, np.int32),
            },
            (
                {
                    "w": np.arange(36, dtype=np.uint8).reshape(2, 2, 3, 3),
                    "s": np.float32(0.5),
                    "z": np.uint8(3),
                    "c": np.ones(2, np.int32),
                },
            ),
        ),
    ),
    "RemoveOptionalBiasFromGemm": (
        Row(
            "g (T[3,4] x) => (T[] y) {y = Gemm(x, w, c)}",
            {"w": np.eye(4)[:, :2], "c": [0.0, 0.0]},
            ({"w": np.eye(4)[:, :2], "c": [1e-40, 0.0]}, {"w": np.eye(4)[:, :2], "c": [[1e-12, 0.0]]}),
            finite=True,
        ),
    ),
}
