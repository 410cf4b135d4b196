"""Output folders are absent or complete, whoever else writes and whatever fails."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from convertkit import delivery
from convertkit.artifact import sha256_of
from convertkit.delivery import check_free, deliver, leave_failed, strangers, workspace
from convertkit.delivery.places import place_of
from convertkit.errors import DeliveryError

MOMENTS = random.Random(17)


def build(place, text="new", **more):
    """A finished export of ours, with its manifest and reports."""
    finished = place / "finished"
    shutil.rmtree(finished, ignore_errors=True)
    finished.mkdir()
    for name, content in {"model": text, **more}.items():
        (finished / name).write_text(content)
    files = {path.name: {"sha256": sha256_of(path)} for path in finished.iterdir()}
    manifest = {"schema": 1, "convertkit": "0", "artifact": {}, "files": files}
    (finished / "manifest.json").write_text(json.dumps(manifest))
    (finished / "report.json").write_text('{"passed": true}')
    return finished


def failed(place):
    finished = place / "bad"
    finished.mkdir()
    (finished / "report.json").write_text('{"passed": false, "convertkit": "0"}')
    (finished / "report.html").write_text("<html>")
    return finished


def exported(out, text="new", *, force=False, **more):
    with workspace(out) as work:
        deliver(build(work.path, text, **more), out, work, force=force)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


WHOLE = ["manifest.json", "model", "report.json"]


def test_a_folder_appears_whole_and_nothing_else_stays(tmp_path):
    out = tmp_path / "deep" / "out"
    with workspace(out) as work:
        assert not out.exists()
        deliver(build(work.path), out, work, force=False)
    assert (out / "model").read_text() == "new"
    assert list(out.parent.iterdir()) == [out]
    assert os.stat(out).st_mode & 0o777 == 0o755


def test_an_earlier_export_is_kept_without_force_and_replaced_with_it(tmp_path):
    out = tmp_path / "out"
    exported(out, "old", beside="old data")
    with pytest.raises(DeliveryError, match="not empty; choose another --output or add --force"):
        check_free(out, force=False)
    with workspace(out) as work, pytest.raises(DeliveryError, match="filled by another run"):
        deliver(build(work.path), out, work, force=False)
    assert (out / "model").read_text() == "old"
    check_free(out, force=True)
    exported(out, force=True)
    assert names(out) == WHOLE
    assert (out / "model").read_text() == "new"
    assert list(tmp_path.iterdir()) == [out]


# --- nothing of the user's is ever lost ------------------------------------------------------------


@pytest.mark.parametrize("content", ["notes.txt", "sub/thesis.tex", "model.onnx", "sub/deep/x", ".hidden"])
@pytest.mark.parametrize("beside_ours", [False, True], ids=["alone", "beside-an-export"])
def test_force_refuses_a_folder_that_holds_anything_else(tmp_path, content, beside_ours):
    out = tmp_path / "out"
    if beside_ours:
        exported(out)
    (out / content).parent.mkdir(parents=True, exist_ok=True)
    (out / content).write_text("precious")
    with pytest.raises(DeliveryError, match="not empty: it holds " + content.split("/")[0]):
        check_free(out, force=True)
    with pytest.raises(DeliveryError, match="no earlier export wrote"):
        exported(out, force=True)
    assert (out / content).read_text() == "precious"


@pytest.mark.parametrize("kind", ["changed", "link", "folder", "foreign manifest", "hostile manifest"])
def test_what_a_manifest_does_not_list_as_it_is_stays(tmp_path, kind):
    out = tmp_path / "out"
    exported(out)
    if kind == "changed":
        (out / "model").write_text("tuned by hand")
    elif kind == "link":
        (out / "link").symlink_to(tmp_path)
    elif kind == "folder":
        (out / "sub").mkdir()
    elif kind == "foreign manifest":
        (out / "manifest.json").write_text('{"files": {"model": {}}}')
    else:
        (tmp_path / "victim").write_text("precious")
        listed = {"../victim": {"sha256": sha256_of(tmp_path / "victim")}}
        manifest = {"schema": 1, "convertkit": "0", "artifact": {}, "files": listed}
        (out / "manifest.json").write_text(json.dumps(manifest))
    before = names(out)
    with pytest.raises(DeliveryError, match="holds"):
        check_free(out, force=True)
    with pytest.raises(DeliveryError, match="holds"):
        exported(out, force=True)
    assert names(out) == before


@pytest.mark.parametrize("inside", ["", "model", "link"])
def test_what_the_export_reads_is_never_replaced(tmp_path, inside):
    """Not even where an earlier export wrote it: the source may be what that delivered."""
    out = tmp_path / "out"
    exported(out)
    source = out / inside
    if inside == "link":
        source = tmp_path / "source"
        source.symlink_to(out / "model")
    with pytest.raises(DeliveryError, match=r"out holds the source .*, which an export never replaces"):
        check_free(out, force=True, precious={str(source): "the source"})
    check_free(out, force=True, precious={str(tmp_path / "elsewhere"): "the source", "pkg.mod:function": "the data"})


@pytest.mark.parametrize("atomic", [True, False], ids=["exchange", "moves"])
def test_a_file_that_appears_in_the_last_moment_stays(tmp_path, monkeypatch, atomic):
    out = tmp_path / "out"
    exported(out, "old")
    check, calls = delivery.delivering.check_ours, []

    def check_and_put(folder, title):
        check(folder, title)
        if not calls:
            (out / "mine").write_text("precious")
        calls.append(folder)

    monkeypatch.setattr(delivery.delivering, "check_ours", check_and_put)
    if not atomic:
        monkeypatch.setattr(delivery.delivering, "exchanged", lambda *_: False)
    with pytest.raises(DeliveryError, match="holds mine"):
        exported(out, force=True)
    assert ((out / "mine").read_text(), (out / "model").read_text()) == ("precious", "old")
    assert names(out) == sorted([*WHOLE, "mine"])
    assert list(tmp_path.iterdir()) == [out]


def test_a_failed_export_never_replaces_a_folder_of_the_user(tmp_path):
    mine = tmp_path / "out.failed" / "analysis.txt"
    mine.parent.mkdir()
    mine.write_text("precious")
    for _ in range(2):
        with workspace(tmp_path / "out") as work:
            assert leave_failed(failed(work.path), tmp_path / "out", work) == tmp_path / "out.failed-2"
    assert mine.read_text() == "precious"
    assert names(tmp_path) == ["out.failed", "out.failed-2"]


def test_a_kept_artifact_is_replaced_and_not_where_it_is_the_source(tmp_path):
    for text in ("first", "second"):
        with workspace(tmp_path / "out") as work:
            bad = failed(work.path)
            (bad / "model").write_text(text)
            leave_failed(bad, tmp_path / "out", work)
    model = tmp_path / "out.failed" / "model"
    assert model.read_text() == "second"
    with workspace(tmp_path / "out") as work:
        left = leave_failed(failed(work.path), tmp_path / "out", work, {str(model): "the source"})
    assert (left.name, model.read_text()) == ("out.failed-2", "second")


# --- folders that stay: mount points, the current folder, links ------------------------------------


@pytest.fixture(params=["tmpfs", "bind", "link", "current", "closed-parent"])
def staying(request, tmp_path, monkeypatch):
    """An existing empty folder that a rename cannot replace, or must not."""
    folder = tmp_path / "vol"
    folder.mkdir()
    if request.param in ("tmpfs", "bind"):
        (tmp_path / "real").mkdir()
        kind = ["-t", "tmpfs", "none"] if request.param == "tmpfs" else ["--bind", str(tmp_path / "real")]
        if subprocess.run(["mount", *kind, str(folder)], capture_output=True, check=False).returncode:
            pytest.skip("only root may mount, and not in every container")
        yield folder
        subprocess.run(["umount", str(folder)], check=True)
    elif request.param == "link":
        (tmp_path / "link").symlink_to(folder)
        yield tmp_path / "link"
    elif request.param == "current":
        monkeypatch.chdir(folder)
        yield Path()
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
        yield folder


def test_a_folder_that_stays_is_filled_and_replaced(staying):
    inode = staying.stat().st_ino
    check_free(staying, force=False)
    exported(staying, "old", beside="old data")
    assert names(staying) == ["beside", *WHOLE]
    with pytest.raises(DeliveryError, match="not empty"):
        check_free(staying, force=False)
    with pytest.raises(DeliveryError, match="filled by another run"):
        exported(staying)
    check_free(staying, force=True)
    exported(staying, force=True)
    assert (names(staying), (staying / "model").read_text()) == (WHOLE, "new")
    if place_of(staying).inside:
        assert staying.stat().st_ino == inode
    (staying / "mine").write_text("precious")
    with pytest.raises(DeliveryError, match="holds mine"):
        exported(staying, force=True)
    assert names(staying) == sorted([*WHOLE, "mine"])


def test_a_failed_export_into_a_folder_that_stays(staying):
    for _ in range(2):
        check_free(staying, force=False)
        with workspace(staying) as work:
            left = leave_failed(failed(work.path), staying, work)
        expected = staying / "failed" if place_of(staying).inside else staying.with_name("link.failed")
        assert left == expected
        assert names(left) == ["report.html", "report.json"]
    exported(staying)
    assert names(staying) == WHOLE


def test_a_link_that_leads_nowhere_is_refused(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    with pytest.raises(DeliveryError, match=r"is a link to .*gone, which does not exist"):
        check_free(tmp_path / "out", force=True)


def test_a_target_on_another_file_system_gets_a_copy(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(other)], capture_output=True, check=False).returncode:
        pytest.skip("only root may mount, and not in every container")
    try:
        with workspace(tmp_path / "out") as work:
            deliver(build(work.path), other / "out", work, force=False)
        assert names(other) == ["out"]
        assert names(other / "out") == WHOLE
    finally:
        subprocess.run(["umount", str(other)], check=True)


DELIVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import convertkit.delivery.delivering, convertkit.delivery.journal
from tests.test_delivery import exported
print("ready", flush=True)
for number in range(400):
    exported(Path(sys.argv[2]), sys.argv[3], force=True, **{f"part{index}": "x" for index in range(6)})
"""


@pytest.mark.parametrize("kind", ["current", "plain"])
def test_killed_at_any_moment_of_delivering(tmp_path, kind, monkeypatch):
    """What a manifest lists is there, whatever was killed; the next run undoes what is half done."""
    out = tmp_path / "out"
    out.mkdir()
    if kind == "current":
        monkeypatch.chdir(out)
    seen = set()
    for number in range(25):
        script = [sys.executable, "-c", DELIVER, Path(__file__).parents[1], out, f"text{number}"]
        with subprocess.Popen(script, stdout=subprocess.PIPE) as run:
            run.stdout.readline()
            time.sleep(MOMENTS.uniform(0, 0.05))
            run.send_signal(signal.SIGKILL)
        left = [path for place in (out, tmp_path) for path in place.iterdir() if ".convertkit-" in path.name]
        seen.add(bool(left))
        check_free(out, force=True)
        assert not [path for path in left if path.exists()]
        found = names(out)
        if found:
            manifest = json.loads((out / "manifest.json").read_text())
            assert set(manifest["files"]) | {"manifest.json", "report.json"} == set(found)
            assert not strangers(out)
    assert True in seen, "no moment hit a run"


@pytest.mark.parametrize("stop", range(16))
def test_every_half_done_move_is_undone(tmp_path, monkeypatch, stop):
    """A process that ends after any number of its renames leaves the old export or the new one."""
    out = tmp_path / "out"
    monkeypatch.setattr(delivery.places, "_stays", lambda real: real == out)
    out.mkdir()
    exported(out, "old", a="1", b="2")
    rename, count = Path.rename, []

    def renaming(self, target):
        if len(count) == stop:
            os._exit(7)
        count.append(self)
        return rename(self, target)

    child = os.fork()
    if child == 0:
        Path.rename = renaming
        exported(out, "new", force=True)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    half = [name for name in names(out) if not name.startswith(".")]
    check_free(out, force=True)
    assert not strangers(out)
    text = (out / "model").read_text()
    assert names(out) == (["a", "b", *WHOLE] if text == "old" else WHOLE)
    assert text == ("old" if code else "new")
    if "manifest.json" in half:
        assert half == names(out), "a manifest is there before what it lists"


HOSTILE = {
    "elsewhere": {"folder": "{victim}", "finished": "finished", "new": ["mine", "bait"], "old": []},
    "above": {"folder": "{place}", "finished": "finished", "new": ["../victim/mine", "bait"], "old": []},
    "own folder": {"folder": "{place}", "finished": "finished", "new": ["mine", "bait"], "old": []},
    "written over": {"folder": "{place}", "finished": "finished", "new": ["bait"], "old": ["mine"]},
    "link": {"folder": "{place}", "finished": "link", "new": ["mine", "bait"], "old": []},
    "out of it": {"folder": "{place}", "finished": "../victim", "new": ["bait", "mine"], "old": []},
    "nonsense": {"folder": 3},
    "list": [1],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_journal_that_came_with_an_archive_moves_nothing_of_the_user(tmp_path, kind):
    victim, place = tmp_path / "victim", tmp_path / "place"
    for folder in (victim, place):
        folder.mkdir()
        (folder / "mine").write_text("precious")
    left = place / ".convertkit-abcdefgh"
    (left / "finished").mkdir(parents=True)
    build(left, bait="")
    (left / "old").mkdir()
    (left / "old" / "mine").write_text("evil")
    (left / "link").symlink_to(victim)
    text = json.dumps(HOSTILE[kind]).replace("{victim}", str(victim)).replace("{place}", str(place))
    (left / "delivering.json").write_text(text)
    with pytest.raises(DeliveryError, match="holds mine"):
        check_free(place, force=True)
    with workspace(place / "out"):
        pass
    for folder in (victim, place):
        assert (folder / "mine").read_text() == "precious"
    assert names(victim) == ["mine"]


# --- other runs, killed runs, disks ------------------------------------------------------------------


def test_a_failure_inside_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), workspace(tmp_path / "deep" / "out") as work:
        build(work.path)
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "says"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "permission denied")])
def test_disk_errors_are_sentences(tmp_path, code, says):
    with pytest.raises(DeliveryError, match=says), workspace(tmp_path / "out"):
        raise OSError(code, os.strerror(code))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(DeliveryError, match="not a folder"):
        check_free(tmp_path / "out", force=True)
    with pytest.raises(DeliveryError, match="not a folder"), workspace(tmp_path / "out" / "below"):
        pytest.fail("a workspace below a file")


@pytest.mark.parametrize("inside", [False, True], ids=["beside", "inside"])
def test_leftovers_of_killed_runs_go_and_those_of_living_ones_stay(tmp_path, inside, monkeypatch):
    """At once, whatever folder the next run writes to beside it."""
    out = tmp_path / "out"
    if inside:
        out.mkdir()
        monkeypatch.chdir(out)
    script = (
        "import sys, time; from pathlib import Path; from convertkit.delivery import workspace\n"
        "with workspace(Path(sys.argv[1])) as work:\n    print(work.path, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, out], stdout=subprocess.PIPE, text=True) as other:
        left = Path(other.stdout.readline().strip())
        assert left.parent == (out if inside else tmp_path)
        with workspace(out):
            assert left.exists()
        other.kill()
    with workspace(out if inside else tmp_path / "another"):
        assert not left.exists()
