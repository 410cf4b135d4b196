"""Programs that JAX users write, most of them with dynamic sizes: what ONNX Runtime computes is what JAX computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import onnx_ir as ir
import onnxruntime as ort
from jax import export, lax
from jax import numpy as jnp

from convertkit.converters.jax.source import HALF_PARITY, PARITY
from convertkit.converters.stablehlo.importer import to_onnx
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize

SIZES = ({"N": 1, "T": 4}, {"N": 3, "T": 6})


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument; sizes are numbers or polynomials of N and T, integers are drawn below ``below``."""

    shape: str = ""
    dtype: str = "float32"
    below: int = 0

    def value(self, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
        shape = [eval(size, {}, sizes) for size in self.shape.split()]
        drawn = rng.integers(0, self.below, shape) if self.below else rng.standard_normal(shape)
        return np.asarray(drawn).astype(self.dtype)


def weight(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def ints(shape: str = "", below: int = 6) -> Arg:
    return Arg(shape, "int32", below)


def rotary(x):
    """Rotary positions, halves rotated."""
    angle = jnp.arange(x.shape[1])[:, None] * (1 / 10000 ** (jnp.arange(x.shape[-1] // 2) / (x.shape[-1] // 2)))
    a, b = jnp.split(x, 2, -1)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def experts(x):
    """Two of four experts for each row."""
    best, which = lax.top_k(jax.nn.softmax(x @ weight(6, 4)), 2)
    each = jnp.einsum("nd,edh->neh", x, weight(4, 6, 6))
    return (jnp.take_along_axis(each, which[..., None], 1) * best[..., None]).sum(1)


def beams(x):
    def step(state, _):
        scores, tokens = state
        both = (scores[:, None] + jax.nn.log_softmax(jnp.asarray(weight(3, 5))[tokens])).reshape(-1)
        best, which = lax.top_k(both, 3)
        return (best, which % 3), which

    return lax.scan(step, (x, jnp.array([0, 1, 2])), None, length=4)


def turned_back(values, vectors):
    """Of eigenvectors what does not depend on their signs."""
    return (vectors * jnp.exp(values)[..., None, :]) @ vectors.mT


def put_together(left, values, right):
    return (left * values[..., None, :]) @ right


def at_right_angles(vectors):
    return vectors.mT @ vectors


def spectrum(x):
    frames = jnp.stack([x[:, at * 16 : at * 16 + 32] for at in range(7)], 1) * np.hanning(32).astype(np.float32)
    return jnp.log(jnp.abs(jnp.fft.rfft(frames)) ** 2 + 1e-3)


def whole_numbers(x):
    return x // 3, x % 3, x >> 1, x << 2, x ^ 5, ~x, lax.clz(x), jnp.bitwise_count(x)


def scanned(x):
    start = jnp.zeros((x.shape[0], 4))
    return lax.scan(lambda c, row: (c * 0.9 + row @ weight(4, 4), c), start, x.swapaxes(0, 1))[1]


PROGRAMS: dict[str, tuple[Callable[..., Any], Any]] = {
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, jnp.tanh, x), [Arg("N 4")]),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.square], x), [ints("", 3), Arg("N 4")]),
    "fori_loop": (lambda n, x: lax.fori_loop(0, n, lambda i, c: c * 0.9 + i, x), [ints(), Arg("N 4")]),
    "while_loop": (
        lambda x: lax.while_loop(lambda s: jnp.abs(s).max() > 0.1, lambda s: s * 0.7, x),
        [Arg("N 4")],
    ),
    "vmap_of_cond": (jax.vmap(lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, jnp.tanh, x)), [Arg("N 4")]),
    "scan_over_free_time": (scanned, [Arg("N T 4")]),
    "cumulative_sums_of_free_length": (
        lambda x, i: (jnp.cumsum(jnp.tanh(x), 1), lax.cumsum(i, 0, reverse=True), jnp.cumsum(x[..., None] * 2, 1)),
        [Arg("N T"), ints("T")],
    ),
    "positions_from_a_mask": (
        lambda i: jnp.clip(jnp.cumsum((i > 1).astype(jnp.int32), -1) - 1, 0) * i,
        [ints("N T")],
    ),
    "beams": (beams, [Arg("3")]),
    "rotary": (rotary, [Arg("N T 2 8")]),
    "attention": (jax.nn.dot_product_attention, [Arg("N 5 4 8")] * 3),
    "attention_of_free_length": (
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
        [Arg("N T 4 8"), Arg("N T 2 8"), Arg("N T 2 8")],
    ),
    "log_softmax": (jax.nn.log_softmax, [Arg("N 5")]),
    "experts": (experts, [Arg("N 6")]),
    "first_of_a_sequence": (lambda x: x[:, 0] @ weight(6, 4), [Arg("N 5 6")]),
    "last_two_of_a_sequence": (lambda x: x[:, None, 3:, -1], [Arg("N 5 6")]),
    "cut_from_a_free_batch": (lambda x: jnp.tanh(x)[:, 1:4, :-1], [Arg("N 5 6")]),
    "cut_from_a_free_length": (lambda x: x[1:, :3] - x[:-1, 3:], [Arg("T 6")]),
    "one_by_input": (lambda x, i: x[:, i], [Arg("N 6 3"), ints()]),
    "segment_sum": (lambda x, i: jax.ops.segment_sum(x, i, num_segments=5), [Arg("N 3"), ints("N")]),
    "segment_max": (lambda x, i: jax.ops.segment_max(x, i, num_segments=5), [Arg("12 3"), ints("12", 4)]),
    "searchsorted": (lambda x: jnp.searchsorted(jnp.array([-1.0, 0.0, 0.5]), x), [Arg("N 4")]),
    "histogram": (lambda x: jnp.histogram(x, bins=4, range=(-2, 2))[0], [Arg("20")]),
    "interp": (lambda x: jnp.interp(x, jnp.array([-1.0, 0, 1]), jnp.array([2.0, 0, 5])), [Arg("N 4")]),
    "sort_descending": (lambda x: jnp.sort(x, axis=1, descending=True), [Arg("N 9")]),
    "sort_two_keys": (lambda a, b: jnp.lexsort((a, b)), [ints("9", 4), ints("9", 3)]),
    "quantile": (lambda x: jnp.quantile(x, 0.3, axis=1), [Arg("N 9")]),
    "unique": (lambda i: jnp.unique(i, size=5, fill_value=-1), [ints("12")]),
    "take_beyond_the_end": (
        lambda x, i: jnp.take(x, i, axis=1, mode="fill", fill_value=-5.0),
        [Arg("N 6"), ints("3", 9)],
    ),
    "scatter_beyond_the_end": (lambda x, i: x.at[i].add(1.0), [Arg("6 3"), ints("4", 8)]),
    "update_slice_clamped": (
        lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 1),
        [Arg("N 8 2"), Arg("N 3 2"), ints("", 9)],
    ),
    "updated_by_its_own_columns": (
        lambda x: lax.dynamic_update_slice(x, x[:, :2] * 2, (0, 3)),
        [Arg("N 8")],
    ),
    "rolled_by_input": (lambda x, i: jnp.roll(x, i, axis=1), [Arg("N 6"), ints()]),
    "spectrum": (spectrum, [Arg("N 128")]),
    "complex_result": (lambda x: x * jnp.exp(1j * x), [Arg("N 6")]),
    "complex_weights": (lambda x: jnp.abs(x @ (weight(6, 4) + 1j * weight(6, 4))), [Arg("N 6")]),
    "complex_by_complex": (
        lambda x: jnp.abs((x * (1 + 2j)) @ (weight(6, 4) + 1j * weight(6, 4))),
        [Arg("N 6")],
    ),
    "random_numbers": (lambda s: jax.random.normal(jax.random.key(s), (40,)), [ints("", 90)]),
    "whole_numbers": (whole_numbers, [ints("N 6", 50)]),
    "bfloat16": (
        lambda x: (x.astype(jnp.bfloat16) @ weight(6, 5).astype(jnp.bfloat16)).astype(jnp.float32),
        [Arg("N 6")],
    ),
    "dictionaries": (
        lambda p: {"out": {"a": p["x"]["u"] * 2, "b": [p["y"], p["x"]["v"]]}},
        [{"x": {"u": Arg("N 3"), "v": Arg("3")}, "y": Arg("N 2")}],
    ),
    "transposed_convolution_of_free_sizes": (
        lambda x: (
            lax.conv_transpose(x, weight(3, 3, 2, 4), (2, 2), "SAME"),
            lax.conv_transpose(x, weight(2, 2, 2, 4), (3, 2), "VALID", rhs_dilation=(1, 2)),
        ),
        [Arg("N 2*T T 2")],
    ),
    "spread_and_strided": (
        lambda x: lax.conv_general_dilated(x, weight(3, 2, 4), (2,), [(2, -1)], (3,), (2,), ("NWC", "WIO", "NWC")),
        [Arg("N T 2")],
    ),
    "padding_between_free_sizes": (
        lambda x: (
            lax.pad(x, 7.0, ((1, 0, 2), (-1, 2, 1), (0, -1, 0))),
            lax.pad(x, 7.0, ((0, 0, 0), (-2, -1, 0), (0, 0, 3))),
        ),
        [Arg("N 3+T 3")],
    ),
    "polynomial_sizes": (
        lambda x, y: x[:, :-1] * 2 + jnp.repeat(y, 2, axis=1),
        [Arg("N 2*T+1"), Arg("N T")],
    ),
    "flat_and_back": (
        lambda x: (x.reshape(-1, 6) @ weight(6, 4)).reshape(*x.shape[:2], 4),
        [Arg("N T 6")],
    ),
    "inverse": (lambda x: jnp.linalg.inv(x @ x.mT - jnp.eye(3) * 0.3), [Arg("N 3 3")]),
    "solution": (lambda x, y: jnp.linalg.solve(x + jnp.eye(4)[::-1] * 2, y), [Arg("N 4 4"), Arg("N 4 2")]),
    "determinant": (lambda x: jnp.stack([jnp.linalg.det(x), jnp.linalg.slogdet(x)[0]]), [Arg("3 4 4")]),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.mT + jnp.eye(3)), [Arg("N 3 3")]),
    "factors": (jax.scipy.linalg.lu, [Arg("4 3")]),
    "orthogonal": (jnp.linalg.qr, [Arg("N 4 3")]),
    "orthogonal_of_wide": (lambda x: jnp.linalg.qr(x, mode="complete"), [Arg("3 4")]),
    "orthogonal_of_triangle": (lambda x: jnp.linalg.qr(jnp.triu(x) * 1e20), [Arg("4 4")]),
    "eigenvalues": (jnp.linalg.eigvalsh, [Arg("N 4 4")]),
    "eigenvalues_of_upper": (lambda x: lax.linalg.eigh(x, lower=False, symmetrize_input=False)[1], [Arg("4 4")]),
    "eigenvalue_of_one": (jnp.linalg.eigh, [Arg("N 1 1")]),
    "eigenvectors": (lambda x: turned_back(*jnp.linalg.eigh(x * 1e-20)), [Arg("N 5 5")]),
    "eigenvectors_of_equal": (lambda x: turned_back(*jnp.linalg.eigh(x * 0 + 2.5)), [Arg("5 5")]),
    "singular_values": (lambda x: jnp.linalg.svd(x, compute_uv=False), [Arg("N 3 4")]),
    "singular_vectors": (lambda x: put_together(*jnp.linalg.svd(x, full_matrices=False)), [Arg("N 4 3")]),
    "singular_vectors_of_wide": (lambda x: put_together(*jnp.linalg.svd(x, full_matrices=False)), [Arg("2 3 4")]),
    "all_singular_vectors": (lambda x: [jnp.abs(each) for each in jnp.linalg.svd(x)[::2]], [Arg("3 4")]),
    "vectors_of_rank_one": (lambda x: at_right_angles(jnp.linalg.svd(x[:, :1] @ x[:1])[0]), [Arg("4 3")]),
    "pseudoinverse": (jnp.linalg.pinv, [Arg("N 4 3")]),
    "approximate_top_k": (lambda x: lax.approx_max_k(x, 3), [Arg("3 9")]),
    "approximate_least": (lambda x: lax.approx_min_k(x, 3, reduction_dimension=0), [Arg("9 N")]),
    "least_squares": (lambda x, y: jnp.linalg.lstsq(x, y)[0], [Arg("5 3"), Arg("5 2")]),
    "gradient_inside": (jax.grad(lambda y: (jnp.tanh(y @ weight(4, 4)) ** 2).sum()), [Arg("N 4")]),
}

REFUSED: dict[str, tuple[Callable[..., Any], list[Arg], str]] = {
    "cumulative_maximum_of_free_length": (lambda x: lax.cummax(x, 1), [Arg("N T")], "not a cumulative sum"),
    "candidates": (lambda x: lax.approx_min_k(x, 3, aggregate_to_topk=False), [Arg("3 9")], "not aggregated"),
    "hessenberg": (lambda x: lax.linalg.hessenberg(x)[:1], [Arg("4 4")], "only geqrf, gesdd, getrf"),
    "many_eigenvalues": (lambda x: jnp.linalg.eigvalsh(x * 2), [Arg("13 13")], "from 1 to 12"),
}


def exported(function: Callable[..., Any], args: Any) -> export.Exported:
    scope = export.SymbolicScope()

    def described(arg: Arg) -> jax.ShapeDtypeStruct:
        shape = export.symbolic_shape(", ".join(arg.shape.split()), scope=scope)
        return jax.ShapeDtypeStruct(shape, arg.dtype)

    return export.export(jax.jit(function), platforms=["cpu"])(*jax.tree.map(described, args))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str):
    function, args = PROGRAMS[name]
    program = exported(function, args)
    names = [f"x{place}" for place in program.module_kept_var_idx]
    model = canonicalize(to_onnx(program.mlir_module_serialized, input_names=names))
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    tolerance = (HALF_PARITY["bfloat16"] if name == "bfloat16" else PARITY).relative
    for seed, sizes in enumerate(SIZES):
        rng = np.random.default_rng(seed)
        values = jax.tree.map(lambda arg, rng=rng, sizes=sizes: arg.value(sizes, rng), args)
        fed = {f"x{place}": value for place, value in enumerate(jax.tree.leaves(values))}
        got = session.run(None, {each.name: fed[each.name] for each in session.get_inputs()})
        for have, want in zip(got, jax.tree.leaves(jax.jit(function)(*values)), strict=True):
            compare(have, np.asarray(want), tolerance)


def test_one_place_of_a_free_batch_is_a_slice():
    """A gather by computed rows would keep targets from quantizing what follows as they do for a fixed batch."""
    function, args = PROGRAMS["first_of_a_sequence"]
    model = canonicalize(to_onnx(exported(function, args).mlir_module_serialized))
    assert [node.op_type for node in model.graph] == ["Slice", "Reshape", "MatMul"]


def test_a_cut_beside_a_free_batch_has_constant_bounds():
    function, args = PROGRAMS["cut_from_a_free_batch"]
    model = canonicalize(to_onnx(exported(function, args).mlir_module_serialized))
    assert {node.op_type for node in model.graph} == {"Tanh", "Slice"}


def test_columns_of_a_free_batch_are_as_long_as_it():
    """Else an update is cut in along the batch, too, between nothing and nothing, which LiteRT does not run."""
    function, args = PROGRAMS["updated_by_its_own_columns"]
    model = canonicalize(to_onnx(exported(function, args).mlir_module_serialized))
    assert {node.op_type for node in model.graph} == {"Slice", "Mul", "Concat"}


def compare(have: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """Integers equal, floats within ``tolerance`` of the largest value; complex numbers come as pairs."""
    want = np.stack([want.real, want.imag], -1) if np.iscomplexobj(want) else want
    assert (have.shape, have.dtype) == (want.shape, want.dtype)
    if want.dtype.kind in "iub":
        assert (have == want).all()
    else:
        np.testing.assert_allclose(have, want, rtol=0, atol=tolerance * float(np.abs(want[np.isfinite(want)]).max()))


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_line(name: str):
    function, args, words = REFUSED[name]
    with pytest.raises(Unsupported, match=words) as refusal:
        to_onnx(exported(function, args).mlir_module_serialized)
    assert refusal.value.location == f"{__file__}:{function.__code__.co_firstlineno}"
