"""Tests by area: every test is of one, and what is left out of the short runs is known."""

import re
from pathlib import Path

from tests import slow_tests

ROOT = Path(__file__).resolve().parents[2]
OF_NO_AREA = {"tests/board", "tests/conformance"}  # long by nature: run by make test


def test_every_test_is_of_one_area():
    places = [place for area in slow_tests.areas().values() for place in area]
    for file in (ROOT / "tests").rglob("test_*.py"):
        name = file.relative_to(ROOT).as_posix()
        own = [place for place in places if name == place or name.startswith((f"{place}/", place + "_"))]
        of_core = file.parent == ROOT / "tests"
        assert of_core or len(own) == 1 or any(name.startswith(other) for other in OF_NO_AREA), name


def test_areas_are_folders():
    for name, places in slow_tests.areas().items():
        assert all((ROOT / place).is_dir() for place in places if place != "tests/test_"), name


def test_most_slow_tests_are_there():
    """A few may have been renamed since they were measured; then they are run by their area again."""
    names = slow_tests.listed()
    found = 0
    for name in names:
        path, _, function = name.partition("::")
        file = ROOT / path
        found += file.is_file() and (
            not function or re.search(rf"^def {function}\b", file.read_text(), re.M) is not None
        )
    assert found > 0.8 * len(names)


def test_parameters_of_a_slow_function_are_slow():
    slow = frozenset({"tests/a.py::test_x", "tests/b.py"})
    assert slow_tests.is_slow("tests/a.py::test_x[1-2]", slow)
    assert slow_tests.is_slow("tests/b.py::test_y", slow)
    assert not slow_tests.is_slow("tests/a.py::test_xy", slow)


def test_of_a_grid_every_nth_is_run():
    nodes = [f"tests/a.py::test_x[{place}]" for place in range(7)] + ["tests/a.py::test_y[1]", "tests/b.py::test_z"]
    left = slow_tests.left_to_nightly(nodes, {"tests/a.py::test_x": (3, 1), "tests/a.py::test_y": (4, 2)})
    assert {node for node in nodes if node not in left} == {
        "tests/a.py::test_x[1]", "tests/a.py::test_x[4]", "tests/a.py::test_y[1]", "tests/b.py::test_z",
    }  # fmt: skip


def test_a_long_function_is_left_to_the_night():
    seconds = {
        "a.py::test_x": [20.0],
        "a.py::test_y": [15.0],
        "a.py::test_z": [3.0, 1.0, 2.0, 1.0],
        "b.py::test_x": [9.0],
    }
    long = slow_tests.choose_nightly(seconds, but=frozenset({"a.py::test_x"}))
    assert long == {"a.py::test_y": (0, 0), "a.py::test_z": (2, 1), "b.py::test_x": (0, 0)}
    nodes = ["a.py::test_x", "a.py::test_y", *(f"a.py::test_z[{place}]" for place in range(4))]
    assert slow_tests.left_to_nightly(nodes, long) == {"a.py::test_y", "a.py::test_z[0]", "a.py::test_z[2]"}


def test_grids_are_there():
    """A name that moved would run all of its parameters again."""
    for name, (step, first) in slow_tests.shares().items():
        path, _, function = name.partition("::")
        assert f"def {function}(" in (slow_tests.ROOT / path).read_text(), name
        assert 0 <= first < max(step, 1)
