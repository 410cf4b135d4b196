"""Compositions put back into ONNX operators: graph, numbers before and after, and what must not match."""

import functools

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import onnx_ir as ir
import onnxruntime
from flax import linen
from jax import export

from convertkit.converters.stablehlo import importer
from convertkit.converters.stablehlo.recognise import recognise
from convertkit.converters.stablehlo.recognise.erf import _ABOVE as ABOVE
from convertkit.converters.stablehlo.recognise.erf import _BELOW as BELOW
from convertkit.onnx.canonical import canonicalize

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


def recurrence(cell, **more):
    """A Flax cell with random weights and biases over time."""
    module = linen.RNN(cell(6, **more))
    variables = jax.tree.map(lambda w: w + 0.1, module.init(jax.random.key(0), X))
    return lambda x: module.apply(variables, x)


@pytest.mark.parametrize(
    ("cell", "operator"),
    [(linen.LSTMCell, "LSTM"), (linen.OptimizedLSTMCell, "LSTM"), (linen.GRUCell, "GRU"), (linen.MGUCell, "GRU")],
)
def test_recurrent_cells(cell, operator, monkeypatch):
    check(recurrence(cell), ["Transpose", operator, "Squeeze", "Transpose"], monkeypatch)


@pytest.mark.parametrize(
    ("function", "states"),
    [
        (recurrence(linen.SimpleCell), 1),
        (recurrence(linen.LSTMCell, gate_fn=jnp.tanh), 2),
        (recurrence(linen.GRUCell, activation_fn=jax.nn.relu), 1),
    ],
    ids=["simple", "other gates", "other activation"],
)
def test_other_cells_stay_loops(function, states, monkeypatch):
    model = converted(function)
    loops = [node for node in model.graph if node.op_type == "Loop"]
    assert [len(node.inputs) for node in loops] == [2 + states]  # the count, the condition and what turns change
    check(function, operators(model), monkeypatch)


def test_a_counter_that_is_no_plain_one_stays_a_state(monkeypatch):
    def doubling(x):
        return jax.lax.while_loop(lambda s: s[0] < 20, lambda s: (s[0] * 2, s[1] + s[0]), (1, x))[1]

    def bounded_by_data(x):
        return jax.lax.while_loop(lambda s: s[0] < s[1].max(), lambda s: (s[0] + 1, s[1] * 0.9), (1.0, x))[1]

    for function in (doubling, bounded_by_data):
        check(function, operators(converted(function)), monkeypatch)
        got, want = run(converted(function)), np.asarray(function(jnp.asarray(X)))
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_what_adds_an_axis_stays_outside(monkeypatch):
    row = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    check(lambda x: normalised(x, two_pass(x), affine=False) + row, ["LayerNormalization", "Add"], monkeypatch)
    weights = np.ones((8, 4), np.float32)
    found = operators(converted(lambda x: x[0] @ weights + row[..., :4]))
    assert found.count("MatMul") == 1
    assert "Gemm" not in found
    assert "Gemm" in operators(converted(lambda x: x[0] @ weights + row[0, 0, 0, :4]))


BUFFER = """
func.func public @main(%x: tensor<3x2xf32>) -> tensor<3x2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %end, %r = stablehlo.while(%i = %zero, %out = %x) : tensor<i32>, tensor<3x2xf32>
    cond {
      %more = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %sum = stablehlo.reduce(SOURCE init: %none) applies stablehlo.add across dimensions = [0] :
        (tensor<3x2xf32>, tensor<f32>) -> tensor<2xf32>
      %row = stablehlo.reshape %sum : (tensor<2xf32>) -> tensor<1x2xf32>
      %new = stablehlo.dynamic_update_slice %out, %row, %i, %zero :
        (tensor<3x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x2xf32>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %new : tensor<i32>, tensor<3x2xf32>
    }
  return %r : tensor<3x2xf32>
}"""


@pytest.mark.parametrize(("source", "states"), [("%x", 0), ("%out", 1)])
def test_a_buffer_that_is_read_while_it_is_written_stays_a_state(source, states):
    model = importer.to_onnx(BUFFER.replace("SOURCE", source))
    loop = next(node for node in model.graph if node.op_type == "Loop")
    assert len(loop.inputs) == 2 + states
    x = X[0, :3, :2]
    want = x.copy()
    for row in range(3):
        want[row] = (want if states else x).sum(0)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(None, {session.get_inputs()[0].name: x})[0], want, rtol=1e-6)


def free(function, shape, dtype):
    """Converted with free sizes, which the canonical form has named."""
    spec = jax.ShapeDtypeStruct(export.symbolic_shape(shape), dtype)
    exported = export.export(jax.jit(function), platforms=["cpu"])(spec)
    return recognise(canonicalize(importer.to_onnx(exported.mlir_module_serialized)))


def agrees(function, model, *arrays, within=0.0):
    """Whether ONNX Runtime gives what JAX gives for each of these."""
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    for array in arrays:
        (got,) = session.run(None, {session.get_inputs()[0].name: array})
        np.testing.assert_allclose(got, np.asarray(function(jnp.asarray(array))), rtol=0, atol=within)


TIES = np.random.default_rng(5).integers(-2, 3, (4, 7))
HOLES = np.where(TIES == 1, np.nan, np.where(TIES == 2, np.inf, -np.inf))
ARG = {"argmax": (jnp.argmax, "ArgMax"), "argmin": (jnp.argmin, "ArgMin")}


@pytest.mark.parametrize("shape", ["b, 7", "b, n"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("direction", ARG)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_the_place_of_an_extreme(dtype, direction, axis, shape):
    function, operator = ARG[direction]
    model = free(lambda x: function(x, axis), shape, dtype)
    found = operators(model)
    assert found[0] == operator
    assert len(found) == (9 if dtype == "float32" else 2)  # floats: the first NaN wins over all
    arrays = [TIES.astype(dtype), np.zeros((3, 7), dtype)]
    if dtype == "float32":
        arrays += [HOLES.astype(dtype), np.full((2, 7), -np.inf, dtype), np.full((2, 7), np.inf, dtype)]
    agrees(lambda x: function(x, axis), model, *arrays)


def places(x, start=-np.inf, first=0, tie=jnp.less, missing=jnp.not_equal):
    """An argmax along the last axis with everything about it to choose."""

    def chosen(a, b):
        wins = (a[0] > b[0]) | missing(a[0], a[0])
        index = wins | ((a[0] == b[0]) & tie(a[1], b[1]))
        return jnp.where(wins, a[0], b[0]), jnp.where(index, a[1], b[1])

    counted = jax.lax.broadcasted_iota(np.int32, x.shape, 1)
    return jax.lax.reduce((x, counted), (np.float32(start), np.int32(first)), chosen, (1,))[1]


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (places, ["ArgMax"] * 2),
        (functools.partial(places, start=0.5), []),
        (functools.partial(places, first=3), []),
        (functools.partial(places, tie=jnp.greater), []),
        (functools.partial(places, missing=jnp.less), []),
        (lambda x: places(x[:, ::-1])[::-1], ["ArgMax"] * 2),
    ],
    ids=[
        "argmax",
        "a start that can win",
        "another first index",
        "last of equals",
        "not asked for NaN",
        "reversed values",
    ],
)
def test_what_is_no_place_of_an_extreme(function, operator):
    model = free(function, "b, 7", "float32")
    assert [each for each in operators(model) if each.startswith("Arg")] == operator
    agrees(function, model, np.maximum(TIES, -1).astype("f"), -np.abs(TIES).astype("f"))


BATCHES = [np.random.default_rng(batch).standard_normal((batch, 5, 8)).astype(np.float32) for batch in (1, 2, 7)]


@pytest.mark.parametrize(
    ("cell", "operator"),
    [(linen.LSTMCell, "LSTM"), (linen.OptimizedLSTMCell, "LSTM"), (linen.GRUCell, "GRU"), (linen.MGUCell, "GRU")],
)
def test_recurrent_cells_with_a_free_batch(cell, operator):
    model = free(recurrence(cell), "b, 5, 8", "float32")
    assert operators(model) == ["Transpose", operator, "Squeeze", "Transpose"]
    agrees(recurrence(cell), model, *BATCHES, within=2e-6)


def test_a_free_batch_begins_where_it_is_told():
    module = linen.RNN(linen.GRUCell(6))
    variables = jax.tree.map(lambda w: w + 0.1, module.init(jax.random.key(0), X))

    def from_data(x):
        return module.apply(variables, x, initial_carry=x[:, 0, :6])

    model = free(from_data, "b, 5, 8", "float32")
    (gru,) = [node for node in model.graph if node.op_type == "GRU"]
    assert gru.inputs[5] is not None
    agrees(from_data, model, *BATCHES, within=2e-6)


@pytest.mark.parametrize(
    "function",
    [
        recurrence(linen.SimpleCell),
        recurrence(linen.LSTMCell, gate_fn=jnp.tanh),
        recurrence(linen.GRUCell, activation_fn=jax.nn.relu),
    ],
    ids=["simple", "other gates", "other activation"],
)
def test_other_cells_stay_loops_with_a_free_batch(function):
    model = free(function, "b, 5, 8", "float32")
    assert [node.op_type for node in model.graph if node.op_type in ("LSTM", "GRU", "Loop")] == ["Loop"]
    agrees(function, model, *BATCHES, within=2e-6)


def test_a_window_that_moves_in_a_free_size_stays_inside():
    def window(x):
        return jax.lax.dynamic_slice(x, (x[0, 0, 0].astype(int), 2, -3), (1, 3, 8))

    model = free(window, "b, 5, 8", "float32")
    agrees(window, model, *(array * 9 for array in BATCHES))


GROWING = """
func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %first = stablehlo.constant dense<0> : tensor<1xi32>
  %step = stablehlo.constant dense<1> : tensor<1xi32>
  %more = stablehlo.constant dense<9.0> : tensor<1xf32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %size = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %end, %r = stablehlo.while(%i = %zero, %s = %x) : tensor<i32>, tensor<?xf32>
    cond {
      %going = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %going : tensor<i1>
    } do {
      %cut = stablehlo.real_dynamic_slice %s, %first, %size, %step :
        (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
      %long = stablehlo.concatenate %more, %cut, dim = 0 : (tensor<1xf32>, tensor<?xf32>) -> tensor<?xf32>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %long : tensor<i32>, tensor<?xf32>
    }
  return %r : tensor<?xf32>
}"""


def test_the_size_of_a_state_that_grows_is_not_what_it_was():
    model = importer.to_onnx(GROWING)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: np.arange(4, dtype=np.float32)})
    assert got.tolist() == [9, 9, 9, 0, 1]


TABLE = np.random.default_rng(8).standard_normal((10, 4)).astype(np.float32)
NUMBERS = [np.array([[0, 3, 9, 10, 11, -1, -10, -11]], np.int32), np.arange(-12, 12, dtype=np.int32).reshape(3, 8)]


@pytest.mark.parametrize(
    ("mode", "count"), [("clip", 3), ("fill", 11), (None, 11)], ids=["clip", "fill", "what jnp.take does"]
)
def test_rows_of_a_table_by_number(mode, count):
    """Numbers out of range are moved inside, or their rows are NaN; no node only moves an axis there and back."""

    def rows(x):
        return jnp.take(TABLE, x, axis=0, mode=mode)

    model = free(rows, "b, 8", "int32")
    found = operators(model)
    assert "Gather" in found
    assert len(found) == count
    agrees(rows, model, *NUMBERS)


def test_one_hot_stays_a_comparison():
    """ONNX ``OneHot`` counts negative numbers from the end, ``jax.nn.one_hot`` gives zeros for them."""

    def ones(x):
        return jax.nn.one_hot(x, 10)

    model = free(ones, "b, 8", "int32")
    assert operators(model) == ["Reshape", "Equal", "Cast"]
    agrees(ones, model, *NUMBERS)


def test_a_recurrence_over_two_directions_has_no_loop_with_a_free_batch():
    both = linen.Bidirectional(linen.RNN(linen.OptimizedLSTMCell(6)), linen.RNN(linen.OptimizedLSTMCell(6)))
    model = linen.Sequential([both, linen.RNN(linen.OptimizedLSTMCell(4))])
    variables = jax.tree.map(lambda w: w + 0.1, model.init(jax.random.key(0), X))
    found = free(lambda x: model.apply(variables, x), "b, 5, 8", "float32")
    assert (operators(found).count("LSTM"), operators(found).count("Loop")) == (3, 0)
    agrees(lambda x: model.apply(variables, x), found, *BATCHES, within=2e-6)
