"""The cache folder: whole entries or none, whatever processes, disks and users do to it."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from convertkit.errors import DeliveryError, UsageError
from convertkit.tasks import entries, leases
from convertkit.tasks.store import Store
from tests.tasks.small_tasks import Note, Say

LIMIT = 10**9


def key_of(number):
    return f"{number:064x}"


def put(store, number, size=10):
    """Keep a result whose files have ``size`` bytes."""
    folder = store.folder(key_of(number))
    (folder / "below").mkdir()
    (folder / "below" / "data").write_bytes(bytes(size))
    note = Note(f"result {number}", folder / "below" / "data", np.arange(3) + number)
    return store.commit(key_of(number), folder, note, Note, f"task {number}")


def get(store, number):
    return store.lookup(key_of(number), Note)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def store(place):
    with Store.at(place, LIMIT, warn=pytest.fail) as made:
        yield made


def test_what_was_kept_is_there_for_the_next_run(place):
    with Store.at(place, LIMIT) as store:
        kept = put(store, 1)
        assert kept.file.read_bytes() == bytes(10)
        assert store.holds(key_of(1))
        assert not store.contains(key_of(2))
    assert kept.file.read_bytes() == bytes(10)
    with Store.at(place, LIMIT) as store:
        again = get(store, 1)
        assert (again.text, again.file, again.array.tolist()) == (kept.text, kept.file, [1, 2, 3])
        assert get(store, 2) is None
    assert sorted(path.name for path in place.iterdir()) == ["CACHEDIR.TAG", "leases", "lock", "results", "tmp"]
    assert not list((place / "tmp").iterdir())
    assert not list((place / "leases").iterdir())


def test_a_cache_may_move(place, tmp_path):
    with Store.at(place, LIMIT) as store:
        put(store, 1)
    place.rename(tmp_path / "elsewhere")
    with Store.at(tmp_path / "elsewhere", LIMIT) as store:
        assert get(store, 1).file.is_relative_to(tmp_path / "elsewhere")


def test_paths_in_other_entries_and_elsewhere(place, tmp_path):
    with Store.at(place, LIMIT) as store:
        first = put(store, 1)
        for number, file in ((2, first.file), (3, tmp_path / "source.onnx"), (4, Path("relative"))):
            store.commit(key_of(number), store.folder(key_of(number)), Note("x", file), Note)
    with Store.at(place, LIMIT) as store:
        assert get(store, 2).file == first.file
        assert get(store, 3).file == tmp_path / "source.onnx"
        assert get(store, 4).file == Path("relative")
    with Store.at(place, LIMIT) as store:
        first.file.write_bytes(b"damaged")
        assert get(store, 2) is None, "it refers to what is not there any longer"


def test_what_refers_to_a_folder_of_this_run_is_not_kept(store):
    mine = store.folder("mine") / "file"
    mine.touch()
    folder = store.folder(key_of(1))
    note = Note("x", mine)
    assert store.commit(key_of(1), folder, note, Note) is note
    assert folder.is_dir()
    assert not store.holds(key_of(1))


def test_a_result_of_another_class_is_a_mistake(store):
    folder = store.folder(key_of(1))
    with pytest.raises(TypeError, match="Note is not among"):
        store.commit(key_of(1), folder, Note("x"), Path)


def test_links_are_not_kept(store, tmp_path):
    folder = store.folder(key_of(1))
    (folder / "link").symlink_to(tmp_path)
    note = Note("x", folder / "link")
    assert store.commit(key_of(1), folder, note, Note) is note
    assert note.file.is_symlink()
    assert not store.contains(key_of(1))
    put(store, 2)
    assert store.contains(key_of(2))


def damages():
    def change(path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    yield "a bit of a file", lambda entry: change(entry / "files" / "below" / "data")
    yield "a bit of the arrays", lambda entry: change(entry / "arrays.npz")
    yield "a bit of the record", lambda entry: change(entry / "entry.json")
    yield "a file cut short", lambda entry: (entry / "files" / "below" / "data").write_bytes(b"")
    yield "a file gone", lambda entry: (entry / "files" / "below" / "data").unlink()
    yield "arrays gone", lambda entry: (entry / "arrays.npz").unlink()
    yield "record gone", lambda entry: (entry / "entry.json").unlink()
    yield "an empty record", lambda entry: (entry / "entry.json").write_text("")
    yield "a file more", lambda entry: (entry / "files" / "more").touch()
    yield "a link instead", lambda entry: replace_by_link(entry / "files" / "below" / "data")


def replace_by_link(path):
    path.rename(path.parent.parent.parent.parent / "target")
    path.symlink_to(path.parent.parent.parent.parent / "target")


@pytest.mark.parametrize("damage", [damage for _, damage in damages()], ids=[name for name, _ in damages()])
def test_a_damaged_entry_counts_as_absent_and_goes(place, damage):
    with Store.at(place, LIMIT) as store:
        put(store, 1)
    damage(place / "results" / "00" / key_of(1))
    with Store.at(place, LIMIT) as store:
        assert not store.contains(key_of(1))
        assert not (place / "results" / "00" / key_of(1)).exists()
        assert put(store, 1).file.read_bytes() == bytes(10)
        assert get(store, 1).text == "result 1"


def test_the_same_result_of_two_runs_is_kept_once(place):
    with Store.at(place, LIMIT) as one, Store.at(place, LIMIT) as other:
        first = put(one, 1)
        assert put(other, 1).file == first.file
        assert len(other.entries()) == 1


def test_a_damaged_entry_is_replaced_by_a_run_that_has_made_it(place):
    with Store.at(place, LIMIT) as one:
        put(one, 1).file.write_bytes(b"damaged")
        with Store.at(place, LIMIT) as other:
            assert put(other, 1).file.read_bytes() == bytes(10)


def age(place, number, seconds):
    file = place / "results" / "00" / key_of(number) / "entry.json"
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_the_least_recently_used_go_first(place):
    with Store.at(place, LIMIT) as store:
        for number in range(5):
            put(store, number, 1000)
    for number in range(5):
        age(place, number, 1000 - number)
    with Store.at(place, LIMIT) as store:
        assert get(store, 0) is not None, "used now"
        (size,) = {entry.size_bytes for entry in store.entries()}
        gone = store.prune(to_bytes=3 * size)
        assert [entry.title for entry in gone] == ["task 1", "task 2"]
        assert [entry.title for entry in store.entries()] == ["task 3", "task 4", "task 0"]


def test_entries_go_by_age(place):
    with Store.at(place, LIMIT) as store:
        for number in range(3):
            put(store, number)
    age(place, 0, 90)
    age(place, 1, 110)
    with Store.at(place, LIMIT) as store:
        assert [entry.title for entry in store.prune(older_s=100)] == ["task 1"]


def test_what_a_living_run_uses_stays(place):
    with Store.at(place, LIMIT) as one, Store.at(place, LIMIT) as other:
        put(one, 1)
        put(one, 2)
        assert not other.prune(to_bytes=0)
        with Store.at(place, LIMIT) as third:
            assert get(third, 1) is not None
            one.close()
            assert [entry.title for entry in other.prune(to_bytes=0)] == ["task 2"]
            assert get(third, 1).file.exists()


def test_a_run_makes_room_for_what_it_adds(place):
    with Store.at(place, LIMIT) as store:
        for number in range(10):
            put(store, number, 10_000)
    with Store.at(place, 55_000) as store:
        put(store, 10, 10_000)
        assert sum(entry.size_bytes for entry in store.entries()) <= 55_000
        assert get(store, 10) is not None


def test_the_next_run_clears_what_a_killed_one_left(place):
    with Store.at(place, LIMIT) as store:
        put(store, 1)
    (place / "tmp" / "killed" / "1").mkdir(parents=True)
    (place / "tmp" / "killed" / "1" / "half").touch()
    (place / "leases" / "killed").write_text(f"{key_of(1)}\n")
    with Store.at(place, LIMIT) as store, Store.at(place, LIMIT) as other:
        mine = store.folder("mine")
        assert len(list((place / "tmp").iterdir())) == len(list((place / "leases").iterdir())) == 2
        assert mine.is_dir()
        assert [entry.title for entry in other.prune(to_bytes=0)] == ["task 1"]


def test_a_folder_with_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not a cache of convertkit"):
        Store.at(tmp_path, LIMIT)
    other = tmp_path / "other"
    other.mkdir()
    (other / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n# of cargo\n")
    with pytest.raises(UsageError, match="cache of another tool"):
        Store.at(other, LIMIT)
    assert [path.name for path in other.iterdir()] == ["CACHEDIR.TAG"]


def test_a_run_killed_while_it_claimed_the_folder_leaves_it_usable(place):
    place.mkdir()
    (place / "CACHEDIR.TAG").touch()
    with Store.at(place, LIMIT) as store:
        put(store, 1)


def test_temporary_results_stay_in_memory(tmp_path):
    with Store.temporary(tmp_path / "work") as store:
        note = put(store, 1)
        assert note.file.exists()
        assert not store.contains(key_of(1))
        assert get(store, 1) is None
    assert not note.file.exists()


class TestDisk:
    """Disks that take nothing, or nothing more."""

    def full(self, monkeypatch, at):
        """The disk is full at this step."""
        name, owner = at

        def fail(*args, **more):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(owner, name, fail)

    @pytest.mark.parametrize("at", [("flush", entries), ("_write_arrays", entries)], ids=["flush", "write"])
    def test_a_disk_that_is_full_at_the_end_is_told_once_and_costs_nothing(self, place, tmp_path, monkeypatch, at):
        told = []
        with Store.at(place, LIMIT, spare=tmp_path, warn=told.append) as store:
            before = put(store, 1)
            self.full(monkeypatch, at)
            results = [put(store, 2), put(store, 3)]
            assert [each.file.read_bytes() for each in (before, *results)] == [bytes(10)] * 3
            assert get(store, 1) is not None
            assert not store.contains(key_of(2))
        assert len(told) == 1
        assert "No space left on device; going on without it" in told[0]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]
        monkeypatch.undo()
        with Store.at(place, LIMIT) as store:
            assert [entry.title for entry in store.entries()] == ["task 1"]

    def test_a_task_that_met_a_full_disk_runs_again_elsewhere(self, place, tmp_path, scheduler, ran):
        told = []

        class Filling(Say):
            __slots__ = ()

            def run(self, given, context):
                note = super().run(given, context)
                if context.folder.is_relative_to(place):
                    try:
                        raise OSError(errno.ENOSPC, "full", str(note.file))
                    except OSError as error:
                        raise DeliveryError("the disk is full") from error
                return note

        with Store.at(place, LIMIT, spare=tmp_path, warn=told.append) as store:
            one = scheduler(store=store)
            assert one.result(Filling("a")).file.read_text() == "a()"
            one.close()
        assert ran == ["a", "a"]
        assert len(told) == 1

    def test_a_cache_that_may_not_be_written_is_read(self, place, tmp_path, monkeypatch):
        with Store.at(place, LIMIT) as store:
            put(store, 1)

        def refuse(*args, **more):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(leases, "Lease", refuse)
        monkeypatch.setattr(entries, "touch", refuse)
        told = []
        with Store.at(place, LIMIT, spare=tmp_path, warn=told.append) as store:
            assert get(store, 1).file.read_bytes() == bytes(10)
            assert put(store, 2).file.read_bytes() == bytes(10)
            assert get(store, 2) is None
            assert not store.prune(to_bytes=0)
        assert len(told) == 1
        assert "Read-only file system" in told[0]


WRITER = """
import sys
from pathlib import Path
from convertkit.progress import Silent
from convertkit.tasks.local import Local
from convertkit.tasks.resources import Resources
from convertkit.tasks.scheduler import Scheduler
from convertkit.tasks.store import Store
from tests.tasks.small_tasks import Say

place, option = sys.argv[1:]
with Store.at(Path(place), 10**9, warn=lambda warning: sys.exit(warning)) as store, Resources() as resources:
    with Scheduler(Local(2), store, resources, Silent(), 2, 10**9) as one:
        layer = tuple(Say(f"{n}", (), option) for n in range(4))
        layer = tuple(Say(f"m{n}", layer) for n in range(4))
        top = Say("top", layer)
        print("go", flush=True)
        print(one.result(top).text, one.result(top).file.read_text(), flush=True)
"""


def writer(place, option=""):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(place), option], stdout=subprocess.PIPE, text=True)


def test_processes_share_a_cache(place):
    processes = [writer(place, option) for option in ("", "", "x", "")]
    said = [process.communicate(timeout=60)[0].splitlines()[-1] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert said[0] == said[1] == said[3] != said[2]
    with Store.at(place, LIMIT) as store:
        assert len(store.entries()) == 2 * 9
        assert all(store.contains(entry.key) for entry in store.entries())
    assert not list((place / "tmp").iterdir())


INTERRUPTED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it leaves behind with Ctrl-C ignored
from pathlib import Path
from contextlib import contextmanager
from convertkit.progress import Silent
from convertkit.tasks.local import Local
from convertkit.tasks.resources import Resources
from convertkit.tasks.scheduler import Scheduler
from convertkit.tasks.store import Store
from tests.tasks.small_tasks import RUNS, Say

@contextmanager
def live():
    yield
    print("closed", flush=True)

try:
    with Store.at(Path(sys.argv[1]), 10**9) as store, Resources() as resources:
        with resources.held("live", live):
            pass
        with Scheduler(Local(2), store, resources, Silent(), 2, 10**9) as one:
            slow = tuple(Say(f"slow{n}", seconds=0.5) for n in range(2))
            top = Say("top", slow)
            one.submit(top)
            while len(RUNS) < 2:
                time.sleep(0.01)
            print("go", flush=True)
            one.result(top)
except KeyboardInterrupt:
    print(*sorted(RUNS), flush=True)
"""


def test_ctrl_c_keeps_what_was_done_and_clears_the_rest(place):
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(place)], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[0].split() == ["closed", "slow0", "slow1"]
    assert not list((place / "tmp").iterdir())
    with Store.at(place, LIMIT) as store:
        assert sorted(entry.title for entry in store.entries()) == ["say slow0", "say slow1"]


def kept(place):
    return len(list((place / "results").glob("??/*")))


def killed_at_random(place, times, seed):
    """Kill a run at so many random moments; the next is right, and what is seen is whole."""
    random_ = random.Random(seed)
    expected = writer(place.with_name("reference")).communicate()[0]
    found = set()
    for number in range(times):
        process = writer(place, str(number % 3))
        process.stdout.readline()
        enough = kept(place) + random_.randrange(4)
        while kept(place) < enough and process.poll() is None:
            time.sleep(0.001)
        time.sleep(random_.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found.add(kept(place))
    for option in "012":
        process = writer(place, option)
        assert process.communicate()[0].replace(f"{option}()", "()") == expected
    with Store.at(place, LIMIT) as store:
        assert all(store.contains(entry.key) for entry in store.entries())
        assert len(store.entries()) == 3 * 9
        store.close()
    assert not list((place / "tmp").iterdir())
    assert not list((place / "leases").iterdir())
    return found


def test_runs_killed_at_random_leave_nothing_half(place):
    assert len(killed_at_random(place, 12, 1)) > 1, "some were killed before all was kept, some after"


@pytest.mark.nightly
def test_runs_killed_at_many_random_moments_leave_nothing_half(place):
    assert len(killed_at_random(place, 50, 2)) > 1
