"""Recurrences and other loops of JAX: what becomes one operator, and what must stay a loop."""

import importlib
import sys

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import onnx_ir as ir
import onnxruntime
from flax import linen

from convertkit.converters.stablehlo import importer
from tests.converters.stablehlo.recognition import X, agrees, check, converted, free, operators, run


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


def test_a_plain_cell(monkeypatch):
    check(recurrence(linen.SimpleCell), ["Transpose", "RNN", "Squeeze", "Transpose"], monkeypatch, within=2e-6)
    relu = recurrence(linen.SimpleCell, activation_fn=jax.nn.relu)
    check(relu, ["Transpose", "RNN", "Squeeze", "Transpose"], monkeypatch, within=2e-6)


KERAS = {
    "LSTM": ("LSTM", {}),
    "LSTM, backward": ("LSTM", {"go_backwards": True, "return_sequences": True}),
    "GRU": ("GRU", {"return_sequences": True}),
    "GRU, backward": ("GRU", {"go_backwards": True, "return_sequences": True}),
    "GRU, last state": ("GRU", {}),
    "GRU without bias": ("GRU", {"use_bias": False}),
    "GRU, reset before the product": ("GRU", {"reset_after": False, "return_sequences": True}),
    "RNN": ("SimpleRNN", {"return_sequences": True}),
    "RNN with relu, backward": ("SimpleRNN", {"activation": "relu", "go_backwards": True}),
}


@pytest.mark.parametrize("sizes", ["2, 5, 8", "N, 5, 8"], ids=["fixed batch", "dynamic batch"])
@pytest.mark.parametrize("name", [*KERAS, "both ways"])
def test_layers_of_keras(name, sizes, monkeypatch):
    """Keras on JAX multiplies a GRU's inputs in front of the loop, and reads from the end what goes backwards."""
    function, kind = keras_layer(name)
    model = free(function, sizes, np.float32)
    assert {"Loop", "Scan"}.isdisjoint(operators(model))
    assert operators(model).count(kind) == (2 if name == "both ways" else 1)
    assert operators(model).count("MatMul") == 0
    agrees(function, model, X, within=1e-5)


def keras_layer(name):
    """A layer of Keras as a function of JAX, and the operator that it is; every number of it counts."""
    script = jax_keras()
    layers = script.layers
    if name == "both ways":
        layer, kind = layers.Bidirectional(layers.GRU(6, return_sequences=True)), "GRU"
    else:
        kind, options = KERAS[name]
        layer = getattr(layers, kind)(6, **options)
    layer.build(X.shape)
    rng = np.random.default_rng(5)
    values = [rng.standard_normal(each.shape).astype(np.float32) * 0.4 for each in layer.trainable_variables]
    fixed = [each.value for each in layer.non_trainable_variables]
    return lambda x: layer.stateless_call(values, fixed, x)[0], kind.replace("SimpleRNN", "RNN")


def jax_keras():
    """Keras on JAX, imported anew where another test of this process has it on TensorFlow."""
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "jax":
        for name in [name for name in sys.modules if name.partition(".")[0] == "keras"]:
            del sys.modules[name]
        keras = importlib.import_module("keras")
    assert keras.backend.backend() == "jax"
    return keras


@pytest.mark.parametrize(
    ("function", "states"),
    [
        (recurrence(linen.SimpleCell, activation_fn=jnp.sin), 1),
        (recurrence(linen.LSTMCell, gate_fn=jnp.sin), 2),
        (recurrence(linen.GRUCell, activation_fn=jnp.sin), 1),
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
        recurrence(linen.SimpleCell, activation_fn=jnp.sin),
        recurrence(linen.LSTMCell, gate_fn=jnp.sin),
        recurrence(linen.GRUCell, activation_fn=jnp.sin),
    ],
    ids=["simple", "other gates", "other activation"],
)
def test_other_cells_stay_loops_with_a_free_batch(function):
    model = free(function, "b, 5, 8", "float32")
    assert [node.op_type for node in model.graph if node.op_type in ("LSTM", "GRU", "Loop")] == ["Loop"]
    agrees(function, model, *BATCHES, within=2e-6)
    # Rows of a size that only the run knows cannot be collected by every target: they go into a buffer.
    loop = next(node for node in model.graph if node.op_type == "Loop")
    assert len(loop.outputs) == len(loop.inputs) - 2


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


def test_a_recurrence_over_two_directions_has_no_loop_with_a_free_batch():
    both = linen.Bidirectional(linen.RNN(linen.OptimizedLSTMCell(6)), linen.RNN(linen.OptimizedLSTMCell(6)))
    model = linen.Sequential([both, linen.RNN(linen.OptimizedLSTMCell(4))])
    variables = jax.tree.map(lambda w: w + 0.1, model.init(jax.random.key(0), X))
    found = free(lambda x: model.apply(variables, x), "b, 5, 8", "float32")
    assert (operators(found).count("LSTM"), operators(found).count("Loop")) == (3, 0)
    agrees(lambda x: model.apply(variables, x), found, *BATCHES, within=2e-6)
