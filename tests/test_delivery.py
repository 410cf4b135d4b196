"""Output folders are absent or complete, whoever else writes and whatever fails."""

import errno
import os
import subprocess
import sys
import time

import pytest

from convertkit.delivery import check_free, deliver, workspace
from convertkit.errors import DeliveryError


def build(place, text="new"):
    finished = place / "finished"
    finished.mkdir()
    (finished / "model").write_text(text)
    return finished


def test_a_folder_appears_whole_and_nothing_else_stays(tmp_path):
    out = tmp_path / "deep" / "out"
    with workspace(out) as place:
        assert not out.exists()
        deliver(build(place), out, force=False)
    assert (out / "model").read_text() == "new"
    assert list(out.parent.iterdir()) == [out]
    assert os.stat(out).st_mode & 0o777 == 0o755


def test_what_is_there_is_kept_without_force_and_exchanged_with_it(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("precious")
    with pytest.raises(DeliveryError, match="not empty"):
        check_free(out, force=False)
    with workspace(out) as place, pytest.raises(DeliveryError, match="filled by another run"):
        deliver(build(place), out, force=False)
    assert (out / "mine").exists()
    with workspace(out) as place:
        deliver(build(place), out, force=True)
    assert [entry.name for entry in out.iterdir()] == ["model"]
    assert list(tmp_path.iterdir()) == [out]


def test_a_failure_inside_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), workspace(tmp_path / "deep" / "out") as place:
        build(place)
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "says"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "permission denied")])
def test_disk_errors_are_sentences(tmp_path, code, says):
    with pytest.raises(DeliveryError, match=says), workspace(tmp_path / "out"):
        raise OSError(code, os.strerror(code))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(DeliveryError, match="no folder"):
        check_free(tmp_path / "out", force=True)
    with pytest.raises(DeliveryError, match="no folder"), workspace(tmp_path / "out" / "below"):
        pytest.fail("a workspace below a file")


def test_leftovers_of_killed_runs_go_and_those_of_living_ones_stay(tmp_path):
    out = tmp_path / "out"
    script = (
        "import sys, time; from pathlib import Path; from convertkit.delivery import workspace\n"
        "with workspace(Path(sys.argv[1])) as place:\n    print(place, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, out], stdout=subprocess.PIPE, text=True) as other:
        left = tmp_path / other.stdout.readline().strip().rpartition("/")[2]
        aged = time.time() - 60
        os.utime(left, (aged, aged))
        with workspace(out):
            assert left.exists()
        other.kill()
    with workspace(out):
        assert not left.exists()
