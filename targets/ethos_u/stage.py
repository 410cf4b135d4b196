"""A full-integer ``.tflite`` file becomes one for an Ethos-U, by Vela."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.stage import Stage, Tolerance
from convertkit.targets.ethos_u.devices import Device
from convertkit.targets.ethos_u.package import AFTER, BEFORE, Facts, write_facts
from convertkit.targets.ethos_u.placement import NPU, check_placement
from convertkit.targets.ethos_u.readme import readme
from convertkit.targets.ethos_u.vela import Compiled, compile_for, vela_name
from convertkit.targets.tflite_micro.c_array import model_source
from convertkit.targets.tflite_micro.file import FileGraph, read_graphs
from convertkit.targets.tflite_micro.headers import NAMESPACE, interface_header
from convertkit.targets.tflite_micro.placed import Named, on_the_cpu, on_the_npu
from convertkit.workers.process import Worker

_UNREAD = "ethos-u85-"
NOT_EXECUTED = "the NPU part is not executed here: what ran is model.tflite, which Vela compiled"
_UNTOUCHED = Tolerance(
    "the file that Vela compiled is the one that was verified; the NPU's is not executed", relative=0.0
)


class CompileVela:
    """Writes the package; what runs of it here is the file before Vela."""

    name = "ethos-u"
    version = "1"
    accepts = frozenset({"tflite"})
    produces = "ethos-u"
    tolerance = _UNTOUCHED

    def __init__(self, device: Device, allowed: Sequence[str], timeout_s: float | None = None) -> None:
        self._device, self._allowed, self._timeout_s = device, tuple(allowed), timeout_s
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        return {**asdict(self._device), "allow_cpu": list(self._allowed), "compiler": vela_name()}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names what Vela leaves to the CPU, ``ToolError`` is what Vela itself says."""
        path = workdir / AFTER
        shutil.copyfile(source.path, workdir / BEFORE)
        with tempfile.TemporaryDirectory(prefix="convertkit-vela-") as place:
            compiled = compile_for(workdir / BEFORE, self._device, Path(place), self._timeout_s)
            before, after = (read_graphs(file.read_bytes()) for file in (source.path, compiled.path))
            check_placement(before, after, self._allowed)
            shutil.copyfile(compiled.path, path)
            weights = self._same_weights(workdir / BEFORE, path, on_the_npu(before, on_the_cpu(after, NPU)))
        facts = self._facts(compiled, before, after, workdir)
        write_facts(facts, workdir)
        content = path.read_bytes()
        (workdir / "model.cc").write_text(model_source(content, NAMESPACE), encoding="utf-8")
        (workdir / "model.h").write_text(interface_header(after[0]), encoding="utf-8")
        (workdir / "README.md").write_text(readme(facts, len(content)), encoding="utf-8")
        self.diagnosis = {
            "notes": [NOT_EXECUTED, *_placed(facts)],
            "weights_compared": weights,
            "npu": [{"operator": kind, "name": name} for kind, name in facts.npu],
            "cpu": [{"operator": kind, "name": name} for kind, name in facts.cpu],
            "npu_layers": [asdict(layer) for layer in compiled.layers],
        }
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)

    def _same_weights(self, before: Path, after: Path, npu: Named) -> int | None:
        """How many weights were decoded and found again; None for an Ethos-U85, whose format nothing here reads."""
        if self._device.accelerator.startswith(_UNREAD):
            return None
        params = {"before": str(before), "after": str(after), "on_npu": [name for _, name in npu]}
        with Worker("convertkit.targets.ethos_u.service:WeightService", timeout_s=self._timeout_s) as worker:
            return int(worker.call("check", params).value)

    def _facts(
        self, compiled: Compiled, before: Sequence[FileGraph], after: Sequence[FileGraph], folder: Path
    ) -> Facts:
        cpu = on_the_cpu(after, NPU)
        return Facts(
            compiler=vela_name(),
            **asdict(self._device),
            cycles=compiled.cycles,
            ms=compiled.ms,
            memory_bytes=compiled.memory_bytes,
            npu=on_the_npu(before, cpu),
            cpu=cpu,
            sha256={name: sha256_of(folder / name) for name in (BEFORE, AFTER)},
        )


def _placed(facts: Facts) -> list[str]:
    """A sentence about what the CPU computes, where it computes anything."""
    cpu = ", ".join(f"{name} ({kind})" for kind, name in facts.cpu)
    return [f"the CPU computes {len(facts.cpu)} operators: {cpu}"] if cpu else []


_: type[Stage] = CompileVela
