"""What is told where no route from a model to ONNX was accepted."""

from __future__ import annotations

from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.routes.attempts import Attempt, defeat
from convertkit.errors import ParityError, Unsupported


def _attempt(
    route: str, failure: str, *, mismatch: bool = False, location: str = "", line: str | None = None
) -> Attempt:
    unknown = None if line is None else {"reason": failure, "subject": route, "location": line, "ways_out": ["--a"]}
    return Attempt(route, True, 0.1, failure=failure, mismatch=mismatch, location=location, unknown=unknown)


def test_numbers_that_differ_are_exit_3_whatever_stopped_other_routes() -> None:
    told = defeat([_attempt("first", "no such operator", line=""), _attempt("second", "off by 1", mismatch=True)])
    assert isinstance(told, ParityError)
    assert "tried first: no such operator" in str(told)
    assert "tried second: off by 1" in str(told)
    assert "Python branches" not in str(told)


def test_integers_of_unknown_range_are_told_as_a_way_out() -> None:
    wrong, told = _attempt("first", "NaN", mismatch=True), defeat([_attempt("first", "NaN", mismatch=True)])
    assert "--input" not in str(told)
    told = defeat([wrong], untold=[Leaf("padding", "padding", ("N", 4), "int64")])
    assert str(told).endswith("try   --input 'padding::int64[0,M)' with what it may be")


def test_a_path_that_a_trace_loses_is_the_cause_where_traces_alone_are_wrong() -> None:
    wrong = [_attempt(route, "off by 1", mismatch=True) for route in ("trace-replay", "trace")]
    assert "leave one path in a trace" in str(defeat([_attempt("torch.export", "refused"), *wrong]))
    assert "leave one path" not in str(defeat([_attempt("torch.export", "off by 1", mismatch=True), *wrong]))


def test_of_operators_that_are_unknown_the_one_with_a_line_is_told() -> None:
    told = defeat([_attempt("first", "unknown", line=""), _attempt("second", "unknown, too", line="model.py:3")])
    assert isinstance(told, Unsupported)
    assert (told.subject, told.location, told.ways_out) == ("second", "model.py:3", ("--a",))
    told = defeat([_attempt("first", "unknown", line=""), _attempt("second", "another failure")])
    assert isinstance(told, Unsupported)
    assert told.subject == "first"


def test_else_each_route_is_told_with_the_first_line() -> None:
    told = defeat([_attempt("first", "a"), _attempt("second", "b", location="model.py:7")])
    assert isinstance(told, Unsupported)
    assert told.location == "model.py:7"
    assert "tried first: a" in str(told)
    assert "tried second: b" in str(told)
