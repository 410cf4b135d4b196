"""``pkg.mod:callable``: which framework it belongs to, and what is said where it cannot be found."""

import importlib.machinery
import sys

import pytest

from convertkit.plugins import converter_for
from convertkit.references import imported, imports_of, module_file, not_found, python_file

SOUGHT = frozenset({"torch", "jax"})


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Writes modules into a folder that is the current one."""
    monkeypatch.chdir(tmp_path)

    def write(modules):
        for name, text in modules.items():
            file = tmp_path / f"{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return write


IMPORTS = [
    ({"made": "import torch"}, {"torch"}),
    ({"made": "from torch import nn"}, {"torch"}),
    ({"made": "def f():\n    import torch.nn as nn"}, {"torch"}),
    ({"made": "import importlib\nt = importlib.import_module('torch.nn')"}, {"torch"}),
    ({"made": "t = __import__('torch')"}, {"torch"}),
    ({"made": "from nets import Net", "nets": "import torch"}, {"torch"}),
    ({"made": "import lib.nets", "lib/nets": "import torch"}, {"torch"}),
    ({"made": "from lib import nets", "lib/nets": "import torch", "lib/__init__": ""}, {"torch"}),
    (
        {"made": "from lib.a import x", "lib/a": "", "lib/__init__": "from . import b", "lib/b": "import torch"},
        {"torch"},
    ),
    ({"made": "import a", "a": "import b", "b": "import made, torch"}, {"torch"}),
    ({"made": "import torch, a", "a": "import jax"}, {"torch"}),  # the nearest counts
    ({"made": "import a, b", "a": "import torch", "b": "import jax"}, {"torch", "jax"}),
    ({"made": "import os, json, nowhere"}, set()),
    ({"made": "import torch ("}, set()),
]


@pytest.mark.parametrize(("modules", "found"), IMPORTS)
def test_framework_is_that_of_the_nearest_import(here, modules, found):
    here(modules)
    assert imports_of("made:function", SOUGHT) == found


def test_a_file_names_a_module_too(here, tmp_path, monkeypatch):
    here({"lib/nets": "from near import SIZE\nimport torch\nclass Net: pass", "lib/near": "SIZE = 3"})
    assert imports_of("lib/nets.py:Net", SOUGHT) == {"torch"}
    assert converter_for(f"{tmp_path}/lib/nets.py:Net").name == "pytorch"
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = imported("lib/nets.py")
    assert (made.SIZE, imported("lib/nets.py")) == (3, made)


def test_a_file_called_as_a_module_of_python_is_the_file(here, monkeypatch):
    here({"types": "OWN = 1"})
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert imported("types.py").OWN == 1


def test_relative_imports_are_followed(here):
    here(
        {"lib/sub/made": "from ..nets import Net\nfrom .near import y", "lib/nets": "import torch", "lib/sub/near": ""}
    )
    assert imports_of("lib.sub.made:Net", SOUGHT) == {"torch"}


def test_a_factory_beside_its_module_is_a_source(here):
    here({"made": "from nets import Net\ndef small(): return Net(3)", "nets": "import torch"})
    assert converter_for("made:small").name == "pytorch"


def test_modules_of_editable_installs_are_found(here, tmp_path, monkeypatch):
    """Their folder is on no path: an import hook knows it."""
    here({"elsewhere/own/inner": "import torch", "elsewhere/own/__init__": ""})
    folder = tmp_path / "elsewhere" / "own"

    class Hook:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "own":
                return None
            spec = importlib.machinery.ModuleSpec("own", None, origin=str(folder / "__init__.py"), is_package=True)
            spec.submodule_search_locations = [str(folder)]
            return spec

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Hook])
    assert module_file("own") == folder / "__init__.py"
    assert module_file("own.inner") == folder / "inner.py"
    assert imports_of("own.inner:Net", SOUGHT) == {"torch"}


def test_what_is_wrong_with_a_reference_is_said(here):
    here({"nets": "import numpy", "lib/nets": ""})
    assert not_found("nowhere.pt") == "nowhere.pt does not exist"
    assert "no module netz" in not_found("netz:Net")
    assert not_found("netz:Net").endswith("did you mean 'nets'")
    assert "names a framework" in not_found("nets:Net")
    assert "import torch" in not_found("nets:Net")
    assert "neither lib/nets.py nor a module" in not_found("lib/nets.py:Net")
    assert not_found("net.py:Net") == "net.py:Net: there is no file net.py, did you mean 'nets.py'"
    assert "nets:FUNCTION" in python_file(module_file("nets"))
