"""The openxla testdata: nothing is wrong, and what cannot be right is refused."""

import pytest

pytest.importorskip("jaxlib.mlir.ir")

from tests.converters.stablehlo.conformance import outcome, run, summary

EVERY = 25


@pytest.mark.case
def test_a_sample_is_right(cases):
    paths = sorted((cases / "stablehlo-testdata").glob("*.mlir"))[::EVERY]
    bad = {path.name: result for path in paths if (result := outcome(path))[0] != "right"}
    assert not bad


@pytest.mark.case
@pytest.mark.nightly
def test_the_whole_suite(cases):
    results = run(sorted((cases / "stablehlo-testdata").glob("*.mlir")))
    assert not {name: result for name, result in results.items() if result[0] in ("wrong", "failed")}
    for title, _, by_file, by_operator, _ in summary(results):
        assert min(by_file, by_operator) >= (0.95 if title == "real" else 0.7)
