"""``convertkit cache`` tells what a cache holds, and makes it smaller."""

import json
import os
import time

import jsonschema
import pytest

from convertkit import cached
from convertkit.errors import UsageError
from convertkit.summary import schema
from convertkit.tasks.store import Store
from tests.command_line import here
from tests.tasks.small_tasks import Note


@pytest.fixture
def cache(tmp_path):
    """Three results of 1000 bytes and more; the first was used 50 days ago, the second 5."""
    with Store.at(tmp_path / "cache", 10**9) as store:
        for number, title in enumerate(["quantize", "compile tflite", "quantize"]):
            folder = store.folder(f"{number:064}")
            (folder / "model").write_bytes(bytes(1000 * (number + 1)))
            store.commit(f"{number:064}", folder, Note(title, folder / "model"), Note, title)
    for number, days in enumerate([50, 5, 0]):
        then = time.time() - days * 24 * 3600
        os.utime(tmp_path / "cache" / "results" / "00" / f"{number:064}" / "entry.json", (then, then))
    return tmp_path / "cache"


def told(said):
    assert said.code == 0, said.err
    found = json.loads(said.out)
    jsonschema.validate(found, schema(), cls=jsonschema.Draft202012Validator)
    assert found["command"] == "cache"
    return found["cache"]


def test_show_sums_up_by_what_made_it(cache):
    said = here("cache", "show", "--cache", cache)
    assert said.code == 0
    head, quantize, tflite, total = said.out.splitlines()
    assert head.split() == ["made", "by", "results", "size", "last", "used"]
    assert quantize.split()[:2] == ["quantize", "2"]
    assert tflite.split()[:3] == ["compile", "tflite", "1"]
    assert total.startswith("3 results, ")
    assert total.endswith(f"in {cache}")


def test_the_environment_names_the_cache(cache, monkeypatch):
    monkeypatch.setenv("CONVERTKIT_CACHE", str(cache))
    found = told(here("cache", "show", "--json"))
    assert [entry["title"] for entry in found["entries"]] == ["quantize", "compile tflite", "quantize"]
    assert found["size_bytes"] == sum(entry["size_bytes"] for entry in found["entries"]) > 6000
    assert found["folder"] == str(cache)


def test_prune_by_age(cache):
    said = here("cache", "prune", "--cache", cache, "--older", "30")
    assert said.out.startswith("1 result, 1")
    assert said.out.rstrip().endswith(f"removed from {cache}")
    assert len(told(here("cache", "show", "--cache", cache, "--json"))["entries"]) == 2


def test_prune_to_a_size(cache):
    found = told(here("cache", "prune", "--cache", cache, "--to", "4kB", "--json"))
    assert [len(found["removed"]), len(found["entries"])] == [2, 1]


def test_prune_without_limits_clears_what_killed_runs_left(cache):
    (cache / "tmp" / "killed").mkdir()
    assert not told(here("cache", "prune", "--cache", cache, "--json"))["removed"]
    assert not list((cache / "tmp").iterdir())


def test_show_writes_nothing(cache):
    before = sorted((path, path.stat().st_mtime_ns) for path in cache.rglob("*"))
    here("cache", "show", "--cache", cache)
    assert before == sorted((path, path.stat().st_mtime_ns) for path in cache.rglob("*"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show"], "name the cache with --cache DIR"),
        (["show", "--cache", "{}/nowhere"], "nowhere is not a cache of convertkit"),
        (["prune", "--cache", "{}"], "is not a cache of convertkit"),
        (["prune", "--cache", "{}/cache", "--to", "much"], "--to much: not a size"),
        (["prune", "--cache", "{}/cache", "--older", "-1"], "-1"),
    ],
)
def test_refusals(cache, tmp_path, monkeypatch, words, says):
    monkeypatch.delenv("CONVERTKIT_CACHE", raising=False)
    said = here("cache", *[word.format(tmp_path) for word in words])
    assert said.code == 2
    assert says in said.err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("5", 5), ("500MB", 5 * 10**8), ("1.5 GiB", 3 * 2**29), ("2gb", 2 * 10**9), ("7 B", 7)]
)
def test_sizes(text, size_bytes):
    assert cached.size_of(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 XB", "1e9"])
def test_no_sizes(text):
    with pytest.raises(UsageError, match="not a size"):
        cached.size_of(text)
