"""``bench/arm``: what the plugin writes becomes counts of one call, and what is missing is named."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import convertkit
from tests.conftest import Digits

BENCH = Path(__file__).parents[1] / "bench"
FIRST, SECOND = "1f2003d5", "c0035fd6"
"""Instructions of two blocks: nop, ret."""
WRITTEN = f"""\
block 0 400000 {FIRST}
block 1 400010 {SECOND}
segment 0
misses 4 1 0 0 0 0
-1 0 1
0 0 9
0 1 3
segment 1
misses 9 9 9 9 9 9
0 0 999
segment 2
misses 10 1 2 0 0 0
-1 0 1
0 0 29
block 2 400020 {FIRST}
0 1 3
1 2 8
segment 3
misses 0 0 0 0 0 0
block 3 40"""
"""One call, what is between, three calls; the last line is cut off."""


def bench(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module(name)


def test_a_call_is_the_difference_of_one_and_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = bench("arm.emulator", monkeypatch)
    (tmp_path / "counts").write_text(WRITTEN)
    blocks: dict[int, str] = {}
    once, _, more, _ = emulator._segments(tmp_path / "counts", blocks)
    counts = emulator._difference(once, more, 2, blocks)
    assert counts.pairs == {(FIRST, FIRST): (29 - 9) / 2, (SECOND, FIRST): 8 / 2}
    assert counts.misses == (3.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def test_lines_that_caches_lack_cost_what_the_core_says(monkeypatch: pytest.MonkeyPatch) -> None:
    known = bench("arm.cores", monkeypatch).cores()
    assert {"arm64-a55", "arm64-a76", "arm64-i8mm"} <= known.keys()
    core = known["arm64-a76"]
    assert core.waiting((1, 0, 0, 0, 0, 0)) == core.streamed[0]
    assert core.waiting((0, 1, 0, 2, 0, 3)) == core.random[0] + 2 * core.random[1] + 3 * core.random[2]
    assert core.cpuinfo().count(f"CPU part\t: {core.part}") == 4


def test_what_is_missing_is_named_in_one_sentence(tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(b"")
    environment = {**os.environ, "PATH": str(tmp_path), "CONVERTKIT_DEVICE_ROOT": str(tmp_path)}
    command = [sys.executable, str(BENCH / "arm_costs.py"), str(model), "--core", "arm64-a76"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("is not installed: see 'What it needs' in docs/measurements/device-costs.md")
    assert list(tmp_path.iterdir()) == [model]


TRIED = """\
import sys
sys.path.insert(0, {bench!r})
from pathlib import Path
from x86.older import hide_newer
asked = hide_newer() if sys.argv[1] == "older" else lambda: 0
import numpy as np
from convertkit.targets.tflite.costs.measured.clock import opened
from convertkit.targets.tflite.costs.measured.tiles import POINTWISE, chain
runner = opened(chain(POINTWISE[3], 1, "int8", Path(sys.argv[2])))
place = runner.get_input_details()[0]["index"]
runner.set_tensor(place, np.random.default_rng(1).integers(-128, 128, (1, 4, 4, 32)).astype(np.int8))
runner.invoke()
print(asked() > 0, runner.get_tensor(runner.get_output_details()[0]["index"]).ravel().tolist())
"""
"""A convolution of integers, run as on this processor or as on an older one."""


@pytest.mark.skipif(
    sys.platform != "linux" or not all(map(shutil.which, ("gcc", "objdump"))) or platform.machine() != "x86_64",
    reason="needs Linux on x86, gcc and objdump",
)
def test_without_newer_instructions_the_runtime_gives_the_same_integers(tmp_path: Path) -> None:
    def told(which: str) -> list[str]:
        command = [sys.executable, "-c", TRIED.format(bench=str(BENCH)), which, str(tmp_path / "model.tflite")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split(" ", 1)

    (asked, older), (_, here) = told("older"), told("here")
    assert asked == "True"
    assert older == here
    assert len(set(here.strip("[]\n").split(", "))) > 10


def retired(given: str, cycles: Callable[[str], int]) -> str:
    """What llvm-mca says of regions whose instructions take so long one after another."""
    regions = []
    for part in given.split("# LLVM-MCA-BEGIN ")[1:]:
        name, *lines = part.split("\n# LLVM-MCA-END")[0].splitlines()
        times = [{"CycleRetired": each} for each in itertools.accumulate(map(cycles, lines))]
        regions.append({"Name": name, "TimelineView": {"TimelineInfo": times}})
    return json.dumps({"CodeRegions": regions})


def test_a_walk_goes_as_often_as_the_run_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of three turns is left after three; its first turn is behind the entry, the others behind itself."""
    walks = bench("arm.walks", monkeypatch).walks
    pairs = {("entry", "loop"): 10.0, ("loop", "loop"): 20.0, ("loop", "exit"): 10.0, ("exit", "entry"): 9.0}
    (walk,) = walks(pairs, list(pairs), {"entry": 8, "loop": 4, "exit": 8})
    told = [pair for _, pair in walk.pairs()]
    turns = told.count(("loop", "loop"))
    assert {pair: told.count(pair) for pair in pairs}.keys() == set(told)
    assert abs(turns - 2 * told.count(("entry", "loop"))) <= 2
    assert sum({"entry": 8, "loop": 4, "exit": 8}[block] for block in walk.blocks[: walk.first]) >= 384


def test_what_a_block_takes_depends_on_what_it_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, emulator = bench("arm.schedule", monkeypatch), bench("arm.emulator", monkeypatch)
    core = bench("arm.cores", monkeypatch).cores()["arm64-a76"]
    counts = emulator.Counts({(FIRST, FIRST): 1000.0, (SECOND, FIRST): 10.0, (FIRST, SECOND): 10.0}, (0.0,) * 6)

    def answered(program: str, options: Sequence[str], given: str) -> str:
        if program == "llvm-mc-19":
            blocks = {FIRST: "nop", SECOND: "ret"}
            return (
                given.replace("[0x1f 0x20 0x03 0xd5]", blocks[FIRST])
                .replace("[0xc0 0x03 0x5f 0xd6]", blocks[SECOND])
                .replace("[0x00 0x00 0x00 0x00]", "udf\t#0")
            )
        return retired(given, lambda line: 1 if line == "nop" else 7)  # a return is told as a jump

    monkeypatch.setattr(schedule, "_ran", answered)
    (found,) = schedule.Schedule(core).estimates([counts])
    assert found.cycles == pytest.approx(1010 + 70)
    assert found.instructions == 1020


def test_of_two_files_what_the_second_executes_more_often_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What both execute takes other times in each, by the walks; it does not count."""
    clock, emulator = bench("arm.clock", monkeypatch), bench("arm.emulator", monkeypatch)
    core = bench("arm.cores", monkeypatch).cores()["arm64-a76"]
    short = emulator.Counts({("", FIRST): 7.0, (FIRST, SECOND): 3.0}, (1.0,) * 6)
    long = emulator.Counts({("", FIRST): 7.0, (FIRST, SECOND): 1.0, (SECOND, SECOND): 5.0}, (2.0,) * 6)

    class Told:
        def __init__(self, core: Any) -> None:
            self.core = core

        def estimates(self, counts: Sequence[Any]) -> list[Any]:
            cycles = {(FIRST, SECOND): 10, (SECOND, SECOND): 100, ("", FIRST): 1000}
            sums = [sum(cycles[pair] * count for pair, count in each.pairs.items()) for each in counts]
            return [importlib.import_module("arm.schedule").Estimate(0, each, 0, 0) for each in sums]

    monkeypatch.setattr(clock, "counted", lambda paths, core, calls: ([short, long][:calls], ""))
    monkeypatch.setattr(clock, "Schedule", Told)
    (more,) = clock.Emulated(core).longer([(Path("short"), Path("long"))])
    assert more == pytest.approx((500 - 20 + core.waiting((1.0,) * 6)) / core.clock_ghz)


def test_a_vector_that_was_just_stored_takes_its_time_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    spills = bench("arm.spills", monkeypatch).Spills()
    seen = list(spills.seen(["vmovdqa\t%ymm3, 64(%rsp)", "vmovdqa\t32(%rsp), %ymm8", "vmovdqa\t64(%rsp), %ymm4"]))
    assert seen == [
        "vmovdqa\t%ymm3, 64(%rsp)",
        "movdq2q %xmm3, %mm0",
        *["pmaddwd %mm0, %mm0"] * 2,
        "vmovdqa\t32(%rsp), %ymm8",
        "movq2dq %mm0, %xmm4",
    ]
    assert list(spills.seen(["subq\t$72, %rsp", "vmovdqa\t64(%rsp), %ymm4"]))[1] == "vmovdqa\t64(%rsp), %ymm4"


def test_x86_does_not_wait_for_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    told = bench("arm.schedule", monkeypatch)._scheduled
    assert told("popq\t%rbx", "x86_64") == "movq 8(%rsp), %rbx"
    assert told("pushq\t%r12", "x86_64") == "movq %r12, -8(%rsp)"
    assert told("endbr64", "x86_64") == "nop"
    assert told("callq\t-12", "x86_64") == "jmp 8"
    assert told("ldp\tx29, x30, [sp], #16", "aarch64") == "ldp\tx29, x30, [sp], #16"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("vpmovsxbw\t48(%r10), %ymm8", "vpbroadcastq 48(%r10), %ymm8"),
        ("vpmovzxbd\t(%rax,%rcx,8), %ymm1", "vpbroadcastq (%rax,%rcx,8), %ymm1"),
        ("vpmovsxbw\t%xmm7, %ymm7", "vpmovsxbw\t%xmm7, %ymm7"),
        ("vpmovsxbw\t(%rcx), %xmm7", "vpmovsxbw\t(%rcx), %xmm7"),
    ],
)
def test_a_widened_load_is_as_fast_as_a_broadcast(line: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In long vectors, and from memory alone."""
    assert bench("arm.schedule", monkeypatch)._scheduled(line, "x86_64") == instead


def test_each_core_is_emulated_once_and_scheduled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many files: what the tool takes is one start of the emulator and two of LLVM for a core."""
    emulator, schedule = bench("arm.emulator", monkeypatch), bench("arm.schedule", monkeypatch)
    tool, runs, second = bench("arm_costs", monkeypatch), list[str](), WRITTEN.partition("segment 3")[0]

    def emulated(core: Any, root: Path, folder: Path, calls: int, kernels: str) -> str:
        runs.append(core.name)
        files = (folder / "files").read_text().splitlines()
        (folder / "counts").write_text("".join(second for _ in files))
        return ""

    def scheduled(program: str, options: Sequence[str], given: str) -> str:
        runs.append(program)
        if program == "llvm-mc-19":
            return (
                given.replace("[0x1f 0x20 0x03 0xd5]", "nop")
                .replace("[0xc0 0x03 0x5f 0xd6]", "ret")
                .replace("[0x00 0x00 0x00 0x00]", "udf\t#0")
            )
        return retired(given, lambda line: 1)

    monkeypatch.setattr(emulator, "_run", emulated)
    monkeypatch.setattr(schedule, "_ran", scheduled)
    monkeypatch.setenv("CONVERTKIT_DEVICE_ROOT", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["arm_costs", "a.tflite", "b.tflite"])
    tool.main()
    assert sorted(runs) == sorted(
        ("arm64-a55", "arm64-a76", "arm64-i8mm", *("llvm-mc-19", "llvm-mca-19", "llvm-mca-19") * 3)
    )
    assert capsys.readouterr().out.count(" ms (0.000 M instructions, 0.000 M cycles") == 6


@pytest.mark.parametrize(("name", "starts"), [("gru", [1, 1]), ("unet", [2])])
def test_small_models_of_the_zoo_are_emulated_in_a_process_each(
    name: str, starts: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the same bytes once; what the book has is not emulated again."""
    tool, known = bench("device_zoo", monkeypatch), bench("arm.schedule", monkeypatch)
    book, runs = tool.Book.of(tmp_path), list[int]()
    found = {"`--int8`": tmp_path / "a", "`--int8 --accept-loss`": tmp_path / "b", "peer.int8": tmp_path / "c"}
    for label, path in found.items():
        path.write_bytes(b"peer" if label == "peer.int8" else b"ours")
        book.add(name, label, "probe", {"ok": True, "snr_median_db": 30.0})
        book.add(name, label, "tables", {"arm64-i8mm": 1.0})

    def counted(paths: Sequence[Path], *_: Any) -> tuple[list[Path], str]:
        runs.append(len(paths))
        return list(paths), ""

    class Schedule:
        def __init__(self, _: Any) -> None: ...

        def estimates(self, counts: Sequence[Path]) -> list[Any]:
            return [known.Estimate(0.0, 3.0, 1.0, 2e6) for _ in counts]

    monkeypatch.setattr(tool, "counted", counted)
    monkeypatch.setattr(tool, "Schedule", Schedule)
    for _ in range(2):
        tool.emulate(book, name, found, "arm64-i8mm")
        assert runs == starts
    rows = book.rows()
    assert all(rows[name, label, "arm64-i8mm"]["ms"] == 2.0 for label in found)
    assert rows[name, "peer.int8", "arm64-i8mm"]["waiting"] == 0.25


@pytest.mark.nightly
@pytest.mark.skipif(
    not os.environ.get("CONVERTKIT_DEVICE_ROOT") or not all(map(shutil.which, ("qemu-aarch64", "cc", "setarch"))),
    reason="needs qemu-aarch64, cc, setarch and an arm64 root in $CONVERTKIT_DEVICE_ROOT",
)
def test_a_call_of_the_digits_is_the_same_count_in_every_run(
    digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About a million of float32, a third of that of integers: an emulator needs some tenths of a second for them."""
    emulator, core = bench("arm.emulator", monkeypatch), bench("arm.cores", monkeypatch).cores()["arm64-a76"]
    files = []
    for name, flags in (("float32", {}), ("int8", {"int8": True, "calib": digits.calib})):
        convertkit.export(digits.model, "tflite", output=tmp_path / name, **flags)
        files.append(tmp_path / name / "model.tflite")
    first, second = (emulator.counted(files, core)[0] for _ in range(2))
    assert first == second
    real, integer = (sum(len(block) // 8 * count for (_, block), count in each.pairs.items()) for each in first)
    assert 50_000 < integer < real / 2 < 1_000_000
