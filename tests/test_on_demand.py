"""Modules that load when they are first used: what a library gets is the real one, whole, and only in our processes."""

import subprocess
import sys
import threading
from types import ModuleType

import pytest

from convertkit.on_demand import on_demand

SIZES = """
import sys
from types import ModuleType
from convertkit.on_demand import on_demand
with on_demand():
    import onnx_ir as ir
    import convertkit.onnx.optimizer
assert "sympy.core" not in sys.modules and "onnx.reference.op_run" not in sys.modules
batch = ir.SymbolicDim("N")
assert ir.Shape(["N", 3])[0] == batch and "sympy.core" not in sys.modules
assert str((batch * 2 + 1).evaluate({"N": 3})) == "7"
assert ir.SymbolicDim("max(N, 4)").evaluate({"N": 9}) == 9
import sympy
assert type(sympy) is ModuleType and isinstance(sympy.Symbol("x"), sympy.Expr)
assert ir.SymbolicDim(sympy.Symbol("x")).value == "x"
import onnx
assert "onnx.reference.op_run" not in sys.modules
load = onnx.reference.ops.load_op("", "Add", 14)
assert load.__name__ == "Add" and onnx.reference is sys.modules["onnx.reference"]
import onnx.reference.ops
assert onnx.reference.__file__ and onnx.reference.ReferenceEvaluator
"""
HOST = """
import sys
before = list(sys.meta_path)
import convertkit
convertkit.export("fixtures/brackets/model.onnx", output=sys.argv[1], progress=False)
from types import ModuleType
assert sys.meta_path == before
assert type(sys.modules["sympy"]) is ModuleType and "sympy.core" in sys.modules
"""
GARBAGE = """
import gc, sys
before = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()
from convertkit.cli import main
main(["export", "fixtures/brackets/model.onnx", "--target", "onnxruntime", "--output", sys.argv[1]])
assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == before
"""


def test_sympy_waits_until_sizes_are_computed():
    subprocess.run([sys.executable, "-c", SIZES], check=True)


def test_a_program_that_imports_convertkit_keeps_its_import_system(tmp_path):
    subprocess.run([sys.executable, "-c", HOST, str(tmp_path / "out")], check=True)


def test_a_program_that_imports_convertkit_keeps_its_garbage_collector(tmp_path):
    subprocess.run([sys.executable, "-c", GARBAGE, str(tmp_path / "out")], check=True)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a package of one module, and forgets it afterwards."""

    def written(text):
        (tmp_path / "seldom_used").mkdir()
        (tmp_path / "seldom_used" / "__init__.py").write_text(text)
        (tmp_path / "seldom_used" / "inner.py").write_text("number = 3\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    yield written
    for name in ("seldom_used", "seldom_used.inner"):
        sys.modules.pop(name, None)


def test_a_module_within_is_imported_without_the_package(module):
    module("raise RuntimeError('loaded')\n")
    with on_demand(["seldom_used"]):
        import seldom_used.inner
    assert sys.modules["seldom_used.inner"].number == 3
    assert seldom_used.__file__.endswith("__init__.py")


def test_the_first_use_loads_and_all_threads_see_all_of_it(module):
    module("import time\nfirst = 1\ntime.sleep(0.3)\nlast = 2\n")
    with on_demand(["seldom_used"]):
        import seldom_used
    found = []
    threads = [threading.Thread(target=lambda: found.append((seldom_used.first, seldom_used.last))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [(1, 2)] * 4
    assert type(seldom_used) is ModuleType


def test_what_cannot_be_loaded_says_so_at_each_use(module):
    module("raise ImportError('half of it is missing')\n")
    with on_demand(["seldom_used"]):
        import seldom_used
    for _ in range(2):
        with pytest.raises(ImportError, match="half of it is missing"):
            seldom_used.anything  # noqa: B018


def test_what_is_imported_later_is_imported_at_once(module):
    module("first = 1\n")
    with on_demand(["seldom_used"]):
        pass
    import seldom_used

    assert vars(seldom_used)["first"] == 1
