"""Compositions put back into ONNX operators: graph, numbers before and after, and what must not match."""

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import onnx_ir as ir
import onnxruntime
from jax import export

from convertkit.converters.stablehlo import importer
from convertkit.converters.stablehlo.recognise.erf import _ABOVE as ABOVE
from convertkit.converters.stablehlo.recognise.erf import _BELOW as BELOW

X = np.random.default_rng(3).standard_normal((2, 5, 8)).astype(np.float32) * 3


def converted(function):
    exported = export.export(jax.jit(function))(jax.ShapeDtypeStruct(X.shape, X.dtype))
    return importer.to_onnx(exported.mlir_module_serialized)


def operators(model):
    return [node.op_type for node in model.graph if node.op_type not in ("Identity", "Constant")]


def run(model):
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})[0]


def check(function, expected, monkeypatch):
    model = converted(function)
    assert operators(model) == expected
    with monkeypatch.context() as patch:
        patch.setattr(importer, "recognise", lambda plain: plain)
        before = run(converted(function))
    after = run(model)
    assert np.abs(after - before).max() <= 1e-6 * np.abs(before).max()


def test_gelu(monkeypatch):
    check(lambda x: jax.nn.gelu(x, approximate=False), ["Mul", "Mul", "Erf", "Add", "Mul"], monkeypatch)


ROOT_HALF = np.float32(np.sqrt(0.5))


def erfc(x, slope=ROOT_HALF):
    return jax.lax.erfc(-x * slope)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.float32(0.5) * x * erfc(x, np.float32(0.7071)),
        lambda x: np.float32(0.4) * x * erfc(x),
        lambda x: np.float32(0.5) * (x + 1) * erfc(x),
        lambda x: (np.float32(0.5) * x) * erfc(x) + erfc(x),
        erfc,
    ],
    ids=["slope", "factor", "other operand", "tail used elsewhere", "no product"],
)
def test_what_is_no_gelu(function):
    assert "Erf" not in operators(converted(function))


def test_erf(monkeypatch):
    check(jax.scipy.special.erf, ["Erf"], monkeypatch)


def rational(x, bound, lead):
    """The expansion of ``erf``, with its first bound and its first coefficient to choose."""
    inside = jnp.minimum(jnp.maximum(x, jnp.full(x.shape, -bound, x.dtype)), jnp.full(x.shape, bound, x.dtype))
    square = inside * inside
    above, below = jnp.full(x.shape, lead, x.dtype), jnp.full(x.shape, BELOW[0], x.dtype)
    for each in ABOVE[1:]:
        above = above * square + each
    for each in BELOW[1:]:
        below = below * square + each
    return jnp.minimum(jnp.maximum(inside * above / below, np.float32(-1)), np.float32(1))


@pytest.mark.parametrize(("bound", "lead", "expected"), [(4, ABOVE[0], 1), (3.9, ABOVE[0], 0), (4, 1.01 * ABOVE[0], 0)])
def test_what_is_no_erf(bound, lead, expected):
    assert operators(converted(lambda x: rational(x, bound, lead))).count("Erf") == expected


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_softmax(axis, monkeypatch):
    check(lambda x: jax.nn.softmax(x, axis), ["Softmax"], monkeypatch)


def composed(x, highest, total, base=jnp.exp):
    e = base(x - x.max(highest, keepdims=True))
    return e / e.sum(total, keepdims=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: composed(x, -1, 1),
        lambda x: composed(x, (1, 2), (1, 2)),
        lambda x: composed(x, -1, -1, jnp.exp2),
        lambda x: jnp.exp(x - x.min(-1, keepdims=True)) / jnp.exp(x - x.min(-1, keepdims=True)).sum(-1, keepdims=True),
    ],
    ids=["other axis", "two axes", "other base", "minimum"],
)
def test_what_is_no_softmax(function):
    assert "Softmax" not in operators(converted(function))


def test_rows_without_finite_values_stay_nan():
    model = converted(lambda x: jax.nn.softmax(jnp.where(x > 100, x, -jnp.inf)))
    assert "Softmax" in operators(model)
    assert np.isnan(run(model)).all()
