"""What an export begins before it is wanted: at the same time, and without a trace where it was not wanted."""

import threading

import onnx
import pytest

import convertkit
from convertkit import pipeline, roads
from convertkit.ahead import Ahead
from convertkit.converters.onnx.source import CanonicalStage
from convertkit.errors import Unsupported
from tests.onnx_models import mlp


@pytest.fixture
def network(tmp_path):
    onnx.save(mlp(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_work_is_done_in_order_and_what_it_raised_comes_with_its_result():
    done = []
    with Ahead() as ahead:
        first = ahead.begin(lambda: done.append("first"))
        second = ahead.begin(lambda: [done.append("second"), 1 // 0])
        assert first() is None
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                second()
    assert done == ["first", "second"]


def test_leaving_waits_for_what_runs_and_drops_what_does_not():
    begun, go_on, done = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert go_on.wait(20)
        done.append("slow")

    with Ahead() as ahead:
        ahead.begin(slow)
        ahead.begin(lambda: done.append("never"))
        assert begun.wait(20)
        threading.Timer(0.2, go_on.set).start()
    assert done == ["slow"]


def test_an_onnx_source_is_executed_while_it_is_made_canonical(network, monkeypatch):
    meeting = threading.Barrier(2, timeout=20)
    record, run = roads.Run._first_recording, CanonicalStage.run

    def recording(self):
        meeting.wait()
        return record(self)

    def canonical(self, source, workdir):
        meeting.wait()
        return run(self, source, workdir)

    monkeypatch.setattr(roads.Run, "_first_recording", recording)
    monkeypatch.setattr(CanonicalStage, "run", canonical)
    assert convertkit.export(network, output=network.parent / "out").report["passed"]


def test_a_large_source_is_executed_after_that(network, monkeypatch):
    monkeypatch.setattr(pipeline, "_AHEAD_BELOW_BYTES", 10)
    where = []
    record = roads.Run._first_recording
    monkeypatch.setattr(
        roads.Run, "_first_recording", lambda self: [where.append(threading.current_thread()), record(self)][1]
    )
    assert convertkit.export(network, output=network.parent / "out").report["passed"]
    assert where == [threading.main_thread()]


def test_a_refusal_is_told_although_the_source_is_being_executed(network, monkeypatch):
    def refuse(self, source, workdir):
        raise Unsupported("no such operator")

    monkeypatch.setattr(CanonicalStage, "run", refuse)
    with pytest.raises(Unsupported, match="no such operator"):
        convertkit.export(network, output=network.parent / "out")
    assert [entry.name for entry in network.parent.iterdir()] == ["net.onnx"]


def test_two_runs_write_the_same_model_and_manifest(network):
    pytest.importorskip("ai_edge_litert")
    folders = [convertkit.export(network, "tflite", output=network.parent / name).path for name in ("a", "b")]
    for name in ("model.tflite", "manifest.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
