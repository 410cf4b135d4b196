"""The same graph on a cluster: the same results, and nothing lost where a worker dies."""

import os
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from convertkit import errors
from convertkit.tasks.local import Local
from convertkit.tasks.store import Store
from tests.tasks.clusters import running
from tests.tasks.small_tasks import Say

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running("--local-directory", str(tmp_path_factory.mktemp("workers"))) as made:
        yield made


@pytest.fixture
def dask():
    from convertkit.tasks.dask import Dask

    return Dask


@dataclass(frozen=True, slots=True, eq=False)
class Deadly(Say):
    """Ends its process at the first attempt, in the middle of its work."""

    marker: Path = Path()

    def run(self, given, context):
        half = context.folder / f"half-{os.getpid()}"
        half.touch()
        if not self.marker.exists():
            if self.marker.parent.exists():
                self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        assert list(context.folder.iterdir()) == [half], "a folder of its own"
        half.unlink()
        return Say.run(self, given, context)


@dataclass(frozen=True, slots=True, eq=False)
class Where(Say):
    """Says in which process it runs, and how often that process opened the live thing it uses."""

    def run(self, given, context):
        log = Path(self.option)

        @contextmanager
        def opened():
            with log.open("a") as stream:
                stream.write(f"open {os.getpid()}\n")
            yield os.getpid()
            with log.open("a") as stream:
                stream.write(f"close {os.getpid()}\n")

        with context.resources.held("log", opened) as value:
            assert value == os.getpid()
        return Say.run(self, given, context)


ERRORS = {
    type(error).__name__: error
    for error in (
        errors.Unsupported("no such operator", subject="up2 (Resize-18)", ways_out=("--target tflite",)),
        errors.MissingFramework("torch", "torch"),
        errors.TargetsFailed({"tflite": errors.ParityError("differs")}, {}),
        OSError(28, "full", "/a/b"),
    )
}


@dataclass(frozen=True, slots=True, eq=False)
class Failing(Say):
    """Raises the error of its name, and counts its attempts in the folder that is its option."""

    def run(self, given, context):
        (Path(self.option) / str(time.time_ns())).touch()
        raise ERRORS[self.name]


def graph(extra=()):
    layer = tuple(Say(f"{number}") for number in range(4))
    return Say("top", (*(Say(f"m{number}", layer[number:]) for number in range(3)), *extra))


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_results_as_here(scheduler, cluster, dask, tmp_path):
    kept = []
    for name, executor in (("here", Local(2)), ("there", dask(cluster.address))):
        with Store.at(tmp_path / name, 10**9) as store:
            one = scheduler(jobs=2, store=store, executor=executor)
            top = one.result(graph())
            assert top.file.read_text() == top.text
            one.close()
        kept.append(files(tmp_path / name / "results"))
    assert kept[0] == kept[1]
    assert len(kept[0]) == 8 * 3


def test_live_things_belong_to_a_worker_and_end_with_the_run(scheduler, cluster, dask, tmp_path):
    log = tmp_path / "log"
    one = scheduler(jobs=2, executor=dask(cluster.address))
    one.result(Say("top", tuple(Where(f"{number}", option=str(log), seconds=0.05) for number in range(6))))
    one.close()
    lines = log.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 4
    assert {int(line.split()[1]) for line in lines} == {worker.pid for worker in cluster.workers}
    assert {line.split()[0] for line in lines[2:]} == {"close"}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_arrive_as_they_are_and_are_not_tried_again(scheduler, cluster, dask, tmp_path, name):
    one, error = scheduler(executor=dask(cluster.address)), ERRORS[name]
    with pytest.raises(type(error)) as raised:
        one.result(Failing(name, option=str(tmp_path)))
    assert str(raised.value) == str(error)
    assert raised.value.args == error.args
    assert getattr(raised.value, "exit_code", 0) == getattr(error, "exit_code", 0)
    assert "in run" in raised.value.__notes__[0]
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 1


@dataclass(frozen=True, slots=True, eq=False)
class Unsendable(Say):
    """Ends with what does not go through a pipe, as its option says."""

    def run(self, given, context):
        if self.option == "error":
            raise ValueError(lambda: "in vain")
        return lambda: "in vain"

    def __reduce_ex__(self, protocol):
        return object.__reduce_ex__(self, protocol) if self.option != "unpickled" else (int, ("not a number",))


@pytest.mark.parametrize(
    ("option", "kind", "told"),
    [
        ("error", errors.ToolError, "ValueError: <function"),
        ("result", Exception, "pickle"),
        ("unpickled", ValueError, "invalid literal"),
    ],
)
def test_what_cannot_be_sent_is_told_in_words(scheduler, cluster, dask, option, kind, told):
    one = scheduler(executor=dask(cluster.address))
    with pytest.raises(kind, match=told):
        one.result(Unsendable("bad", option=option))


def test_what_workers_do_not_share_is_refused(scheduler, cluster, dask, tmp_path, monkeypatch):
    one = scheduler(executor=dask(cluster.address), store=Store.temporary(tmp_path / "mine"))
    monkeypatch.setattr("convertkit.tasks.store._Temporary.folder", lambda store, key: tmp_path / "not here")
    with pytest.raises(errors.UsageError, match=r"the worker tcp://.* does not see it: .*not here must be on a file"):
        one.result(Say("a"))


def test_another_version_on_a_worker_is_refused(scheduler, cluster, dask, monkeypatch):
    monkeypatch.setattr("convertkit.tasks.dask.code_version", lambda: "another")
    with pytest.raises(errors.UsageError, match="has another convertkit or other libraries"):
        scheduler(executor=dask(cluster.address)).result(Say("a"))


def test_no_scheduler_is_told(dask, monkeypatch):
    monkeypatch.setattr("convertkit.tasks.dask._CONNECT_S", 1)
    with pytest.raises(errors.ToolError, match="there is no Dask scheduler at tcp"):
        dask("tcp://127.0.0.1:1")


def test_a_worker_killed_in_the_middle_costs_nothing(scheduler, dask, tmp_path):
    expected = scheduler(jobs=2).result(graph((Say("deadly"),)))
    with running("--local-directory", str(tmp_path / "workers")) as cluster, Store.at(tmp_path / "c", 10**9) as store:
        one = scheduler(jobs=2, store=store, executor=dask(cluster.address))
        top = one.result(graph((Deadly("deadly", marker=tmp_path / "marker"),)))
        one.close()
        assert sorted(worker.poll() is None for worker in cluster.workers) == [False, True]
        assert (tmp_path / "marker").exists()
        assert (top.text, top.file.read_text()) == (expected.text, expected.text)
        assert len(store.entries()) == 9
        assert all(store.contains(entry.key) for entry in store.entries())


def test_a_task_that_kills_every_worker_is_told(scheduler, dask, tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.tasks.dask._WITHOUT_WORKERS_S", 0.5)
    monkeypatch.setattr("convertkit.tasks.dask._LOOK_S", 0.3)
    with running("--local-directory", str(tmp_path / "workers")) as cluster:
        one = scheduler(jobs=1, executor=dask(cluster.address))
        with pytest.raises(errors.WorkerError, match="has no workers any longer"):
            one.result(Deadly("deadly", marker=Path("/not/there/at/all")))
        one.close()
