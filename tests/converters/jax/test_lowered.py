"""JAX programs that were lowered for GPUs, or for several platforms: read where there is no GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
from jax import export, lax
from jax import numpy as jnp

from convertkit.converters.jax import converter
from convertkit.converters.stablehlo import converter as stablehlo
from convertkit.converters.stablehlo.module import context, portable, read_module
from convertkit.errors import ConvertKitError
from convertkit.onnx.runner import OnnxRunner
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions

BOTH = ("cpu", "cuda")


def apart(x):
    """Another result on each platform, within a function that is called and a loop."""

    @jax.jit
    def step(y):
        return lax.platform_dependent(y, cpu=lambda v: v + 1, cuda=lambda v: v * 2, tpu=lambda v: v - 3)

    return lax.fori_loop(0, 3, lambda _, y: step(y) + y, x)


def positive(x):
    return x @ x.mT + 5 * jnp.eye(x.shape[-1], dtype=x.dtype)


def solved(x):
    return jnp.linalg.solve(positive(x), x), jnp.linalg.det(x), jnp.linalg.inv(positive(x))


def reflected(x):
    q, r = jnp.linalg.qr(x)
    return q @ r, jnp.abs(r)


def turned(x):
    values, vectors = jnp.linalg.eigh(positive(x))
    return values, (vectors * jnp.exp(values)[..., None, :] / 1e6) @ vectors.mT


def singular(x):
    return jnp.linalg.svd(x, compute_uv=False)


def put_together(x):
    u, s, v = jnp.linalg.svd(x, full_matrices=False)
    return (u * s[..., None, :]) @ v, s


def put_together_of_all(x):
    u, s, v = jnp.linalg.svd(x)
    return (u[..., :3] * s[..., None, :]) @ v[..., :3, :]


def by_rows(x):
    u, s, v = lax.linalg.svd(x, full_matrices=False, algorithm=lax.linalg.SvdAlgorithm.QR)
    return (u * s[..., None, :]) @ v


def drawn(x):
    return x + jax.random.normal(jax.random.key(3), x.shape)


def exported(function: Callable[..., Any], shape: tuple[int | str, ...], platforms: tuple[str, ...]) -> Any:
    sizes = export.symbolic_shape(",".join(map(str, shape)))
    return export.export(jax.jit(function), platforms=platforms)(jax.ShapeDtypeStruct(sizes, np.float32))


def converted(opener: Any, path: Path, x: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray], tuple[str, ...]]:
    """What the source computes, what ONNX Runtime does, and the notes."""
    with opener.open(str(path), ExportOptions(str(path)), path.parent, Silent()) as source:
        artifact = source.stage().run(source.artifact, path.parent)
        with source.runner() as before, OnnxRunner(artifact) as after:
            inputs = {artifact.inputs[0].name: x}
            return [*before.run(inputs).values()], [*after.run(inputs).values()], source.notes


def check(
    function: Callable[..., Any], sizes: tuple[int | str, ...], platforms: tuple[str, ...], tmp_path: Path
) -> str:
    """The program by every platform's rules against the function on this CPU; its notes."""
    path = tmp_path / "model.jax"
    path.write_bytes(exported(function, sizes, platforms).serialize())
    x = np.random.default_rng(7).standard_normal([2 if isinstance(size, str) else size for size in sizes])
    want = jax.tree_util.tree_leaves(jax.jit(function)(x.astype(np.float32)))
    reference, got, notes = converted(converter, path, x.astype(np.float32))
    for expected, before, after in zip(want, reference, got, strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(before, expected, atol=1e-5 * scale, rtol=0)
        np.testing.assert_allclose(after, before, atol=1e-5 * scale, rtol=0)
    return "; ".join(notes)


@pytest.mark.parametrize("platforms", [BOTH, ("cuda", "cpu"), ("tpu", "cuda", "cpu")])
@pytest.mark.parametrize("sizes", [(4, 3), ("b", 3)])
def test_of_several_platforms_the_processor_is_taken(platforms, sizes, tmp_path):
    notes = check(apart, sizes, platforms, tmp_path)
    assert notes == f"exported for {', '.join(platforms)}: verified and converted as it computes on cpu"


def test_jax_itself_chooses_the_same_branch(tmp_path):
    program = exported(lambda x: (apart(x), *solved(x)), (3, 3), ("tpu", *BOTH))
    path = tmp_path / "model.jax"
    path.write_bytes(program.serialize())
    x = np.random.default_rng(7).standard_normal((3, 3)).astype(np.float32)
    reference, _, _ = converted(converter, path, x)
    for before, expected in zip(reference, program.call(x), strict=True):
        np.testing.assert_array_equal(before, expected)


def test_without_the_processor_the_first_platform_is_taken(tmp_path):
    path = tmp_path / "model.jax"
    path.write_bytes(exported(apart, ("b", 3), ("cuda", "tpu")).serialize())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    reference, got, notes = converted(converter, path, x)
    np.testing.assert_array_equal(reference[0], x * 27)
    np.testing.assert_array_equal(got[0], x * 27)
    assert notes == ("exported for cuda, tpu: verified and converted as it computes on cuda",)


def test_several_platforms_of_a_module_that_takes_none(tmp_path):
    program = dataclasses.replace(exported(apart, (2, 3), ("cpu",)), platforms=BOTH)
    path = tmp_path / "model.jax"
    path.write_bytes(program.serialize())
    with pytest.raises(ConvertKitError, match="damaged: it is for several platforms, its module takes no platform"):
        converter.open(str(path), ExportOptions(str(path)), tmp_path, Silent())


@pytest.mark.parametrize(
    ("function", "sizes", "called"),
    [
        (lambda x: jnp.linalg.cholesky(positive(x)), (2, 3, 3), "cusolver_potrf_ffi"),
        (lambda x: jnp.linalg.cholesky(positive(x), upper=True), ("b", 3, 3), "cusolver_potrf_ffi"),
        (solved, (3, 3), "cusolver_getrf_ffi, cu_lu_pivots_to_permutation"),
        (solved, ("b", 3, 3), "cusolver_getrf_ffi, cu_lu_pivots_to_permutation"),
        (reflected, (2, 4, 3), "cusolver_geqrf_ffi, cusolver_orgqr_ffi"),
        (reflected, ("b", 4, 3), "cusolver_geqrf_ffi, cusolver_orgqr_ffi"),
        (turned, (3, 3), "cusolver_syevd_ffi"),
        (turned, ("b", 3, 3), "cusolver_syevd_ffi"),
        (singular, (4, 3), "cusolver_gesvdj_ffi"),
        (put_together, (2, 4, 3), "cusolver_gesvdj_ffi"),
        (put_together, ("b", 3, 4), "cusolver_gesvdj_ffi"),
        (put_together_of_all, (3, 5), "cusolver_gesvdj_ffi"),
        (by_rows, (5, 3), "cusolver_gesvd_ffi"),
    ],
)
def test_routines_of_a_gpu(function, sizes, called, tmp_path):
    notes = check(function, sizes, ("cuda",), tmp_path)
    assert f"verified and converted as on a CPU: {called}" in notes
    assert ("other signs" in notes) == ("syevd" in called or "gesvd" in called)


@pytest.mark.parametrize("sizes", [(3, 5), ("b", 5)])
def test_random_numbers_of_a_gpu(sizes, tmp_path):
    with _kernels_of_random_numbers():
        notes = check(drawn, sizes, ("cuda",), tmp_path)
    assert notes.endswith(": cu_threefry2x32_ffi")


@contextmanager
def _kernels_of_random_numbers() -> Iterator[None]:
    jax.config.update("jax_threefry_gpu_kernel_lowering", True)
    try:
        yield
    finally:
        jax.config.update("jax_threefry_gpu_kernel_lowering", False)


@pytest.mark.parametrize(
    ("function", "sizes", "named"),
    [
        (lambda x: lax.linalg.svd(x, algorithm=lax.linalg.SvdAlgorithm.QR), (3, 5), "cusolver_gesvd_ffi"),
        (lambda x: lax.linalg.tridiagonal(x, lower=True)[1], (3, 3), "cusolver_sytrd_ffi"),
    ],
)
def test_routines_without_a_form(function, sizes, named, tmp_path):
    path = tmp_path / "model.jax"
    path.write_bytes(exported(function, sizes, ("cuda",)).serialize())
    refused = pytest.raises(ConvertKitError, match=rf"@{named}: a kernel of a GPU; export the program for a CPU")
    with converter.open(str(path), ExportOptions(str(path)), tmp_path, Silent()) as source, refused:
        source.stage().run(source.artifact, tmp_path)


SCAN = """func.func @main(%x: tensor<{sizes}x{kind}>) -> tensor<{sizes}x{kind}> {{
  %first = stablehlo.constant dense<{first}> : tensor<{kind}>
  %start = stablehlo.broadcast_in_dim %first, dims = [] : (tensor<{kind}>) -> tensor<{row}{kind}>
  %all:2 = chlo.scan(%x) inits (%start) dimension={axis} attributes {{is_associative = true, is_reverse = {back}}} {{
  ^bb0(%one: tensor<{row}{kind}>, %carry: tensor<{row}{kind}>):
    %made = stablehlo.{name} %one, %carry : tensor<{row}{kind}>
    stablehlo.return %made, %made : tensor<{row}{kind}>, tensor<{row}{kind}>
  }} : (tensor<{sizes}x{kind}>, tensor<{row}{kind}>) -> (tensor<{sizes}x{kind}>, tensor<{row}{kind}>)
  return %all#0 : tensor<{sizes}x{kind}>
}}"""


@pytest.mark.parametrize(
    ("name", "first", "kind", "axis", "back"),
    [
        ("add", "0.0", "f32", 1, False),
        ("add", "0.0", "f32", 0, True),
        ("add", "0", "i32", 1, True),
        ("multiply", "1.0", "f32", 1, False),
        ("maximum", "0xFF800000", "f32", 1, True),
        ("minimum", "2147483647", "i32", 0, False),
    ],
)
def test_cumulative_operators_of_a_gpu(name, first, kind, axis, back, tmp_path):
    path = written(tmp_path, name, first, kind, axis, back)
    dtype = {"f32": np.float32, "i32": np.int32}[kind]
    x = (np.random.default_rng(1).standard_normal((3, 4)) * 9).astype(dtype)
    reference, got, _ = converted(stablehlo, path, x)
    turn = slice(None, None, -1 if back else 1)
    want = np.moveaxis(getattr(np, name).accumulate(np.moveaxis(x, axis, 0)[turn]), 0, axis)
    np.testing.assert_allclose(reference[0], np.flip(want, axis) if back else want, rtol=1e-5)
    np.testing.assert_allclose(got[0], reference[0], rtol=1e-5)


@pytest.mark.parametrize(("name", "first"), [("add", "2.5"), ("subtract", "0.0")])
@pytest.mark.parametrize("serialized", [False, True])
def test_other_cumulative_operators(name, first, serialized, tmp_path):
    path = written(tmp_path, name, first)
    if serialized:
        path.write_bytes(as_artifact(path.read_text()))
    with pytest.raises(
        ConvertKitError, match=r"chlo\.scan of another operator than add, .*export the program for a CPU"
    ):
        stablehlo.open(str(path), ExportOptions(str(path)), tmp_path, Silent())


def test_a_scan_whose_last_state_is_read_is_refused(tmp_path):
    path = written(tmp_path, "add", "0.0")
    both = path.read_text().replace("-> tensor<3x4xf32> {", "-> (tensor<3x4xf32>, tensor<3xf32>) {", 1)
    path.write_text(
        both.replace("return %all#0 : tensor<3x4xf32>", "return %all#0, %all#1 : tensor<3x4xf32>, tensor<3xf32>")
    )
    with pytest.raises(
        ConvertKitError, match=r"chlo\.scan of another operator than add, .*export the program for a CPU"
    ):
        stablehlo.open(str(path), ExportOptions(str(path)), tmp_path, Silent())


@pytest.mark.parametrize(("name", "first", "back"), [("add", "0.0", True), ("maximum", "0xFF800000", False)])
def test_cumulative_operators_of_a_portable_artifact(name, first, back, tmp_path):
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    want, _, _ = converted(stablehlo, written(tmp_path, name, first, back=back), x)
    (tmp_path / "model.mlir").write_bytes(as_artifact((tmp_path / "model.mlir").read_text()))
    reference, got, _ = converted(stablehlo, tmp_path / "model.mlir", x)
    np.testing.assert_array_equal(reference[0], want[0])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)


def as_artifact(text: str) -> bytes:
    with context() as ctx:
        return portable(read_module(ctx, text))


def written(tmp_path: Path, name: str, first: str, kind: str = "f32", axis: int = 1, back: bool = False) -> Path:
    row = "4x" if axis == 0 else "3x"
    said = {"sizes": "3x4", "row": row, "name": name, "first": first, "kind": kind, "axis": axis}
    path = tmp_path / "model.mlir"
    path.write_text(SCAN.format(**said, back=str(back).lower()))
    return path


def newer(program: Any, *changed: tuple[bytes, bytes]) -> bytes:
    """The artifact as a newer StableHLO writes it; every text is as long as it was."""
    data = bytes(program.serialize())
    head = data.index(b"StableHLO_v")
    version = data[head : data.index(b"\0", head)]
    for old, new in ((version, b"StableHLO_v1.99.0"), *changed):
        assert old in data
        assert len(old) == len(new)
        data = data.replace(old, new)
    return data


def test_custom_calls_of_a_newer_stablehlo(tmp_path):
    path = tmp_path / "model.jax"
    program = exported(lambda x: jnp.linalg.cholesky(positive(x)), ("b", 3, 3), ("cpu",))
    path.write_bytes(newer(program, (b"custom_call_v1", b"custom_call_v2")))
    x = np.random.default_rng(7).standard_normal((2, 3, 3)).astype(np.float32)
    reference, got, _ = converted(converter, path, x)
    np.testing.assert_array_equal(reference[0], program.call(x))
    np.testing.assert_allclose(got[0], reference[0], atol=1e-5)


def test_operators_of_a_newer_stablehlo(tmp_path):
    path = tmp_path / "model.jax"
    path.write_bytes(newer(exported(jnp.tanh, (2, 3), ("cpu",)), (b"tanh_v", b"tank_v")))
    said = r"vhlo\.tank_v\d, which is not known here; StableHLO 1\.99\.0 wrote it, .*older JAX"
    with pytest.raises(ConvertKitError, match=said):
        converter.open(str(path), ExportOptions(str(path)), tmp_path, Silent())
