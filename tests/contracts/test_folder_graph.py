"""Arrows between the folders of a tree run one way, imports inside functions included."""

from __future__ import annotations

import graphlib
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

TREES = ("convertkit.converters.pytorch", "convertkit.quantization")
"""Packages whose folders are held to this; files that lie in a package itself are a folder of their own."""
_OWN = "."


def _load_source_tree():
    path = Path(__file__).with_name("source_tree.py")
    spec = importlib.util.spec_from_file_location("source_tree", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["source_tree"] = module
    spec.loader.exec_module(module)
    return module


SOURCES = _load_source_tree()
IMPORTS = {name: {each.module for each in module.imports} for name, module in SOURCES.modules().items()}


def folder_of(name: str, tree: str, folders: Iterable[str]) -> str:
    """The folder of ``tree`` in which a module lies."""
    first = name.removeprefix(f"{tree}.").partition(".")[0]
    return first if f"{tree}.{first}" in folders else _OWN


def arrows(tree: str, imports: Mapping[str, Iterable[str]], folders: Iterable[str]) -> dict[str, dict[str, set[str]]]:
    """Which folder of ``tree`` imports which others, and the modules that do: ``{importer: {imported: modules}}``."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, imported in imports.items():
        for each in imported:
            if name.startswith(f"{tree}.") and each.startswith(f"{tree}."):
                ends = folder_of(name, tree, folders), folder_of(each, tree, folders)
                if ends[0] != ends[1]:
                    found[ends[0]][ends[1]].add(name)
    return found


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Folders that import each other in a circle, empty where there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("tree", TREES)
def test_arrows_between_folders_run_one_way(tree):
    graph = arrows(tree, IMPORTS, SOURCES.folders())
    assert len(graph) > 1, "the tree has folders"
    found = circle(graph)
    importers = {f"{b} -> {a}": sorted(graph[b][a]) for a, b in pairwise(found)}
    assert not found, importers


def test_a_circle_is_found():
    folders = {"p", "p.a", "p.b"}
    there = {"p.a.one": {"p.b.two"}, "p.b.two": {"json"}, "p.top": {"p.a.one"}}
    assert not circle(arrows("p", there, folders))
    assert circle(arrows("p", {**there, "p.b.three": {"p.a.one"}}, folders))
    assert circle(arrows("p", {**there, "p.b.three": {"p.top"}}, folders))
