"""What the repository and the package consist of."""

import re
import subprocess
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from convertkit import errors

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    ".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "bench", "build_backend.py", "ci",
    "constraints.txt", "converters", "convertkit", "docs", "examples", "fixtures", "mkdocs.yml", "pyproject.toml",
    "quantization", "targets", "tests",
}  # fmt: skip
LONGEST_FILE = 500


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists()]


def python_folders():
    core = list((ROOT / "convertkit").rglob("*.py"))
    parts = [path for part in ("converters", "quantization", "targets") for path in (ROOT / part).rglob("*.py")]
    for path in core + parts:
        inside = path.relative_to(ROOT).parts[:-1]
        if inside[:2] not in [("convertkit", part) for part in ("converters", "quantization", "targets")]:
            yield path.parent, ".".join(inside if inside[0] == "convertkit" else ("convertkit", *inside))


def test_listed_packages_are_the_folders(project):
    listed = project["tool"]["setuptools"]["packages"]
    assert len(listed) == len(set(listed))
    assert set(listed) == {name for _, name in python_folders()}


def test_data_beside_the_code_is_installed(project, tracked):
    """A folder without code belongs to the package around it, and one of its patterns has to name what is in there."""
    patterns = [Path(each) for each in project["tool"]["setuptools"]["package-data"]["*"]]
    for path in tracked:
        if path.relative_to(ROOT).parts[0] not in ("convertkit", "converters", "quantization", "targets"):
            continue
        package = next(folder for folder in path.parents if (folder / "__init__.py").is_file() or folder == ROOT)
        inside = path.relative_to(package)
        fits = (len(inside.parts) == len(each.parts) and inside.match(str(each)) for each in patterns)
        assert path.is_symlink() or path.suffix == ".py" or any(fits), f"{inside} of {package} is not installed"


def test_every_python_folder_is_a_package():
    assert not {str(folder) for folder, _ in python_folders() if not (folder / "__init__.py").is_file()}


def test_symlinks_hold_the_tree_together():
    for part in ("converters", "quantization", "targets"):
        link = ROOT / "convertkit" / part
        assert link.is_symlink()
        assert link.readlink() == Path("..") / part


def test_top_level_is_fixed(tracked):
    assert {path.relative_to(ROOT).parts[0] for path in tracked} <= TOP_LEVEL


def test_files_stay_readable(tracked):
    files = [path for path in tracked if path.suffix == ".py" and not path.is_symlink()]
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in files}
    long = {name: count for name, count in lines.items() if count > LONGEST_FILE}
    assert not long


ABSOLUTE = re.compile(rb"(?<![\w./~$-])/(work|root|home|mnt|Users)/[\w.]")
INDEX_HOSTS = re.compile(rb"pypi\.org|pythonhosted|--(extra-)?index-url|artifactory", re.IGNORECASE)
OUTSIDE = re.compile(rb"\.\./shared")


def test_nothing_names_a_machine(tracked):
    """No absolute path of a person's machine, no package index, no folder outside of the repository."""
    found = []
    for path in tracked:
        if path.is_dir() or path.is_symlink() or path == Path(__file__):
            continue
        content, name = path.read_bytes(), path.relative_to(ROOT).as_posix()
        if ABSOLUTE.search(content):
            found.append(f"{name}: an absolute path, {ABSOLUTE.search(content).group()!r}")
        if INDEX_HOSTS.search(content) and name != "README.md":
            found.append(f"{name}: a package index")
        if OUTSIDE.search(content) and name != ".ci/run":
            found.append(f"{name}: a folder outside of the repository")
    assert not found


GROUPS = {
    "convertkit.converters": ("name", "summary", "sniff", "open"),
    "convertkit.passes": ("name", "order", "stage"),
    "convertkit.targets": ("name", "summary", "precisions", "profile", "stages"),
    "convertkit.runners": ("__call__",),
    "convertkit.engines": ("name", "requirements", "licence", "packages"),
}


@pytest.mark.parametrize("group", GROUPS)
def test_every_entry_point_loads(project, group):
    declared = project["project"]["entry-points"][group]
    installed = {point.name: point for point in entry_points(group=group)}
    assert declared.items() <= {name: point.value for name, point in installed.items()}.items(), "install again"
    for name in declared:
        plugin = installed[name].load()
        for attribute in GROUPS[group]:
            assert hasattr(plugin, attribute), f"{name} has no {attribute}"
        if group in ("convertkit.targets", "convertkit.converters", "convertkit.engines"):
            assert plugin.name == name


def every_error(kind=errors.ConvertKitError):
    yield kind
    for below in kind.__subclasses__():
        yield from every_error(below)


def test_exit_codes_are_documented():
    codes = {error.exit_code for error in every_error()}
    assert codes == {1, 2, 3, 4}
    documented = (ROOT / "docs" / "reference" / "output.md").read_text()
    for code in (0, 1, 2, 3, 4):
        assert re.search(rf"^\| {code} \|", documented, re.MULTILINE), (
            f"docs/reference/output.md says nothing of exit code {code}"
        )


SUGGESTED = re.compile(rb"pip install[^\n`]*?(?<![\w/.-])(convertkit[\w-]*)|(convertkit[\w-]*)\[[a-z]")


def test_pip_is_only_ever_given_our_own_name(project, tracked):
    """``convertkit`` is another project on the public index: who follows such a hint installs a stranger's code."""
    assert project["project"]["name"] == errors.DISTRIBUTION != "convertkit"
    found = [
        f"{path.relative_to(ROOT)}: {suggestion.group().decode()}"
        for path in tracked
        if path.is_file() and path.suffix in (".md", ".py", ".txt", ".toml", ".html", "") and path != Path(__file__)
        for suggestion in SUGGESTED.finditer(path.read_bytes())
        if (suggestion[1] or suggestion[2]).decode() != errors.DISTRIBUTION
    ]
    assert not found
    assert f"'{errors.DISTRIBUTION}[torch]'" in str(errors.MissingFramework("torch", "torch"))


def test_python_versions_agree(project):
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"
    assert project["tool"]["mypy"]["python_version"] == "3.11"


def test_no_module_shadows_a_plugin():
    """A submodule named like an entry point's object would replace that object once it is imported."""
    from importlib.metadata import entry_points

    for group in ("converters", "passes", "targets", "runners"):
        for point in entry_points(group=f"convertkit.{group}"):
            package, _, name = point.value.partition(":")
            folder = ROOT / Path(*package.split("."))
            assert not (folder / f"{name}.py").exists(), point.value


def test_helper_modules_of_tests_have_different_names():
    """They are imported by bare name, wherever they lie, in one process."""
    names = [
        file.stem for file in (ROOT / "tests").rglob("*.py") if not file.name.startswith(("test_", "conftest", "__"))
    ]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("tree", ["convertkit", "converters", "targets"])
def test_the_architecture_page_names_every_folder(tree):
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    folders = {path.parent.name for path in (ROOT / tree).glob("*/__init__.py") if not path.parent.is_symlink()}
    assert len(folders) > 5
    assert {name for name in folders if f"`{tree}/{name}/" not in page} == set()
