"""Compositions put back into ONNX operators: graph, numbers before and after, and what must not match."""

import functools

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from flax import linen

from convertkit.converters.stablehlo.recognise import recognise
from convertkit.converters.stablehlo.recognise.erf import _ABOVE as ABOVE
from convertkit.converters.stablehlo.recognise.erf import _BELOW as BELOW
from convertkit.onnx.canonical import canonicalize
from tests.converters.stablehlo.recognition import X, check, converted, operators, run


def test_gelu(monkeypatch):
    check(lambda x: jax.nn.gelu(x, approximate=False), ["Gelu"], monkeypatch)


def test_log_softmax(monkeypatch):
    check(lambda x: jax.nn.log_softmax(x, axis=1), ["LogSoftmax"], monkeypatch)


def test_softplus():
    model = recognise(canonicalize(converted(jax.nn.softplus)))
    assert operators(model) == ["Softplus"]
    np.testing.assert_allclose(run(model), np.asarray(jax.nn.softplus(X)), rtol=1e-6)


def test_another_base_is_no_softplus():
    model = recognise(canonicalize(converted(lambda x: jnp.logaddexp(x, 0.5))))
    assert "Softplus" not in operators(model)


def attention(x):
    """Its softmax runs over an array with more axes of size 1 than the one whose maximum it takes."""
    parts = [x[:, :, None, at : at + 4] for at in (0, 2, 4)]
    return jax.nn.dot_product_attention(*parts)


def test_the_softmax_of_attention():
    found = operators(converted(attention))
    assert [each for each in found if each not in ("Slice", "Reshape", "Transpose")] == [
        "MatMul",
        "Mul",
        "Softmax",
        "MatMul",
    ]


def shifted_by_another_axis(x):
    shifted = x - x.max(2, keepdims=True)
    return shifted - jnp.log(jnp.exp(shifted).sum(1, keepdims=True))


def test_a_sum_over_another_axis_is_no_log_softmax():
    assert "LogSoftmax" not in operators(converted(shifted_by_another_axis))


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


SCALE, SHIFT = (np.random.default_rng(number).uniform(0.5, 2, 8).astype(np.float32) for number in (1, 2))


def normalised(x, variance, affine=True, inverse=jax.lax.rsqrt):
    result = (x - x.mean(-1, keepdims=True)) * inverse(variance + np.float32(1e-5))
    return result * SCALE + SHIFT if affine else result


def fast_variance(x):
    return jnp.maximum(0, (x * x).mean(-1, keepdims=True) - jnp.square(x.mean(-1, keepdims=True)))


def two_pass(x):
    return x.var(-1, keepdims=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: normalised(x, fast_variance(x)),
        lambda x: normalised(x, two_pass(x)),
        lambda x: normalised(x, two_pass(x), affine=False),
        lambda x: normalised(x, two_pass(x), inverse=lambda v: 1 / jnp.sqrt(v)),
        lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(two_pass(x) + np.float32(1e-5)) * SCALE + SHIFT,
        lambda x: linen.LayerNorm().apply({"params": {"scale": SCALE, "bias": SHIFT}}, x),
        lambda x: jax.nn.standardize(x, epsilon=1e-5),
    ],
    ids=["fast variance", "two passes", "no affine part", "reciprocal", "quotient", "flax", "jax.nn"],
)
def test_layer_norm(function, monkeypatch):
    check(function, ["LayerNormalization"], monkeypatch)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5),
        lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5),
        lambda x: normalised(x, fast_variance(x) * 2),
        lambda x: normalised(x, two_pass(x + x[:, ::-1])),
        lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(two_pass(x) + SCALE),
    ],
    ids=["inner axis", "no deviation", "twice the variance", "of something else", "epsilons"],
)
def test_what_is_no_layer_norm(function):
    assert "LayerNormalization" not in operators(converted(function))


def test_elementary_functions(monkeypatch):
    check(jax.nn.silu, ["Sigmoid", "Mul"], monkeypatch)
    check(lambda x: x.mean(-1), ["ReduceMean"], monkeypatch)
    check(lambda x: jax.nn.gelu(x, approximate=True), ["Gelu"], monkeypatch)
    assert "ReduceMean" not in operators(converted(lambda x: x.sum(-1) / 7))
    assert "Sigmoid" not in operators(converted(lambda x: 1 / (2 + jnp.exp(-x))))


KERNEL = np.random.default_rng(6).standard_normal((3, 8, 4)).astype(np.float32)


def normalised_convolution(x):
    """A convolution with batch normalisation in inference, channels last."""
    y = jax.lax.conv_general_dilated(x, KERNEL, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))
    return jax.nn.relu((y - SHIFT[:4]) / SCALE[4:] * SCALE[:4] + SHIFT[4:])


def test_batch_normalisation_becomes_part_of_its_convolution(monkeypatch):
    check(normalised_convolution, ["Transpose", "Conv", "Relu", "Transpose"], monkeypatch)


def test_a_scale_that_varies_in_space_stays(monkeypatch):
    spread = np.arange(1, 6, dtype=np.float32)[:, None]
    expected = ["Transpose", "Conv", "Mul", "Transpose"]
    convolution = functools.partial(
        jax.lax.conv_general_dilated,
        rhs=KERNEL,
        window_strides=(1,),
        padding="SAME",
        dimension_numbers=("NHC", "HIO", "NHC"),
    )
    check(lambda x: convolution(x) * spread, expected, monkeypatch)


def test_transposes_meet_their_inverses(monkeypatch):
    def channels(x):
        return jnp.transpose(x, (0, 2, 1))

    check(lambda x: channels(jax.nn.relu(channels(x) * 2)), ["Mul", "Relu"], monkeypatch)
    check(lambda x: channels(jnp.tanh(channels(x)) + channels(x * 2)), ["Tanh", "Mul", "Add"], monkeypatch)
    check(lambda x: channels(x).sum(1), ["ReduceSum"], monkeypatch)

    def turned(x):
        return jnp.transpose(jnp.tanh(jnp.transpose(x, (1, 2, 0))), (1, 0, 2))

    check(turned, ["Tanh", "Transpose"], monkeypatch)
    kept = operators(converted(lambda x: jnp.cumsum(channels(x), 1)))
    assert kept[0] == "Transpose"


def test_attention_has_no_more_transposes_than_its_heads_need(monkeypatch):
    module = linen.MultiHeadDotProductAttention(2)
    variables = jax.tree.map(lambda w: w + 0.1, module.init(jax.random.key(0), X))
    found = operators(converted(lambda x: module.apply(variables, x)))
    assert found.count("Transpose") == 4
    assert found.count("Reshape") == 4
    check(lambda x: module.apply(variables, x), found, monkeypatch)


def test_what_adds_an_axis_stays_outside(monkeypatch):
    row = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    check(lambda x: normalised(x, two_pass(x), affine=False) + row, ["LayerNormalization", "Add"], monkeypatch)
    weights = np.ones((8, 4), np.float32)
    found = operators(converted(lambda x: x[0] @ weights + row[..., :4]))
    assert found.count("MatMul") == 1
    assert "Gemm" not in found
    assert "Gemm" in operators(converted(lambda x: x[0] @ weights + row[0, 0, 0, :4]))


def test_stored_weights_stand_on_the_right_of_products():
    """As ``vmap`` writes the layers of Equinox they stand on the left, where neither pruning nor integers find them."""
    draw = np.random.default_rng(4)
    first, second = (draw.standard_normal(shape, np.float32) for shape in ((6, X.shape[-1]), (3, 6)))

    def network(x):
        return jax.vmap(lambda row: second @ jax.nn.relu(first @ row + 0.5) - 1)(x[0])

    model = canonicalize(converted(network))
    products = [node for node in model.graph if node.op_type in ("MatMul", "Gemm")]
    assert [node.inputs[1].const_value.shape for node in products] == [first.T.shape, second.T.shape]
    assert "Transpose" not in operators(model)
    np.testing.assert_allclose(run(model), np.asarray(network(X)), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("spec", ["oij,bjc->oibc", "jo,jb->ob", "ij,j->i", "j,jb->b", "oj,bcj->obc", "obj,bj->ob"])
def test_a_product_of_stored_weights_computes_the_same_from_the_left(spec):
    sizes = {"o": 2, "i": 3, "j": 4, "b": 5, "c": 3}
    left, right = spec.split("->")[0].split(",")
    weights = np.random.default_rng(5).standard_normal([sizes[each] for each in left], np.float32)
    given = [sizes[each] for each in right]

    def product(x):
        return jnp.einsum(spec, weights, x.reshape(-1)[: np.prod(given)].reshape(given))

    model = canonicalize(converted(product))
    np.testing.assert_allclose(run(model), np.asarray(product(X)), rtol=1e-5, atol=1e-5)
