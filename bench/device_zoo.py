"""The zoo in 8 bits on devices, ours and every peer's file: ``device_zoo.py ZOO OUT [--peers DIR] [--write]``.

``--server`` is the machine at hand, ``x86-vnni`` or ``x86-amx``, or ``phone``, whose two cores are emulated
(``arm_costs.py``); each has a part of the page.  Ours as a user makes them: ``--int8``, ``--int8 --accept-loss``, and
the latter for each device; in float32, for the server where a loop is in the file, too.  Every file is held against
ONNX Runtime's outputs of the source on the samples of NAME.eval.npz, estimated by the tables of each device, and
emulated, or timed here in turns with the model's other files, on one thread.  Where a peer's file reads and writes
integers, ours is made with ``--io-dtype int8``, too, and these two are compared.  Each finding is a line of
OUT/rows.jsonl, and what is in there is not done again.  ``--write`` makes docs/measurements/device-zoo.md of it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from arm.cores import cores
from arm.emulator import counted
from arm.schedule import Estimate, Schedule
from page_rows import replace_between
from tflite_zoo import NAMES, measured, peers_of

from convertkit.errors import Unsupported
from convertkit.targets.tflite.costs.estimate import estimates
from convertkit.targets.tflite.inspection import placed_operators

PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "device-zoo.md"
END = "<!-- end -->"
EMULATED = ("arm64-a76", "arm64-i8mm")
DEVICES = {"x86-vnni": ("x86-vnni",), "x86-amx": ("x86-amx",), "phone": EMULATED}
"""Of each part of the page."""
MACHINES = tuple(each for part in DEVICES.values() for each in part)
OURS = {
    "`--int8`": ("--int8",),
    "`--int8 --accept-loss`": ("--int8", "--accept-loss"),
    **{f"the same, `--device {each}`": ("--int8", "--accept-loss", "--device", each) for each in MACHINES},
}
AT_ENDS = ", `--io-dtype int8`"
"""Behind the label of one of ours that reads and writes integers."""
FLOAT = "float32"
FLOATS = (FLOAT, *(f"float32, `--device {each}`" for each in MACHINES))
"""Of ours: a device says how recurrent layers are written."""
AS_GOOD_DB = 0.1
"""How far below ours the median SNR of a peer's file may be that counts as no worse."""
NEARLY = 1.6
"""By the tables, of which files are emulated."""
ALONE = ("gru", "lstm", "bert_small", "gpt_block")
"""Of these each file has a process of its own: what else one holds changes how long small files wait for memory."""
SAYS = "convertkit: "
SHOWN = 6
RANGES = ((0.05, 0.7), (0.7, float("inf")))
"""Of estimated milliseconds."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Book:
    """Lines of JSON by model, file and kind of finding."""

    path: Path

    @classmethod
    def of(cls, out: Path) -> Book:
        """That of a folder, which is made where it is not there."""
        out.mkdir(parents=True, exist_ok=True)
        return cls(out / "rows.jsonl")

    def rows(self) -> dict[tuple[str, str, str], Row]:
        """The last line of each key counts."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return {(row["model"], row["file"], row["kind"]): row for row in map(json.loads, lines)}

    def add(self, model: str, file: str, kind: str, found: Row) -> None:
        with self.path.open("a") as book:
            book.write(json.dumps({"model": model, "file": file, "kind": kind, **found}) + "\n")
        print(model, file, kind, json.dumps(found)[:200], flush=True)


def zoo_arguments(told: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    """What scripts about the zoo are given: where it is, where findings go, which models, and whether to write."""
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", default=",".join(names))
    parser.add_argument("--write", action="store_true")
    return parser


def exported(model: Path, flags: Sequence[str], folder: Path, target: str = "tflite") -> Row:
    """One ``convertkit export``: seconds, and what it said where nothing was delivered."""
    command = [sys.executable, "-m", "convertkit", "export", str(model), "--target", target, *flags, "--force"]
    if {"--int8", "--w8"} & set(flags):
        command += ["--calib", str(model.with_suffix(".calib.npz"))]
    started = time.perf_counter()
    done = subprocess.run([*command, "-o", str(folder)], capture_output=True, text=True, timeout=1800, check=False)
    found: Row = {"exit": done.returncode, "seconds": round(time.perf_counter() - started, 1)}
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if done.returncode:
        return {**found, "said": " | ".join(lines[-3:])[:600]}
    became = [line.removeprefix(target).strip() for line in lines if " became " in line and target in line]
    return {**found, "became": became[0][:200] if became else ""}


def _for_these(devices: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Labels and flags of ours but for those that are made for other devices."""
    return {label: flags for label, flags in OURS.items() if "--device" not in flags or flags[-1] in devices}


def files(
    book: Book, zoo: Path, out: Path, peers: Path | None, name: str, devices: Sequence[str]
) -> Iterator[tuple[str, Path]]:
    """Our files and the peers' of one model, made where they are missing."""
    others = {label: path for label, path in peers_of(name, peers, {"int8", "w8"}).items() if path.suffix == ".tflite"}
    wanted = {FLOAT: (), **_for_these(devices)}
    if any(map(_has_integer_ends, others.values())):
        at_ends = {label: flags for label, flags in _for_these(devices).items() if "--device" in flags}
        wanted |= {label + AT_ENDS: (*flags, "--io-dtype", "int8") for label, flags in at_ends.items()}
    for label, flags in wanted.items():
        folder = out / folder_of(name, label)
        if (name, label, "export") not in book.rows():
            book.add(name, label, "export", exported(zoo / f"{name}.onnx", flags, folder))
        if not book.rows()[name, label, "export"]["exit"]:
            yield label, folder / "model.tflite"
    yield from others.items()


def folder_of(name: str, label: str) -> str:
    """Where one of ours lies."""
    return f"{name}.{re.sub('[^a-z0-9]+', '-', label.lower()).strip('-')}"


def floats(
    book: Book, zoo: Path, out: Path, peers: Path | None, name: str, race_s: float, server: str, ms: str
) -> None:
    """Race our float32 files and the peers', where that is not in the book."""
    if (name, "", "float race") in book.rows():
        return
    found = {FLOAT: out / f"{name}.float32" / "model.tflite"}
    if "WHILE" in {each.told.kind for each in placed_operators(found[FLOAT])}:
        folder, label = out / f"{name}.float32-here", f"float32, `--device {server}`"
        if (name, label, "export") not in book.rows():
            book.add(name, label, "export", exported(zoo / f"{name}.onnx", ("--device", server), folder))
        found[label] = folder / "model.tflite"
    others = peers_of(name, peers, {"float32"})
    found |= {label: path for label, path in others.items() if path.suffix == ".tflite"}
    race = measured("latency", race_s, 1, zoo / f"{name}.eval.npz", *found.values())
    sizes = [path.stat().st_size for path in found.values()]
    told = {"ms": race.get(ms), **{key: race.get(key) for key in ("interval", "error")}}
    book.add(name, "", "float race", {"files": list(found), "bytes": sizes, **told})


def _has_integer_ends(path: Path) -> bool:
    """Whether an input is made of quantized integers."""
    graph = schema.Model.GetRootAs(path.read_bytes(), 0).Subgraphs(0)
    inputs = [graph.Tensors(graph.Inputs(place)) for place in range(graph.InputsLength())]
    return any(each.Type() in (schema.TensorType.INT8, schema.TensorType.UINT8) for each in inputs)


def estimated(path: Path, devices: Sequence[str]) -> Row:
    """Milliseconds by each device's tables; None where they lack an operator."""
    try:
        return {found.device: found.ms for found in estimates(path, devices)}
    except Unsupported as refused:
        return {"refused": str(refused)}


def look_at(book: Book, zoo: Path, name: str, found: dict[str, Path], devices: Sequence[str]) -> None:
    """Everything about the files of one model that is not in the book, but for times."""
    known = book.rows()
    for label, path in found.items():
        if (name, label, "probe") not in known:
            probed = measured("probe", path, zoo / f"{name}.onnx", zoo / f"{name}.eval.npz")
            told = {"bytes": path.stat().st_size, "integer_ends": _has_integer_ends(path)}
            book.add(name, label, "probe", {key: probed.get(key) for key in PROBED} | told)
        if (name, label, "tables") not in known:
            book.add(name, label, "tables", estimated(path, devices))


def race_all(book: Book, zoo: Path, name: str, found: dict[str, Path], race_s: float, ms: str) -> None:
    """In turns those that compute what they should."""
    right = [label for label in found if book.rows()[name, label, "probe"]["ok"]]
    if (name, "", "race") not in book.rows():
        paths = [found[label] for label in right]
        race = measured("latency", race_s, 1, zoo / f"{name}.eval.npz", *paths)
        book.add(name, "", "race", {"files": right, "ms": race.get(ms), "interval": race.get("interval")})


def emulate(book: Book, name: str, found: dict[str, Path], core: str) -> None:
    """What is not in the book; files of the same bytes once."""
    known = book.rows()
    data = {label: path.read_bytes() for label, path in found.items()}
    told = {data[label]: known[name, label, core] for label in found if (name, label, core) in known}
    wanted = [label for label in _near_the_best(book, name, core) if (name, label, core) not in known]
    missing = {data[label]: found[label] for label in wanted if data[label] not in told}
    starts = [[each] for each in missing] if name in ALONE else [[*missing]] if missing else []
    for start in starts:
        counts, _ = counted([missing[each] for each in start], cores()[core])
        times = Schedule(cores()[core]).estimates(counts)
        told |= {each: _told(time) for each, time in zip(start, times, strict=True)}
    for label in wanted:
        book.add(name, label, core, {key: told[data[label]][key] for key in ("ms", "waiting")})


def _near_the_best(book: Book, name: str, core: str) -> list[str]:
    """Ours in float, for that core and for all, and peers' that the tables hold for nearly as fast as their fastest.

    So, too, of those peers' files alone whose SNR is no worse than that of ours.
    """
    known = book.rows()
    told = {
        label: row[core]
        for (model, label, kind), row in known.items()
        if (model, kind) == (name, "tables") and core in row and known[name, label, "probe"]["ok"]
    }
    peers = {label: ms for label, ms in told.items() if not is_ours(label)}
    own = [label for label in _ours_for(core) if label in told]
    least = known[name, own[0], "probe"]["snr_median_db"] - AS_GOOD_DB if own else 0.0
    as_good = {label: ms for label, ms in peers.items() if known[name, label, "probe"]["snr_median_db"] >= least}
    near = [label for group in (peers, as_good) for label, ms in group.items() if ms <= NEARLY * min(group.values())]
    return [*(label for label in (FLOAT,) if label in told), *own, *dict.fromkeys(near)]


def _told(estimate: Estimate) -> Row:
    """Milliseconds, and the share of them that waits for memory."""
    cycles = estimate.cycles + estimate.waiting
    return {"ms": estimate.nanoseconds / 1e6, "waiting": round(estimate.waiting / cycles, 3)}


def _ours_for(device: str) -> tuple[str, ...]:
    """Labels of ours that are made for it, the best first."""
    own = f"the same, `--device {device}`"
    return own, own + AT_ENDS, "`--int8 --accept-loss`", "`--int8`"


def is_ours(label: str) -> bool:
    return label.removesuffix(AT_ENDS) in OURS or label in FLOATS


PROBED = ("ok", "snr_db", "snr_median_db", "snr_p5_db", "error")


def head(devices: Sequence[str]) -> str:
    """Of the table."""
    named = ", ".join(f"`{each}`" for each in devices)
    columns = ["model", "file", "KB", "SNR dB: all, median, 5th percentile"]
    columns += [f"by the tables: {named} ms", f"emulated: {named} ms"] if set(devices) <= set(EMULATED) else [
        f"{named} ms", f"by the tables: {named} ms"
    ]  # fmt: skip
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def lines(
    known: dict[tuple[str, str, str], Row], name: str, source_bytes: int, devices: Sequence[str]
) -> Iterator[str]:
    """A row of the page for each file of one model."""
    race = known.get((name, "", "race"), {})
    timed = dict(zip(race.get("files", []), race.get("ms") or [], strict=False))
    for (model, label, kind), probe in known.items():
        if model != name or kind != "probe" or not probe["ok"]:
            continue
        snr = "–" if label == FLOAT else ", ".join(f"{probe[key]:.1f}" for key in PROBED[1:4])
        tables = known.get((name, label, "tables"), {})
        told = ", ".join(f"{tables[device]:.3g}" for device in devices) if devices[0] in tables else "–"
        slow = [known.get((name, label, core), {}).get("ms") for core in devices]
        emulated = ", ".join(f"{each:.3g}" if each else "–" for each in slow)
        size = f"{probe['bytes'] / 1000:,.0f} ({100 * probe['bytes'] / source_bytes:.1f} %)"
        here = f"{timed[label]:.3g}" if label in timed else "–"
        times = f"{told} | {emulated}" if set(devices) <= set(EMULATED) else f"{here} | {told}"
        yield f"| {name} | {label} | {size} | {snr} | {times} |"
    for (model, label, kind), export in known.items():
        if model == name and kind == "export" and export["exit"]:
            yield f"| {name} | {label} | not delivered: {_reason(export)} | | | |"


def _reason(export: Row) -> str:
    """The sentence that names it."""
    lines = export["said"].split(" | ")
    return next((line for line in lines if line.startswith(SAYS)), lines[0]).removeprefix(SAYS)


def ratios(known: dict[tuple[str, str, str], Row], device: str, *, as_good: bool) -> dict[str, tuple[float, str]]:
    """By model: our file's time over that of the fastest peer, and whose files these are.

    With ``as_good`` over that of the fastest whose SNR is no worse.  A file with integers as inputs is compared with
    one of ours that has them.
    """
    found = {}
    for name in dict.fromkeys(model for model, *_ in known):
        times = _times(known, name, device)
        pairs = []
        for peer in (each for each in times if not is_ours(each)):
            own = _counterpart(known, name, peer, times, device)
            if own is None:
                continue
            better = known[name, peer, "probe"]["snr_median_db"] - known[name, own, "probe"]["snr_median_db"]
            if not as_good or better >= -AS_GOOD_DB:
                pairs.append((times[own] / times[peer], f"{own} beside {peer}, whose median SNR is {better:+.1f} dB"))
        if pairs:
            found[name] = max(pairs)
    return found


def _counterpart(
    known: dict[tuple[str, str, str], Row], name: str, peer: str, times: dict[str, float], device: str
) -> str | None:
    """Ours that is compared with the peer's file."""
    ends = AT_ENDS if known[name, peer, "probe"].get("integer_ends") else ""
    labels = [label for label in _ours_for(device) if not label.endswith(AT_ENDS)]
    return next((label + each for label in labels for each in (ends, "") if label + each in times), None)


def held_against_clock(known: dict[tuple[str, str, str], Row], device: str, *, ours: bool) -> str:
    """How far the tables of the machine at hand are off what was measured on it, in a sentence."""
    whose = "our files" if ours else "the peers' files"
    pairs = [
        (f"{name}, {label}", known[name, label, "tables"][device], ms)
        for name in dict.fromkeys(model for model, *_ in known)
        for label, ms in _times(known, name, device).items()
        if ours is is_ours(label) and device in known.get((name, label, "tables"), {})
    ]
    told, clock = (np.array(column, float) for column in list(zip(*pairs, strict=True))[1:])
    errors = np.maximum(told / clock, clock / told) - 1
    ranks = [np.argsort(np.argsort(column)) for column in (told, clock)]
    sizes = "".join(_within(told, errors, *each) for each in RANGES) if ours else ""
    worst = ", ".join(f"{pairs[place][0]} {told[place] / clock[place]:.2f} ×" for place in np.argsort(-errors)[:SHOWN])
    return (
        f"The tables of `{device}` beside the clock, {len(pairs)} of {whose}: rank correlation "
        f"{np.corrcoef(*ranks)[0, 1]:.3f}, median error {100 * np.median(errors):.0f} %, worst "
        f"{100 * errors.max():.0f} % (estimated over measured: {worst}).{sizes}"
    )


def _within(told: np.ndarray, errors: np.ndarray, first: float, last: float) -> str:
    """Of estimates of such times; what ``targets/tflite/devices.py`` tells users."""
    found = errors[(told >= first) & (told < last)]
    which = f"from {first:g} to {last:g} ms" if np.isfinite(last) else f"above {first:g} ms"
    return (
        f"\nOf these {len(found)} are estimated {which}: median error {100 * np.median(found):.0f} %, "
        f"worst {100 * found.max():.0f} %."
    )


def _times(known: dict[tuple[str, str, str], Row], name: str, device: str) -> dict[str, float]:
    if device in EMULATED:
        return {label: row["ms"] for (model, label, kind), row in known.items() if (model, kind) == (name, device)}
    race = known.get((name, "", "race"), {})
    return dict(zip(race.get("files", []), race.get("ms") or [], strict=False))


def float_lines(known: dict[tuple[str, str, str], Row], server: str) -> list[str]:
    """Our float32 files over the fastest of the peers', and how large each is."""
    found = []
    for (name, _, kind), race in known.items():
        if kind != "float race" or not race.get("ms"):
            continue
        rows = list(zip(race["files"], race["ms"], race["bytes"], strict=True))
        peer = min((row for row in rows if not is_ours(row[0])), key=lambda row: row[1], default=None)
        for label, ms, size in (row for row in rows if peer is not None and is_ours(row[0])):
            assert peer is not None
            beside = (
                f"{ms:.3g} ms, {size / 1000:,.0f} KB beside {peer[1]:.3g} ms, {peer[2] / 1000:,.0f} KB of {peer[0]}"
            )
            found.append(f"- {name} {ms / peer[1]:.2f}: {label}, {beside}")
    return (
        ["", f"Float32 over the fastest float32 file of a peer on `{server}`, measured:", "", *found] if found else []
    )


def begin(server: str) -> str:
    """What its part of the page begins with."""
    return "<!-- bench/device_zoo.py -->" if server == "x86-vnni" else f"<!-- bench/device_zoo.py --server {server} -->"


def section(book: Book, zoo: Path, server: str) -> str:
    """The tables."""
    devices = DEVICES[server]
    known = book.rows()
    made = [begin(server), head(devices)]
    for name in dict.fromkeys(model for model, *_ in known):
        made += lines(known, name, (zoo / f"{name}.onnx").stat().st_size, devices)
    for device in devices:
        for as_good in (True, False):
            made += _summed(ratios(known, device, as_good=as_good), device, as_good)
    made += float_lines(known, server)
    for device in set(devices) - set(EMULATED):
        made += [text for ours in (True, False) for text in ("", held_against_clock(known, device, ours=ours))]
    return "\n".join((*made, END))


def _summed(found: dict[str, tuple[float, str]], device: str, as_good: bool) -> list[str]:
    """A line for each model."""
    if not found:
        return []
    mean = float(np.exp(np.mean([np.log(ratio) for ratio, _ in found.values()])))
    how = "emulated" if device in EMULATED else "measured"
    which = "with no worse SNR" if as_good else "at all"
    title = f"Ours over the fastest 8-bit file of a peer {which} on `{device}`, {how}; geometric mean {mean:.2f}:"
    return ["", title, "", *(f"- {name} {ratio:.2f}: {told}" for name, (ratio, told) in found.items())]


def main() -> None:
    """Make, measure and write."""
    parser = zoo_arguments(__doc__, NAMES)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--server", choices=tuple(DEVICES), default="x86-vnni", help="the machine at hand, or phone")
    parser.add_argument("--least", action="store_true", help="of all turns, not their median: others use the machine")
    args = parser.parse_args()
    book, devices, ms = Book.of(args.out), DEVICES[args.server], "best_ms" if args.least else "ms"
    if args.write:
        replace_between(PAGE, section(book, args.zoo, args.server), begin(args.server), END)
        return
    for name in args.models.split(","):
        found = dict(files(book, args.zoo, args.out, args.peers, name, devices))
        look_at(book, args.zoo, name, found, devices)
        if args.server == "phone":
            for core in EMULATED:
                emulate(book, name, found, core)
            continue
        race_all(book, args.zoo, name, found, args.seconds, ms)
        floats(book, args.zoo, args.out, args.peers, name, args.seconds, args.server, ms)


if __name__ == "__main__":
    main()
