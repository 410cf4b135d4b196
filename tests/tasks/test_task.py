"""Keys: what makes two tasks one, and what tells them apart."""

import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from importlib import metadata

import pytest

from convertkit.tasks import versions
from convertkit.tasks.task import Keys, Task, key
from tests.tasks.small_tasks import Say


def test_keys_are_the_same_in_every_process():
    code = """
from tests.tasks.small_tasks import Say
from convertkit.tasks.task import key
print(key(Say("top", (Say("a"),), "x")))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(said) == 1
    assert len(said.pop().strip()) == 64


@pytest.mark.parametrize(
    "other",
    [
        Say("b", (Say("a"),)),
        Say("top", (Say("a"),), "option"),
        Say("top", (Say("a", option="x"),)),
        Say("top", (Say("a"), Say("a"))),
        Say("top"),
    ],
    ids=["name", "option", "need's option", "one need more", "no need"],
)
def test_all_that_decides_is_in_the_key(other):
    assert key(other) != key(Say("top", (Say("a"),)))


def test_what_decides_nothing_is_not_in_the_key():
    assert key(Say("a", bytes_held=5, seconds=1.0)) == key(Say("a"))


class Whisper(Say):
    __slots__ = ()


def test_the_class_is_in_the_key():
    assert key(Whisper("a")) != key(Say("a"))


def test_without_a_key_what_needs_it_has_none():
    assert key(Say("top", (Say("mid", (Say("mine", is_keyed=False),)),))) is None


def test_the_code_is_in_the_key(monkeypatch):
    before = key(Say("a"))
    monkeypatch.setattr("convertkit.tasks.task.code_version", lambda package: "another")
    assert key(Say("a")) != before


def test_a_plugins_code_is_in_the_key(monkeypatch):
    class OfPlugin(Say):
        __slots__ = ()
        packages = ("strange",)

    versions = {"strange": "1"}
    monkeypatch.setattr("convertkit.tasks.task.code_version", lambda package: versions.get(package, "ours"))
    before = key(OfPlugin("a"))
    versions["strange"] = "2"
    assert key(OfPlugin("a")) != before


def test_keys_of_one_run_do_not_ask_for_the_code(monkeypatch):
    monkeypatch.setattr("convertkit.tasks.task.code_version", lambda package: pytest.fail("it was asked"))
    assert Keys(lasting=False).of(Say("a")) != Keys(lasting=False).of(Say("b"))


def test_every_file_and_library_is_in_the_code_version(tmp_path, monkeypatch):
    package = tmp_path / "tiny_package_of_a_test"
    (package / "below").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "below" / "numbers.json").write_text("1")
    (package / "notes.txt").write_text("1")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__(package.name)
    version = versions.code_version.__wrapped__
    before = version(package.name)
    assert version(package.name) == before != version()
    (package / "notes.txt").write_text("2")
    assert version(package.name) == before
    (package / "below" / "numbers.json").write_text("2")
    assert version(package.name) != before
    told = tmp_path / "a_library-1.dist-info" / "METADATA"
    monkeypatch.setattr(versions, "LIBRARIES", ("a-library",))
    found = [version()]
    told.parent.mkdir()
    for number in ("1.0", "1.0.post1"):
        told.write_text(f"Metadata-Version: 2.1\nName: a-library\nVersion: {number}\n\nVersion: 7 is old.\n")
        found.append(version())
    assert len(set(found)) == 3


@pytest.mark.parametrize("library", versions.LIBRARIES)
def test_versions_are_what_the_metadata_say(library):
    try:
        version = metadata.version(library)
    except metadata.PackageNotFoundError:
        version = "absent"
    assert versions._version(library) == version


def test_the_symlinked_trees_are_part_of_our_code():
    places = {place for place, _ in versions._files("convertkit")}
    assert {"tasks/task.py", "targets/tflite/__init__.py", "converters/onnx/__init__.py"} <= places
    assert {"targets/android/templates/Model.kt.jinja", "report/page.html"} <= places, "artifacts hold what they say"
    assert not [place for place in places if "__pycache__" in place]


def test_the_code_version_imports_no_library():
    code = "import sys, convertkit; from convertkit.tasks.versions import code_version; code_version()"
    code += "; print(sorted({'numpy', 'onnx', 'torch', 'jax', 'tensorflow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"[]"


def test_what_json_does_not_hold_is_named():
    @dataclass(frozen=True, slots=True, eq=False)
    class Odd(Say):
        def decides(self):
            return {"where": {1, 2}}

    with pytest.raises(TypeError, match=r"Odd.decides\(\) holds what JSON does not"):
        key(Odd("a"))


def test_tasks_go_through_pipes():
    task = Say("top", (Say("a"),), "x", alone=True)
    again = pickle.loads(pickle.dumps(task))
    assert key(again) == key(task)
    assert again.alone
    assert not Say("a").alone


def test_each_key_is_made_once():
    """A graph of 40 diamonds has 2**40 paths."""
    top = Say("0")
    for number in range(40):
        top = Say(str(number), (top, top))
    began = time.monotonic()
    keys = Keys()
    assert keys.of(top) == keys.of(replace(top))
    assert time.monotonic() - began < 5


def test_a_task_says_what_it_must():
    with pytest.raises(TypeError, match="abstract"):
        Task()
