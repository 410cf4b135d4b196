"""A full-integer ``.tflite`` file → the same with its operators compiled for a chip's NPU."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.stage import Stage, Tolerance
from convertkit.targets.litert_npu.ai_pack import write_pack
from convertkit.targets.litert_npu.chips import CHIPS, QUALCOMM
from convertkit.targets.litert_npu.compile import compile_for
from convertkit.targets.litert_npu.dispatch import check_tables, check_whole
from convertkit.targets.litert_npu.narrow import narrowed
from convertkit.targets.litert_npu.package import BEFORE, Facts, checked, file_for, write_facts
from convertkit.targets.litert_npu.places import with_places
from convertkit.targets.litert_npu.readme import readme
from convertkit.targets.tflite_micro.file import read_graphs

_SIMULATED = Tolerance(
    "the HTP's integer kernels round each operator on their own; softmax and depth amplify single roundings",
    lsb=3.0,
    snr_db=20.0,
    warn_snr_db=25.0,
    near_ties=0.06,  # docs/measurements/rounding.md: 0.057 of a step
)
_UNTOUCHED = Tolerance(
    "the file that was compiled is the one that was verified; the NPU's program is not executed", relative=0.0
)


def litert_name() -> str:
    """The compiler and its version."""
    try:
        return f"LiteRT {version('ai-edge-litert')}"
    except PackageNotFoundError:  # a nightly build is a package of another name
        return "LiteRT"


def listing(kit: Path) -> str:
    """A digest of the names, sizes and times of a kit's files: another kit in the same folder compiles anew."""
    told = []
    for folder, _, names in os.walk(kit):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):  # the folder that is worked in may lie below, and its files come and go
                facts = path.stat()
                told.append((path.relative_to(kit).as_posix(), facts.st_size, facts.st_mtime_ns))
    return hashlib.sha256(repr(sorted(told)).encode()).hexdigest()


class CompileNpu:
    """Adds the file for one chip to the package; what runs of it then is that file, where a simulator is here."""

    version = "2"
    accepts = frozenset({"tflite", "litert-npu"})
    produces = "litert-npu"

    def __init__(self, soc: str, kits: Sequence[str], *, ai_pack: bool = False, timeout_s: float | None = None) -> None:
        self.name = f"litert-npu {soc}"
        self._soc, self._kits, self._ai_pack, self._timeout_s = soc, tuple(kits), ai_pack, timeout_s
        self._simulated = CHIPS[soc].vendor is QUALCOMM
        self.tolerance = _SIMULATED if self._simulated else _UNTOUCHED
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        kits = [listing(Path(kit)) for kit in self._kits]
        return {"soc": self._soc, "kits": kits, "ai_pack": self._ai_pack, "compiler": litert_name()}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names what the NPU does not take, ``ToolError`` is what LiteRT's compiler says."""
        socs = (*self._earlier(source, workdir), self._soc)
        path, before = workdir / file_for(self._soc), workdir / BEFORE
        with tempfile.TemporaryDirectory(prefix="convertkit-npu-") as place:
            given, made = Path(place) / BEFORE, Path(place) / path.name
            graphs = read_graphs(before.read_bytes())
            content, narrow = self._for_compiler(before.read_bytes())
            given.write_bytes(content)
            compile_for(given, CHIPS[self._soc], made, self._kits, self._timeout_s)
            check_whole(graphs, read_graphs(made.read_bytes()))
            shutil.copyfile(made, path)
        names = (BEFORE, *map(file_for, socs))
        write_facts(Facts(litert_name(), socs, {name: sha256_of(workdir / name) for name in names}), workdir)
        if self._ai_pack:
            write_pack(workdir, {soc: (CHIPS[soc], workdir / file_for(soc)) for soc in socs}, before)
        text = readme(litert_name(), socs, ai_pack=self._ai_pack)
        (workdir / "README.md").write_text(text, encoding="utf-8")
        notes = [] if self._simulated else [f"{self._soc}'s program is not executed here: what ran is {BEFORE}"]
        notes += [f"{self._soc} reads 32 bits of the numbers of {name}" for name in narrow]
        self.diagnosis = {"notes": notes, "npu": sum(len(graph.operators) for graph in graphs)}
        return replace(
            source, path=path, format=self.produces, sha256=sha256_of(path), made_by=f"{self.name} {self.version}"
        )

    def _for_compiler(self, content: bytes) -> tuple[bytes, tuple[str, ...]]:
        """The file as the chip's compiler takes it to mean the same, and the inputs of which it reads 32 bits."""
        if not self._simulated:
            check_tables(read_graphs(content))
            return content, ()
        return narrowed(with_places(content))

    def _earlier(self, source: Artifact, workdir: Path) -> tuple[str, ...]:
        """The chips that the package has a file for, with all its files in ``workdir``."""
        if source.format != self.produces:
            shutil.copyfile(source.path, workdir / BEFORE)
            return ()
        folder = source.path.parent
        facts = checked(folder)
        for name in facts.sha256:
            shutil.copyfile(folder / name, workdir / name)
        return facts.socs


_: type[Stage] = CompileNpu
