"""Artifacts truncated, with flipped bits, and written to harm: each is one sentence, or what it says is computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from tests.converters.tensorflow.broken_exports import Exporter, mutants

KINDS = ("jax", "mlirbc", "mlir")
NIGHTLY = 200


def function(body: str, arguments: str = "%x: tensor<4xf32>", result: str = "tensor<4xf32>") -> str:
    return f"func.func public @main({arguments}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"


def call(target: str) -> str:
    return function(f"%r = stablehlo.custom_call @{target}(%x) : (tensor<4xf32>) -> tensor<4xf32>")


def nested(depth: int) -> str:
    """Branches inside branches."""
    back = "stablehlo.return %x : tensor<4xf32>\n"
    head = '%v = "stablehlo.if"(%p) ({\n' * depth
    closing = f"}}, {{\n{back}}}) : (tensor<i1>) -> tensor<4xf32>\n"
    tail = back + "stablehlo.return %v : tensor<4xf32>\n".join([closing] * depth)
    return function(f"{head}{tail}%r = stablehlo.negate %v : tensor<4xf32>", "%x: tensor<4xf32>, %p: tensor<i1>")


ADD = "%r = stablehlo.add %x, %x : tensor<4xf32>"
HOSTILE = {
    "nothing-but-a-module": ("module {}", "no function main"),
    "unknown-dialect": (function('%r = "evil.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>'), "not StableHLO's: evil.op"),
    "unknown-operator": (function("%r = stablehlo.explode %x : tensor<4xf32>"), "stablehlo.explode"),
    "tpu": (call("tpu_custom_call"), "@tpu_custom_call"),
    "cuda": (call("__cublas$gemm"), "@__cublas$gemm"),
    "triton": (call("__gpu$xla.gpu.triton"), "triton"),
    "python-callback": (call("xla_ffi_python_cpu_callback"), "callback"),
    "half-a-function": (function(ADD)[:70], "cannot be read"),
    "types-that-do-not-fit": (function("%r = stablehlo.add %x, %x : tensor<5xf32>"), "cannot be read"),
    "declared-only": ("func.func public @main(tensor<4xf32>) -> tensor<4xf32>\n// stablehlo.add", "declaration"),
    "two-functions": (function(ADD).replace("@main", "@f") + function(ADD).replace("@main", "@g"), "2 public"),
    "calls-itself": (function("%r = func.call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>"), "itself"),
    "call-of-nobody": (function("%r = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>"), "'f' does not reference"),
    "unranked": (function("%r = stablehlo.negate %x : tensor<*xf32>", "%x: tensor<*xf32>", "tensor<*xf32>"), "ranked"),
    "tuple": (
        function("%r = stablehlo.tuple %x : tuple<tensor<4xf32>>", result="tuple<tensor<4xf32>>"),
        "tuple",
    ),
    "no-resource": (
        function("%r = stablehlo.constant dense_resource<weights> : tensor<4xf32>", ""),
        "dense_resource",
    ),
    "terabytes-of-constant": (
        function(
            "%c = stablehlo.constant dense<1.0> : tensor<4x1000000000000xf32>\n"
            "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
            "%s = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [1] : "
            "(tensor<4x1000000000000xf32>, tensor<f32>) -> tensor<4xf32>\n%r = stablehlo.add %x, %s : tensor<4xf32>"
        ),
        "",
    ),
    "terabytes-of-input": (
        function(
            "%r = stablehlo.negate %x : tensor<4x1000000000000xf32>",
            "%x: tensor<4x1000000000000xf32>",
            "tensor<4x1000000000000xf32>",
        ),
        "",
    ),
    "size-beyond-64-bits": (function(ADD.replace("4", "99999999999999999999")), "cannot be read"),
    "deep": (nested(3000), "nested too deeply"),
}
BYTES = {
    "magic-alone": b"ML\xefR",
    "from-the-future": b"ML\xefR\rStableHLO_v99.0.0\x00" + bytes(200),
    "garbage-behind-magic": b"ML\xefR" + np.random.default_rng(0).bytes(500),
    "not-utf-8": b"func.func public @main() \xff\xfe",
    "flatbuffer-of-garbage": b"\x10\0\0\0"
    + np.random.default_rng(1).bytes(80)
    + b"ML\xefR\rStableHLO_v1.0.0"
    + bytes(60),
}


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    with Exporter(tmp_path_factory.mktemp("warm"), "jax") as warm:
        yield warm


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a convolution, a scan and a sort, in every form."""
    import jax
    from jax import export, lax, numpy

    kernel = np.random.default_rng(0).standard_normal((3, 2, 4)).astype(np.float32)

    def model(x):
        y = lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
        _, rows = lax.scan(lambda c, row: (numpy.tanh(c + row), c), y[:, 0], y.swapaxes(0, 1))
        return {"scan": rows, "best": lax.top_k(y[:, 0], 2)[0], "sorted": numpy.sort(y, 1)}

    made = export.export(jax.jit(model))(jax.ShapeDtypeStruct((2, 5, 2), np.float32))
    folder = tmp_path_factory.mktemp("sound")
    (folder / "model.jax").write_bytes(made.serialize())
    (folder / "model.mlirbc").write_bytes(made.mlir_module_serialized)
    (folder / "model.mlir").write_text(str(made.mlir_module()))
    return folder


def faults(exporter: Exporter, whole: bytes, count: int, to: Path, suffix: str) -> tuple[list[str], set[int | None]]:
    found, codes = [], set()
    for index, data in enumerate(mutants(whole, count, 7)):
        path = to / f"{index}.{suffix}"
        path.write_bytes(data)
        ended = exporter.export(path)
        codes.add(ended.exit_code)
        if ended.fault or "crashed with" in ended.said:
            found.append(f"{path.name}: {ended.fault or ended.said}")
    return found, codes


@pytest.mark.parametrize("kind", KINDS)
def test_broken_files(exporter: Exporter, sound: Path, tmp_path: Path, kind: str):
    assert exporter.export(sound / f"model.{kind}").exit_code == 0
    found, codes = faults(exporter, (sound / f"model.{kind}").read_bytes(), 20, tmp_path, kind)
    assert not found
    assert 1 in codes


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_many_broken_files(exporter: Exporter, sound: Path, tmp_path: Path, kind: str):
    found, _ = faults(exporter, (sound / f"model.{kind}").read_bytes(), NIGHTLY, tmp_path, kind)
    assert not found


@pytest.mark.parametrize("name", [*HOSTILE, *BYTES])
def test_hostile_modules(exporter: Exporter, tmp_path: Path, name: str):
    text, words = HOSTILE.get(name, ("", ""))
    path = tmp_path / "model.mlir"
    path.write_bytes(BYTES.get(name, text.encode()))
    ended = exporter.export(path)
    assert not ended.fault
    assert ended.exit_code == 1
    assert words in ended.said
