"""What only the runtime knows: repeats, padding, diagonals, statistics, and which values there are."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.errors import Unsupported
from tests.targets.tflite.compiled import compiled, numbers

HEAD = '<ir_version: 8, opset_import: ["" : 21]> g '
SIZES = ((2, 3), (4, 1), (1, 5))


def test_repeats():
    case = compiled(HEAD + "(float[n,m] x, int64[2] times) => (float[a,b] y) { y = Tile(x, times) }")
    case.agree(*({"x": numbers(*sizes), "times": np.array(times)} for sizes, times in zip(SIZES, SIZES, strict=True)))


@pytest.mark.parametrize("kind", ["float", "int64", "uint8"])
def test_padding(kind: str):
    """Negative amounts cut."""
    case = compiled(
        f"""{HEAD} ({kind}[3,n] x, int64[4] sides, {kind} v) => ({kind}[a,b] y) {{ y = Pad(x, sides, v) }}"""
    )
    dtype = {"float": np.float32}.get(kind) or np.dtype(kind)
    drawn = np.arange(15).astype(dtype)
    case.agree(*(
        {"x": drawn[: 3 * n].reshape(3, n), "sides": np.array(sides), "v": np.array(7, dtype)}
        for n, sides in ((4, [0, 1, 2, 0]), (2, [-1, 2, 0, -1]), (5, [1, -2, -1, 3]), (1, [0, 0, 0, 0]))
    ))  # fmt: skip


def test_padding_of_some_axes():
    case = compiled(f"""{HEAD} (float[2,n,3] x, int64[2] sides) => (float[2,a,3] y) <int64[1] axes = {{-2}}> {{
        y = Pad(x, sides, , axes) }}""")
    case.agree(*({"x": numbers(2, n, 3), "sides": np.array(sides)} for n, sides in ((2, [1, 2]), (4, [-1, 0]))))


def test_edges_of_every_size():
    case = compiled(f"""{HEAD} (float[2,n,3] x) => (float[a,b,c] y) <int64[6] sides = {{0, 2, 1, 0, 3, 0}}> {{
        y = Pad<mode="edge">(x, sides) }}""")
    case.agree(*({"x": numbers(2, n, 3)} for n in (1, 4, 2)))


def test_padding_of_more_axes_than_the_kernel_has():
    case = compiled(f"""{HEAD} (float[1,2,1,2,3,2] x) => (float[1,2,3,2,3,3] y)
        <int64[12] sides = {{0,0,1,0,0,0, 0,0,1,0,0,1}}, float v = {{2.5}}> {{ y = Pad(x, sides, v) }}""")
    case.agree({"x": numbers(1, 2, 1, 2, 3, 2)})


@pytest.mark.parametrize("kind", ["float", "int64", "uint8", "bool"])
def test_equal_parts_of_every_size(kind: str):
    """The last part is smaller, or empty, where the size is not a multiple of their number."""
    case = compiled(f"""{HEAD} ({kind}[2,n] x) => ({kind}[a,b] y, {kind}[c,d] z, {kind}[e,f] w) {{
        y, z, w = Split<axis=-1, num_outputs=3>(x) }}""")
    dtype = {"float": np.float32}.get(kind) or np.dtype(kind)
    case.agree(*({"x": (10 * numbers(2, n)).astype(dtype)} for n in (6, 3, 8, 12)))


@pytest.mark.parametrize("kind", ["float", "int64", "uint8", "bool"])
def test_parts_of_computed_sizes(kind: str):
    """As a mixture of experts splits its rows by how many each expert has; a part may be empty."""
    case = compiled(f"""{HEAD} ({kind}[n,3] x, int64[3] sizes) => ({kind}[a,3] y, {kind}[b,3] z, {kind}[c,3] w) {{
        y, z, w = Split<axis=0>(x, sizes) }}""")
    dtype = {"float": np.float32}.get(kind) or np.dtype(kind)
    case.agree(*(
        {"x": (10 * numbers(sum(sizes), 3)).astype(dtype), "sizes": np.array(sizes)}
        for sizes in ((1, 2, 3), (4, 0, 1), (0, 0, 2))
    ))  # fmt: skip


def test_parts_of_computed_sizes_of_more_axes_than_the_kernel_has():
    with pytest.raises(Unsupported, match="parts whose size is only known at run time, of more than five axes"):
        compiled(
            HEAD
            + """(float[4,1,2,1,2,1] x, int64[2] sizes) => (float[a,1,2,1,2,1] y, float[b,1,2,1,2,1] z) {
            y, z = Split<axis=0>(x, sizes) }"""
        )


@pytest.mark.parametrize("node", ["ConstantOfShape(sizes)", "Expand(one, sizes)", "Reshape(one, sizes)"])
def test_a_computed_number_of_axes_is_refused(node: str):
    with pytest.raises(Unsupported, match="even the number of axes is computed at run time"):
        compiled(f"""{HEAD} (int64[n] sizes) => (int64 y) <float[1] one = {{1}}> {{ z = {node} y = Size(z) }}""")


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_triangles_of_every_size(upper: int, kind: str):
    case = compiled(f"""{HEAD} ({kind}[n,t,u] x, int64 k) => ({kind}[n,t,u] y) {{ y = Trilu<upper={upper}>(x, k) }}""")
    drawn = [numbers(2, *sizes) > 0 if kind == "bool" else numbers(2, *sizes) for sizes in SIZES]
    case.agree(*({"x": x, "k": np.array(k)} for x in drawn for k in (0, 1, -2)))


def test_norms_of_computed_numbers():
    case = compiled(f"""{HEAD} (float[n,3,m] x, float[3] s, float[3] b, float[3] mean, float[3] v)
        => (float[n,3,m] y) {{
        y = BatchNormalization<epsilon=0.1>(x, s, b, mean, v) }}""")
    given = {name: numbers(3, seed=place) for place, name in enumerate(("s", "b", "mean"))}
    case.agree(*({"x": numbers(n, 3, m), "v": np.array([0.5, 1, 2], np.float32), **given} for n, m in SIZES))


@pytest.mark.parametrize("kind", ["float", "int64", "int8"])
@pytest.mark.parametrize("order", [0, 1])
def test_distinct_values(kind: str, order: int):
    case = compiled(f"""{HEAD} ({kind}[n,m] x) => ({kind}[k] y, int64[k] first, int64[l] owner, int64[k] count) {{
        y, first, owner, count = Unique<sorted={order}>(x) }}""")
    dtype = {"float": np.float32}.get(kind) or np.dtype(kind)
    rng = np.random.default_rng(0)
    case.agree(*({"x": rng.integers(-3, 3, sizes).astype(dtype)} for sizes in SIZES))


def test_distinct_slices_are_refused():
    with pytest.raises(Unsupported, match="equal slices along axis 1: only single elements"):
        compiled(HEAD + "(float[3,4] x) => (float[3,k] y) { y = Unique<axis=1>(x) }")


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "Abs"])
def test_int64_beyond_floats(op: str):
    case = compiled(f"""{HEAD} (int64[3,n] x) => (int64[a,b] y) {{ y = {op}{"" if op == "Abs" else "<axis=1>"}(x) }}""")
    big = 2**62
    case.agree(*({"x": np.array([[big + 1, big, -big - 1, big + 1][:n]] * 3)} for n in (4, 2, 3)))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_zeros_among_sizes_copy(count: int):
    result = ",".join("abcd"[:count])
    case = compiled(f"{HEAD} (float[n,m,6] x, int64[{count}] sizes) => (float[{result}] y) {{ y = Reshape(x, sizes) }}")
    asked = {2: ([0, -1], [-1, 6], [3, 10]), 3: ([0, 0, 6], [-1, 0, 3], [2, 5, 3]), 4: ([0, 0, 3, 2], [-1, 5, 2, 3])}
    sizes = {2: ((2, 3), (4, 1), (1, 5)), 3: ((2, 3), (4, 2), (1, 5)), 4: ((2, 3), (1, 5))}
    case.agree(*(
        {"x": numbers(*before, 6), "sizes": np.array(after)}
        for before, after in zip(sizes[count], asked[count], strict=True)
    ))  # fmt: skip


def test_zeros_that_are_joined_with_sizes_copy():
    case = compiled(f"""{HEAD} (float[n,m,6] x, int64[1] k) => (float[a,b,c] y) <int64[1] zero = {{0}}> {{
        sizes = Concat<axis=0>(zero, k, zero)
        y = Reshape(x, sizes) }}""")
    case.agree(*({"x": numbers(n, m, 6), "k": np.array([m])} for n, m in SIZES))
