"""Programs whose symbolic sizes are constrained: they are verified at sizes that they take."""

import numpy as np
import pytest

pytest.importorskip("jax")

from convertkit.converters.jax import converter
from convertkit.converters.jax.sizes import fitting_sizes
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions

POSITIONS = np.random.default_rng(3).standard_normal((24, 8)).astype(np.float32)

ROWS = [
    ("b, t, 8", ["t <= 24", "t >= 4"], {"b": [1, 3], "t": [16, 24]}),
    ("b, t, 8", ["t >= 300", "b <= 2"], {"b": [1, 2], "t": [512, 1024]}),
    ("b, t, 8", ["mod(t, 7) == 3", "t >= b"], {"b": [1, 3], "t": [24, 10]}),
    ("b, t, 8", ["floordiv(t, 5) == 2"], {"b": [1, 3], "t": [12, 10]}),
    ("b, 2*t, 8", ["t <= 6"], {"b": [1, 3], "t": [6, 4], "2*t": [12, 8]}),
    ("b, 3*t + 1, 8", [], {"b": [1, 3], "t": [32, 64], "3*t + 1": [97, 193]}),
    ("b, t, t - 2", ["t <= 3"], {"b": [1, 3], "t": [3, 3], "t - 2": [1, 1]}),
    ("h, w, 8", ["h >= 2*w", "mod(h, 8) == 0", "h + w <= 40"], {"h": [32, 16], "w": [8, 6]}),
    ("b, t, 8", ["min(b, t) >= 5", "b - t >= -2"], {"b": [8, 32], "t": [8, 32]}),
]


def exported(shape, constraints):
    import jax
    from jax import export

    sizes = export.symbolic_shape(shape, constraints=constraints)
    return export.export(jax.jit(lambda x: x * 2))(jax.ShapeDtypeStruct(sizes, np.float32))


@pytest.mark.parametrize(("shape", "constraints", "expected"), ROWS)
def test_sizes_fulfil_what_the_program_asserts(shape, constraints, expected):
    from convertkit.converters.jax.service import JaxService

    service = JaxService()
    program = exported(shape, constraints)
    service._take_program(program)
    found = service._sizes()
    assert found == expected
    for turn in (0, 1):
        dims = [dim if isinstance(dim, int) else found[str(dim)][turn] for dim in program.in_avals[0].shape]
        assert np.asarray(program.call(np.ones(dims, np.float32))).shape == tuple(dims)


def test_no_sizes_where_none_fit():
    class Never:
        def refused(self, sizes):
            return True

    from convertkit.converters.stablehlo.importer import Port

    assert fitting_sizes([Port("x", ("b", 8), "float32", is_complex=False)], Never()) == {}


def test_a_constrained_program_is_exported_and_computes_at_other_sizes(tmp_path):
    import jax
    from jax import export
    from jax import numpy as jnp

    import convertkit

    def program(x, mask):
        return (x + jnp.asarray(POSITIONS)[: x.shape[1]])[:, 1:] * jnp.tanh(mask)

    scope = export.SymbolicScope(["t <= 24", "t >= 4"])
    shapes = [export.symbolic_shape(each, scope=scope) for each in ("b, t, 8", "b, t - 1, 8")]
    made = export.export(jax.jit(program))(*[jax.ShapeDtypeStruct(each, np.float32) for each in shapes])
    path = tmp_path / "model.jax"
    path.write_bytes(made.serialize())
    result = convertkit.export(path, output=tmp_path / "out", progress=False)
    rng = np.random.default_rng(1)
    for rows, length in ((1, 4), (2, 13), (5, 24)):
        feeds = [rng.standard_normal((rows, size, 8)).astype(np.float32) for size in (length, length - 1)]
        got = result.run(dict(zip(("x", "mask"), feeds, strict=True)))
        np.testing.assert_allclose(next(iter(got.values())), program(*feeds), rtol=1e-5, atol=1e-6)


def test_what_refinement_says_is_told(tmp_path):
    import jax
    from jax import export

    from convertkit.errors import ToolError

    sizes = export.symbolic_shape("b, t, 8", constraints=["t <= 24"])
    made = export.export(jax.jit(lambda x: x + jax.numpy.asarray(POSITIONS)[: x.shape[1]]))(
        jax.ShapeDtypeStruct(sizes, np.float32)
    )
    path = tmp_path / "model.jax"
    path.write_bytes(made.serialize())
    with (
        converter.open(str(path), ExportOptions(str(path)), tmp_path, Silent()) as source,
        source.runner() as runner,
        pytest.raises(ToolError, match=r"slice size \(32\) is out of bounds"),
    ):
        runner.run({"x": np.ones((1, 32, 8), np.float32)})
