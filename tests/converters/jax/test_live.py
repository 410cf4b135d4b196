"""Functions and modules of the caller's process become files that the converter reads."""

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
from jax import export
from jax import numpy as jnp

from convertkit.converters.jax import converter
from convertkit.converters.jax.service import JaxService
from convertkit.errors import SourceError, UsageError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)


def double(x, offset=0.0):
    return jnp.tanh(x @ W) * 2 + offset


def linear(parameters, x):
    return x @ parameters["w"]


def symbolic(*sizes: str):
    return jax.ShapeDtypeStruct(export.symbolic_shape(", ".join(sizes)), np.float32)


def linen():
    nn = pytest.importorskip("flax.linen")
    model = nn.Dense(2)
    return model, model.init(jax.random.key(0), X)


def nnx():
    module = pytest.importorskip("flax.nnx")
    return module.Linear(4, 2, rngs=module.Rngs(0))


MODELS = {
    "function": (lambda: double, X, "double.jax", lambda m, x: m(x)),
    "jitted": (lambda: jax.jit(double), (X,), "double.jax", lambda m, x: m(x)),
    "keyword": (lambda: double, {"x": X, "offset": np.float32(3)}, "double.jax", lambda m, x: m(x, 3)),
    "dynamic batch": (lambda: double, symbolic("N", "4"), "double.jax", lambda m, x: m(x)),
    "parameters": (lambda: (linear, {"w": W}), X, "linear.jax", lambda m, x: m[0](m[1], x)),
    "linen": (linen, X, "Dense.jax", lambda m, x: m[0].apply(m[1], x)),
    "nnx": (nnx, X, "Linear.jax", lambda m, x: m(x)),
    "exported": (lambda: export.export(jax.jit(double))(X), None, "double.jax", lambda m, x: double(x)),
    "lowered": (lambda: jax.jit(double).lower(X), None, "double.mlir", lambda m, x: double(x)),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_saved_computes_the_same(name, tmp_path):
    make, example, file, call = MODELS[name]
    model = make()
    path = converter.save_live(model, example, tmp_path)
    assert path is not None
    kind = "jax-export" if file.endswith(".jax") else "stablehlo"
    assert (path.parent, converter.sniff(str(path)) or "stablehlo") == (tmp_path, kind)
    assert path.name == file
    before = jax.config.jax_enable_x64
    service = JaxService()
    told = service.open({"source": str(path), "kind": kind, "inputs": []}, {}).value
    feed = {each[0]: X if len(each[1]) == 2 else np.float32(3) for each in told["inputs"]}
    (got,) = service.run({}, feed).arrays.values()
    jax.config.update("jax_enable_x64", before)
    np.testing.assert_array_equal(got, np.asarray(call(model, X)))
    if name == "dynamic batch":
        assert told["inputs"][0][1] == ["N", 4]


def test_an_example_is_asked_for(tmp_path):
    with pytest.raises(UsageError, match="an example of its arguments"):
        converter.save_live(double, None, tmp_path)


def test_a_function_that_jax_cannot_trace(tmp_path):
    def branches(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(SourceError, match="JAX cannot export branches: Attempted boolean conversion"):
        converter.save_live(branches, X, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("other", [X, "model.onnx", dict, 3, ("a", "b")])
def test_what_is_not_jaxs_is_left_to_others(other, tmp_path):
    assert converter.save_live(other, X, tmp_path) is None
