"""Engines: environments of their own, made whole or not at all, and workers in them that see what they are lent."""

from __future__ import annotations

import ctypes
import json
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from convertkit import plugins
from convertkit.engines import environments, installing
from convertkit.engines.engine import Engine, this_python, this_system
from convertkit.errors import DeliveryError, MissingEngine, MissingFramework, ToolError, Unsupported, WorkerError
from convertkit.listing import everything
from convertkit.summary import schema
from convertkit.workers.elsewhere import SAME_ADDRESSES
from convertkit.workers.process import Worker
from tests.command_line import check_refusal, everything_below, here

SERVICE = "tiny_plugin:Service"
PLUGIN = """
import sys

import numpy as np

from convertkit.workers.process import Reply


class Service:
    def __init__(self):
        import tiny_engine  # of the other environment alone

        self.factor = tiny_engine.FACTOR

    def compute(self, params, arrays):
        return Reply(sys.executable, {"y": arrays["x"] * self.factor})

    def address(self, params, arrays):
        import ctypes

        return Reply(ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value)

    def sees(self, params, arrays):
        import importlib.util

        return Reply([name for name in params["names"] if importlib.util.find_spec(name) is not None])
"""


def wheel(folder: Path, name: str, version: str, text: str) -> Path:
    """A wheel with one module."""
    plain = name.replace("-", "_")
    path, info = folder / f"{plain}-{version}-py3-none-any.whl", f"{plain}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{plain}.py", text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip is told to look into instead of an index: two versions of an engine, one of them broken."""
    place = tmp_path_factory.mktemp("shop")
    wheel(place, "tiny-engine", "1.0", "FACTOR = 3\n")
    wheel(place, "tiny-engine", "2.0", "raise RuntimeError('the wheel is for another processor')\n")
    (place / "plugin").mkdir()
    (place / "plugin" / "tiny_plugin.py").write_text(PLUGIN)
    return place


@pytest.fixture
def offline(shop: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for engines, and pip without an index."""
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(shop),
        environments.VARIABLE: str(tmp_path / "e"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(shop / "plugin"))
    return tmp_path / "e"


def engine(folder: Path, version: str = "1.0", **changed: object) -> Engine:
    path = folder / f"requirements-{version}.txt"
    path.write_text(f"# what the engine is\ntiny-engine=={version}\n")
    made = Engine(
        "tiny", "An engine of three lines", path, "public domain", 1, 20, ("tiny_engine",), ("numpy", "ml_dtypes")
    )
    return replace(made, **changed)


@pytest.fixture(scope="module")
def there(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for engines that holds one, which takes seconds to make."""
    place = tmp_path_factory.mktemp("there")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(shop),
            environments.VARIABLE: str(place),
        }.items():
            patch.setenv(name, value)
        installing.install(engine(shop))
    return place


@pytest.fixture
def ready(offline: Path, there: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine that is there."""
    monkeypatch.setenv(environments.VARIABLE, str(there))
    return engine(shop)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch):
    """Makes engines known as a plugin's entry points would."""

    def know(*engines: Engine) -> None:
        given = {each.name: each for each in engines}
        find, load = plugins._points, plugins.load

        def points(group: str) -> dict:
            return {**find(group), **(given if group == plugins.ENGINES else {})}

        monkeypatch.setattr(plugins, "_points", points)
        monkeypatch.setattr(plugins, "load", lambda point: point if isinstance(point, Engine) else load(point))

    return know


def test_a_worker_runs_there_and_sees_what_it_is_lent_alone(ready, known):
    known(ready)
    found = installing.install(ready)  # what is there is not made again
    assert environments.state(ready) == "installed"
    assert found.size_bytes > 1_000_000
    with Worker(SERVICE, timeout_s=60, elsewhere=environments.elsewhere("tiny")) as worker:
        said = worker.call("compute", {}, {"x": np.arange(3, dtype=np.float32)})
        seen = worker.call("sees", {"names": ["numpy", "ml_dtypes", "onnx", "click", "tests", "pytest"]}).value
    np.testing.assert_array_equal(said.arrays["y"], [0, 3, 6])
    assert said.value == str(found.python) != sys.executable
    assert seen == ["numpy", "ml_dtypes"]


def test_memory_lies_at_the_same_addresses_where_that_is_asked_for(ready, known):
    known(ready)
    if ctypes.CDLL(None).personality(0xFFFFFFFF) == -1:
        pytest.skip("this system does not tell how memory is laid out")

    def address(**variables):
        with Worker(SERVICE, timeout_s=60, env=variables, elsewhere=environments.elsewhere("tiny")) as worker:
            return worker.call("address").value

    same = {address(**{SAME_ADDRESSES: "1"}) for _ in range(3)}
    if len(same) > 1:
        pytest.skip("this system lets nobody lay out memory the same way")
    assert len({address() for _ in range(3)} | same) > 1


def test_a_service_that_is_not_there_is_one_sentence(ready, known):
    known(ready)
    with (
        Worker("tiny_plugin.nothing:Service", timeout_s=60, elsewhere=environments.elsewhere("tiny")) as worker,
        pytest.raises(WorkerError, match=r"No module named .tiny_plugin\.nothing"),
    ):
        worker.call("compute")


def test_what_does_not_start_is_not_kept(offline, tmp_path, capsys):
    with pytest.raises(ToolError, match=r"engine tiny was installed and does not start: .*for another processor"):
        installing.install(engine(tmp_path, "2.0"))
    assert everything_below(offline) == {"lock"}


def test_what_pip_does_not_find_is_told(offline, tmp_path, capsys):
    with pytest.raises(ToolError, match=r"pip does not install the engine tiny: .*tiny-engine==7"):
        installing.install(engine(tmp_path, "7"))
    assert everything_below(offline) == {"lock"}
    assert "tiny-engine==7" in capsys.readouterr().err


def test_what_a_killed_installation_left_is_cleared(offline, tmp_path):
    made = engine(tmp_path)
    there = environments.place(made)
    (there / "bin").mkdir(parents=True)
    (there / "bin" / "python").write_text("half")
    old = offline / "tiny-0123456789ab"
    old.mkdir()
    (old / environments.MARK).write_text("{}")
    neighbour = offline / "tiny-other-0123456789ab"
    neighbour.mkdir()
    assert environments.state(made) == "outdated"
    installing.install(made)
    assert environments.state(made) == "installed"
    assert {path.name for path in offline.iterdir()} == {"lock", there.name, neighbour.name}


@pytest.mark.parametrize("record", ["", "{", "[]", '{"size_bytes": "large"}'])
def test_a_record_that_was_cut_off_is_not_that_of_an_engine(offline, tmp_path, record):
    made = engine(tmp_path)
    python = environments.place(made) / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("half")
    (environments.place(made) / environments.MARK).write_text(record)
    assert environments.installed(made) is None


def test_an_engine_of_other_versions_is_outdated(ready, tmp_path, known):
    changed = engine(tmp_path, "2.0")
    known(changed)
    assert ready.key != changed.key
    with pytest.raises(MissingEngine, match="is installed in other versions than this needs; run: convertkit engines"):
        environments.elsewhere("tiny")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"pythons": ("3.4", "3.5")},
            f"engine tiny: it has packages for Python 3.4 and 3.5, and this is Python {this_python()}",
        ),
        ({"systems": ("plan9-mips",)}, f"engine tiny: it is for plan9-mips, and this is {this_system()}"),
    ],
)
def test_where_it_cannot_be_it_is_refused(offline, tmp_path, changed, says):
    with pytest.raises(Unsupported) as refusal:
        installing.install(engine(tmp_path, **changed))
    assert str(refusal.value) == says
    assert not offline.exists()


def test_what_cannot_be_installed_is_not_asked_about(offline, tmp_path, known):
    known(engine(tmp_path, systems=("plan9-mips",)))
    said = here("engines", "install", "tiny")
    check_refusal(said, 1, "engine tiny: it is for plan9-mips")
    assert "MB to download" not in said.err
    assert not offline.exists()


def test_what_is_not_pinned_is_refused(tmp_path):
    made = engine(tmp_path)
    made.requirements.write_text("tiny-engine>=1.0\n")
    with pytest.raises(ToolError, match=r"'tiny-engine>=1.0', which is not PACKAGE==VERSION"):
        _ = made.packages


def test_what_it_would_be_lent_is_asked_for(ready, known, monkeypatch):
    known(replace(ready, lends=(*ready.lends, "torch")))
    monkeypatch.setattr(environments, "places", lambda names: {})
    with pytest.raises(MissingFramework, match=r"torch is not installed and this needs it; run: .*\[torch\]"):
        environments.elsewhere("tiny")


def test_the_command_tells_before_it_fetches(offline, tmp_path, known):
    known(engine(tmp_path))
    said = here("engines", "install", "tiny")
    check_refusal(said, 2, "nothing was installed", "--yes")
    assert "1 MB to download, 20 MB on disk; public domain" in said.err
    assert not offline.exists()
    said = here("engines", "install", "tiny", "--yes")
    assert said.code == 0, said.err
    assert said.err.index("public domain") < said.err.index("tiny-engine"), "what pip says comes after"
    assert "tiny is installed" in said.out
    said = here("engines", "list", "--json")
    listed = {each["name"]: each for each in json.loads(said.out)["engines"]}["tiny"]
    jsonschema.validate(json.loads(said.out), schema())
    assert (listed["state"], listed["packages"]) == ("installed", {"tiny-engine": "1.0"})
    assert "installed" in here("engines", "list").out
    assert "is removed" in here("engines", "remove", "tiny").out
    assert "was not installed" in here("engines", "remove", "tiny").out
    check_refusal(here("engines", "install", "tin"), 2, "unknown engine 'tin'", "tiny")


def test_a_target_without_its_engine_is_listed_so(ready, known, monkeypatch, tmp_path):
    known(ready)
    target = plugins.target("onnxruntime")
    monkeypatch.setattr(type(target), "engine", "tiny", raising=False)
    found = {each.name: each for each in everything()["targets"]}["onnxruntime"]
    assert (found.installed, found.packages) == (True, {"tiny-engine": "1.0"})
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path / "empty"))
    found = {each.name: each for each in everything()["targets"]}["onnxruntime"]
    assert (found.installed, found.install) == (False, "convertkit engines install tiny")
    with pytest.raises(MissingEngine, match="the engine tiny is not installed and this needs it") as refusal:
        environments.elsewhere("tiny")
    assert refusal.value.exit_code == 4
    assert re.search(r"engines install tiny \(\d+ MB to download, \d+ MB on disk; .+\)$", str(refusal.value))


def test_what_cannot_be_removed_is_said_in_one_sentence(offline, monkeypatch):
    """A file that somebody else holds: the environment is named, and does not count as whole any more."""
    place = environments.folder() / "tiny-0123456789ab"
    place.mkdir(parents=True)
    (place / environments.MARK).write_text('{"size_bytes": 1}')

    def held(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path / "bin"))

    monkeypatch.setattr(installing.shutil, "rmtree", held)
    with pytest.raises(DeliveryError, match=r"^\S+tiny-0123456789ab cannot be removed: Permission denied$"):
        installing.remove("tiny")
    assert not (place / environments.MARK).exists()
