"""StableHLO text of any JAX version: read, and run by the source."""

import numpy as np
import pytest

pytest.importorskip("jaxlib.mlir.ir")

import jax
from jax import numpy as jnp

from convertkit.converters.jax.service import JaxService
from convertkit.converters.stablehlo import mlir
from convertkit.converters.stablehlo.older import in_todays_spelling
from convertkit.errors import SourceError

OLD = """
module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3xf32>) -> tensor<4x1xf32> {
    %0 = "stablehlo.broadcast_in_dim"(%arg0) {broadcast_dimensions = dense<1> : tensor<1xi64>}
      : (tensor<3xf32>) -> tensor<2x3xf32>
    %1 = "stablehlo.slice"(%0) {limit_indices = dense<[2, 3]> : tensor<2xi64>, start_indices = dense<1> : tensor<2xi64>,
      strides = dense<[1, 2]> : tensor<2xi64>} : (tensor<2x3xf32>) -> tensor<1x1xf32>
    %2 = stablehlo.constant dense<7.000000e+00> : tensor<f32>
    %3 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = dense<> : tensor<0xi64>}
      : (tensor<f32>) -> tensor<3x1xf32>
    %4 = "stablehlo.concatenate"(%1, %3) {dimension = 0 : i64}
      : (tensor<1x1xf32>, tensor<3x1xf32>) -> tensor<4x1xf32>
    %5 = "stablehlo.reverse"(%4) {dimensions = dense<0> : tensor<1xi64>} : (tensor<4x1xf32>) -> tensor<4x1xf32>
    return %5 : tensor<4x1xf32>
  }
}
"""
"""As JAX 0.4.20 printed it."""


def opened(tmp_path, text: str) -> tuple[JaxService, list[str]]:
    """The service that holds a module, and its inputs' names."""
    path = tmp_path / "program.mlir"
    path.write_text(text)
    service = JaxService()
    told = service.open({"source": str(path), "kind": "stablehlo", "inputs": []}, {}).value
    return service, [name for name, *_ in told["inputs"]]


def special(x):
    """Functions that JAX leaves as operators of CHLO."""
    return jnp.arcsinh(x), jax.scipy.special.digamma(x), jax.scipy.special.erf(x), *jax.lax.top_k(x, 2)


def test_chlo_operators_in_text_are_run(tmp_path):
    x = np.linspace(0.1, 3, 12, dtype=np.float32).reshape(3, 4)
    lowered = jax.jit(special).lower(x)
    assert "chlo.digamma" in lowered.as_text()
    service, (name,) = opened(tmp_path, lowered.as_text())
    results = list(service.run({}, {name: x}).arrays.values())
    for got, want in zip(results, special(x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_text_of_older_versions_is_read(tmp_path):
    service, (name,) = opened(tmp_path, OLD)
    (got,) = service.run({}, {name: np.array([1, 2, 3], np.float32)}).arrays.values()
    np.testing.assert_array_equal(got, np.array([[7], [7], [7], [2]], np.float32))


def test_what_is_wrong_is_said_of_the_text_as_it_stands(tmp_path):
    with pytest.raises(SourceError, match=r"stablehlo\.nothing"):
        opened(tmp_path, OLD.replace('"stablehlo.reverse"', '"stablehlo.nothing"'))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("permutation = dense<[1, 0]> : tensor<2xi64>", "permutation = array<i64: 1, 0>"),
        ("window_reversal = dense<false> : tensor<2xi1>", "window_reversal = array<i1: false, false>"),
        ("padding = dense<0> : tensor<2x2xi64>", "padding = dense<0> : tensor<2x2xi64>"),
        ("value = dense<1> : tensor<2xi64>", "value = dense<1> : tensor<2xi64>"),
    ],
)
def test_only_lists_of_sizes_change_their_spelling(old, new):
    assert in_todays_spelling(old) == new


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/somewhere/nets/model.py:41", "model.py:41"),
        ("/somewhere/convertkit/converters/keras/lower.py:53", ""),
        ("model.py:3", "model.py:3"),
        ("", ""),
    ],
)
def test_an_artifact_names_no_folder_of_this_machine(place, said):
    assert mlir.noted(place) == said
