"""Where an export ran, as the report says it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from convertkit.report.build import _processor, environment


def test_no_process_is_started_to_describe_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*arguments: object, **options: object) -> None:
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(subprocess, "Popen", started)
    described = environment()
    assert described["processor"]
    assert described["platform"]


def test_a_machine_without_cpuinfo(tmp_path: Path) -> None:
    assert _processor(tmp_path / "missing")
