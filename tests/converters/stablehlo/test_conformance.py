"""The openxla testdata through the whole command: nothing is wrong, and what is refused has its reason."""

import pytest

pytest.importorskip("jaxlib.mlir.ir")

from tests.converters.stablehlo.conformance import outcome, run

EVERY = 25
LEAST = 0.97
"""Share of files delivered and right.  The rest give the same for every generated input: sign, isfinite, x != y."""


@pytest.mark.case
def test_a_sample_is_right(cases):
    paths = sorted((cases / "stablehlo-testdata").glob("*.mlir"))[::EVERY]
    results = [outcome(path) for path in paths]
    assert not [detail for state, detail in results if state == "wrong"]
    assert [state for state, _ in results].count("right") >= LEAST * len(results) - 1


@pytest.mark.case
def test_chlo_operators_are_run_by_the_source(cases):
    """Text keeps them (``jax.jit(f).lower(x).as_text()``); StableHLO's own serialization does not."""
    paths = sorted((cases / "stablehlo-testdata").glob("*_chlo.mlir"))[::12]
    assert [outcome(path) for path in paths] == [("right", "")] * len(paths)


@pytest.mark.case
@pytest.mark.nightly
def test_the_whole_suite(cases):
    results = run(sorted((cases / "stablehlo-testdata").glob("*.mlir")))
    assert not {name: result for name, result in results.items() if result[0] == "wrong"}
    assert [state for state, _ in results.values()].count("right") >= LEAST * len(results)
