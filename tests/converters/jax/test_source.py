"""JAX programs through the worker to ONNX, held against JAX itself."""

import numpy as np
import pytest

pytest.importorskip("jax")

from convertkit.converters.jax import converter
from convertkit.converters.stablehlo import converter as stablehlo
from convertkit.errors import ConvertKitError
from convertkit.onnx.runner import OnnxRunner
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions, InputSpec

MODULE = "tests.converters.jax.programs_under_test"
rng = np.random.default_rng(5)


def parity(source, workdir, batch):
    """The greatest relative difference of all outputs between JAX and ONNX Runtime."""
    artifact = source.stage().run(source.artifact, workdir)
    feed = {}
    for spec in artifact.inputs:
        shape = [size if isinstance(size, int) else batch for size in spec.shape]
        integers = spec.dtype.startswith("int")
        feed[spec.name] = (rng.integers(0, 50, shape) if integers else rng.standard_normal(shape)).astype(spec.dtype)
    with source.runner() as before, OnnxRunner(artifact) as after:
        want, got = before.run(feed), after.run(feed)
    assert list(want) == list(got)
    gaps = [np.abs(want[name].astype(float) - got[name]).max() / max(np.abs(want[name]).max(), 1e-9) for name in want]
    return max(gaps)


CALLABLES = [
    ("classify", [InputSpec("x", ("N", 8)), InputSpec("scale", (8,))]),
    ("generate", [InputSpec("token", ("N",), "int32")]),
]
MORE = [
    ("convolutional", [InputSpec("image", ("N", 32, 32, 3))]),
    ("recurrent", [InputSpec("x", ("N", 7, 5))]),
    ("recurrent", [InputSpec("x", (2, 7, 5))]),
    ("linear", [InputSpec("x", (2, 3))]),
    ("ranked", [InputSpec("ids", ("N", 9), "int32")]),
    ("generate", [InputSpec("token", (3,), "int32")]),
]


def check(name, inputs, tmp_path):
    options = ExportOptions(f"{MODULE}:{name}", inputs=tuple(inputs))
    with converter.open(options.source, options, tmp_path, Silent()) as source:
        assert parity(source, tmp_path, 3) <= 1e-5


@pytest.mark.parametrize(("name", "inputs"), CALLABLES)
def test_callables(name, inputs, tmp_path):
    check(name, inputs, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "inputs"), MORE)
def test_more_callables(name, inputs, tmp_path):
    check(name, inputs, tmp_path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One program as jax.export bytes, bytecode and text."""
    import jax
    from jax import export

    folder = tmp_path_factory.mktemp("programs")
    batch = export.symbolic_shape("batch")[0]
    program = export.export(jax.jit(lambda x: {"y": jax.nn.silu(x) @ np.eye(4, 3, dtype=np.float32)}))
    exported = program(jax.ShapeDtypeStruct((batch, 4), np.float32))
    (folder / "model.jax").write_bytes(exported.serialize())
    (folder / "model.mlirbc").write_bytes(exported.mlir_module_serialized)
    (folder / "model.mlir").write_text(str(exported.mlir_module()))
    return folder


def test_sniffing_is_by_content(files, tmp_path):
    for name, mine, theirs in (
        ("model.jax", converter, stablehlo),
        ("model.mlirbc", stablehlo, converter),
        ("model.mlir", stablehlo, converter),
    ):
        renamed = tmp_path / "model.bin"
        renamed.write_bytes((files / name).read_bytes())
        assert mine.sniff(str(renamed)) is not None
        assert theirs.sniff(str(renamed)) is None
    other = tmp_path / "other"
    other.write_bytes(b"\x08\x0a\x12\x07pytorch")
    assert converter.sniff(str(other)) is None
    assert stablehlo.sniff(str(other)) is None


@pytest.mark.parametrize("name", ["model.jax", "model.mlirbc"])
def test_artifacts(files, name, tmp_path):
    opener = converter if name.endswith("jax") else stablehlo
    with opener.open(str(files / name), ExportOptions(str(files / name)), tmp_path, Silent()) as source:
        assert source.artifact.outputs[0].name == "y"
        if name == "model.jax":
            assert source.artifact.inputs[0].shape == ("batch", 4)
        assert parity(source, tmp_path, 2) <= 1e-5


@pytest.mark.parametrize("batch", [1, 3])
def test_a_bare_module_with_free_sizes_runs_in_jax(batch, tmp_path):
    """Composites, and functions that loops call: shape refinement alone refuses them, and some sizes of one only."""
    import jax
    from jax import export, lax

    @jax.jit
    def step(state, row):
        return jax.numpy.tanh(state + row[:, :4]), state

    def program(x):
        last, all_of = lax.scan(step, x[:, 0, :4] * 0, x.swapaxes(0, 1))
        again, _ = lax.scan(step, last, all_of[::-1])
        return lax.top_k(again, 2)

    size = export.symbolic_shape("batch")[0]
    exported = export.export(jax.jit(program))(jax.ShapeDtypeStruct((size, 5, 6), np.float32))
    path = tmp_path / "model.mlirbc"
    path.write_bytes(exported.mlir_module_serialized)
    with stablehlo.open(str(path), ExportOptions(str(path)), tmp_path, Silent()) as source:
        assert parity(source, tmp_path, batch) <= 1e-5


@pytest.mark.parametrize(("name", "size"), [("model.jax", 900), ("model.mlirbc", 300), ("model.mlir", 200)])
def test_truncated_files_are_one_sentence(files, name, size, tmp_path):
    broken = tmp_path / name
    broken.write_bytes((files / name).read_bytes()[:size])
    opener = converter if name.endswith("jax") else stablehlo
    with pytest.raises(ConvertKitError) as caught:
        opener.open(str(broken), ExportOptions(str(broken)), tmp_path, Silent())
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1


def test_an_artifact_whose_description_is_not_its_modules_is_refused(tmp_path):
    import dataclasses

    import jax
    from jax import export

    program = export.export(jax.jit(lambda x: x * 2))(jax.ShapeDtypeStruct((3,), np.float32))
    described = (jax.core.ShapedArray((3,), np.int32),)
    path = tmp_path / "model.jax"
    path.write_bytes(dataclasses.replace(program, out_avals=described).serialize())
    with pytest.raises(ConvertKitError, match="describes output y0 as int32, its module as float32"):
        converter.open(str(path), ExportOptions(str(path)), tmp_path, Silent())


def test_a_result_called_like_an_argument_gets_a_name_of_its_own(tmp_path):
    from jax import export, numpy

    def step(cache, x):
        return {"cache": cache + x, "y": numpy.tanh(x)}

    import jax

    shape = jax.ShapeDtypeStruct((3,), np.float32)
    (tmp_path / "step.jax").write_bytes(export.export(jax.jit(step))(shape, shape).serialize())
    with converter.open(
        str(tmp_path / "step.jax"), ExportOptions(str(tmp_path / "step.jax")), tmp_path, Silent()
    ) as source:
        assert [each.name for each in source.artifact.outputs] == ["cache_out", "y"]
        assert parity(source, tmp_path, 1) <= 1e-6


def test_programs_that_compute_in_half_precision_are_judged_by_its_roundings(tmp_path):
    import jax
    from jax import export, numpy

    weights = rng.standard_normal((16, 4)).astype(np.float32)

    def stored(x):
        return x @ numpy.asarray(weights, numpy.bfloat16).astype(np.float32)

    def computed(x):
        return (x.astype(numpy.bfloat16) @ numpy.asarray(weights, numpy.bfloat16)).astype(np.float32)

    for function, allowed in ((stored, 1e-5), (computed, 1e-2)):
        path = tmp_path / "model.jax"
        path.write_bytes(export.export(jax.jit(function))(jax.ShapeDtypeStruct((3, 16), np.float32)).serialize())
        with converter.open(str(path), ExportOptions(str(path)), tmp_path, Silent()) as source:
            assert source.stage().tolerance.relative == allowed
            assert parity(source, tmp_path, 3) <= allowed


@pytest.mark.parametrize("suffix", ["jax", "mlirbc"])
def test_bfloat16_goes_in_and_out_as_float32(suffix, tmp_path):
    import jax
    from jax import export, numpy

    def doubled(x, y):
        return {"twice": x * 2, "same": y}

    size = export.symbolic_shape("N")[0]
    shapes = [jax.ShapeDtypeStruct((size, 4), numpy.bfloat16)] * 2
    program = export.export(jax.jit(doubled))(*shapes)
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(program.serialize() if suffix == "jax" else program.mlir_module_serialized)
    opener = converter if suffix == "jax" else stablehlo
    with opener.open(str(path), ExportOptions(str(path)), tmp_path, Silent()) as source:
        assert {each.dtype for each in (*source.artifact.inputs, *source.artifact.outputs)} == {"float32"}
        assert parity(source, tmp_path, 3) == 0


def test_a_program_lowered_for_another_platform(tmp_path):
    import jax
    from jax import export

    program = export.export(jax.jit(lambda x: jax.nn.silu(x) * 2), platforms=["tpu"])
    (tmp_path / "tpu.jax").write_bytes(program(jax.ShapeDtypeStruct((3,), np.float32)).serialize())
    with converter.open(
        str(tmp_path / "tpu.jax"), ExportOptions(str(tmp_path / "tpu.jax")), tmp_path, Silent()
    ) as source:
        assert parity(source, tmp_path, 1) <= 1e-6
