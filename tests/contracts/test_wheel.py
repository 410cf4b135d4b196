"""What is installed: everything once, below ``convertkit`` alone, and it runs from a clean environment."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections import Counter
from pathlib import Path

import pytest

import convertkit

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("converters", "quantization", "targets")
DATA = {".py", ".json", ".toml", ".html", ".css", ".js", ".jinja", ".swift", ".txt", ".typed"}


def copy_of_the_tree(place):
    """What git would carry: builds leave their traces in a copy, never in the checkout."""
    unwanted = shutil.ignore_patterns(
        ".venv*", ".git", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "out*"
    )
    return shutil.copytree(ROOT, place / "tree", symlinks=True, ignore=unwanted)


def build(folder, kind, out):
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(out), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return next(out.iterdir())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel from the tree, the sdist, the wheel from that sdist, the tree, and what that held before."""
    place = tmp_path_factory.mktemp("built")
    tree = copy_of_the_tree(place)
    before = everything(tree)
    straight, sdist = build(tree, "wheel", place / "straight"), build(tree, "sdist", place / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    again = build(next((place / "unpacked").iterdir()), "wheel", place / "again")
    return straight, sdist, again, tree, before


def test_builds_leave_nothing_in_the_tree(built):
    tree, before = built[3], built[4]
    assert everything(tree) == before
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tree.parent, tree],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert everything(tree) == before


def test_editable_installation_leaves_nothing_in_the_tree_and_works(built, tmp_path):
    """What a fresh clone does: make, by the name that pip knows, imported and called by the name convertkit."""
    tree, before = built[3], built[4]
    place = tmp_path / "venv"
    venv.create(place, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "--disable-pip-version-check"]
    others = next(place.glob("lib/*/site-packages")) / "others.pth"
    others.write_text(sysconfig.get_path("purelib") + "\n")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--editable", str(tree)]
    done = subprocess.run([*pip, "install", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert everything(tree) == before
    said = run(place / "bin" / "convertkit", "--version", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    code = "import convertkit, importlib.metadata as m; print(convertkit.__file__, m.version('convertkit-ml'))"
    said = run(place / "bin" / "python", "-P", "-c", code, cwd=tmp_path)
    assert said.stdout.split() == [str(tree / "convertkit" / "__init__.py"), convertkit.__version__]


OLD_PYTHON = """
import os, runpy, sys
sys.version_info, sys.version = (3, 10, 13, "final", 0), "3.10.13 (main)"
os.chdir(sys.argv[1])
sys.path.insert(0, "")
if sys.argv[2] == "install":
    import build_backend
if sys.argv[2] == "import":
    import convertkit
sys.argv[:] = ["-m"]
runpy.run_module("convertkit", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("way", ["install", "import", "run"])
def test_an_old_python_is_refused_in_one_sentence(way, tmp_path):
    done = run(sys.executable, "-c", OLD_PYTHON, ROOT, way, cwd=tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr.strip().splitlines()[-1].endswith("convertkit needs Python 3.11 or newer; this is Python 3.10.13")
    )
    assert way == "import" or len(done.stderr.splitlines()) == 1


def everything(tree):
    """All names below a folder but for what Python caches."""
    return {path.relative_to(tree) for path in tree.rglob("*") if "__pycache__" not in path.parts}


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


def expected_files(tree):
    """Every shippable file below the four folders, by its place in the package."""
    for top in ("convertkit", *PARTS):
        for path in sorted((tree / top).rglob("*")):
            inside = path.relative_to(tree).parts
            linked = top == "convertkit" and inside[1] in PARTS
            if path.is_file() and path.suffix in DATA and "__pycache__" not in inside and not linked:
                yield "/".join(inside if top == "convertkit" else ("convertkit", *inside))


def test_wheel_holds_everything_once(built):
    for wheel in (built[0], built[2]):
        assert max(Counter(names(wheel)).values()) == 1
        code = {name for name in names(wheel) if name.startswith("convertkit/")}
        assert code == set(expected_files(built[3]))


def test_nothing_at_top_level_but_the_package(built):
    for wheel in (built[0], built[2]):
        tops = {name.split("/")[0] for name in names(wheel)}
        assert tops == {"convertkit", next(top for top in tops if top.endswith(".dist-info"))}


def test_wheel_from_sdist_is_the_wheel_from_the_tree(built):
    assert sorted(names(built[0])) == sorted(names(built[2]))


def test_licence_and_readme_travel(built):
    assert any(name.endswith("licenses/LICENSE") for name in names(built[0]))
    with tarfile.open(built[1]) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml"} <= files


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A clean environment with the wheel; third-party packages come from the running one, to be quick."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, symlinks=True, with_pip=False)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(built[2])], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    others = place / "lib" / version / "site-packages" / "others.pth"
    others.write_text(sysconfig.get_path("purelib") + "\n")
    return place


def run(*command, cwd):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_installed_command_answers(installed, tmp_path):
    done = run(installed / "bin" / "convertkit", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "export" in done.stdout


def test_installed_package_is_the_wheel_and_owns_no_common_name(installed, tmp_path):
    for part in PARTS:
        (tmp_path / part).mkdir()
        (tmp_path / part / "__init__.py").write_text("raise RuntimeError('a user has a folder of this name')")
    packages = ", ".join(("convertkit", *(f"convertkit.{part}" for part in PARTS)))
    code = f"import {packages}; print(convertkit.__file__)"
    done = run(installed / "bin" / "python", "-P", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed)
    assert run(installed / "bin" / "python", "-c", code, cwd=tmp_path).returncode == 0


def test_installed_package_exports(installed, tmp_path):
    done = run(installed / "bin" / "python", "-P", ROOT / "tests/contracts/core_alone.py", tmp_path / "x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "proven by the core alone" in done.stdout
