"""LiteRT's compiler for NPUs, in a process of its own: a ``.tflite`` file in, one with the NPU's program out.

The plug-ins of the package ai-edge-litert load the vendor's libraries.  What is said where one is lacking, and that an
empty file is left then: docs/measurements/litert-aot.md.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from convertkit.errors import MissingTool, ToolError
from convertkit.targets.litert_npu.chips import HTP, QUALCOMM, Chip, Vendor
from convertkit.targets.litert_npu.dispatch import not_taken
from convertkit.targets.tflite_micro.file import read_graphs
from convertkit.workers.programs import run_to_end

COMPILER, _PLUGINS = Path("tools", "apply_plugin_main"), Path("vendors")
_SECONDS = 1800.0
_LACKING = (
    re.compile(r"(\S+\.so[\w.]*): cannot open"),
    re.compile(r"Failed to load (\w+) shared library"),
)
_NOT_TAKEN = re.compile(r"the HTP Op '(\w+)' in the node|op validator \w+:[\w.]+:(\w+) failed")
"""Qualcomm's name of an operator, where the compiler takes none of the file."""
_SAID = re.compile(r"^.*?(?:\bERROR\b|\[ +ERROR +\]|\bFailed\b).*$", re.MULTILINE)
_STANDS_FOR = {"libQnnLpai.so": "libQnnSystem.so"}
"""For a library that the plug-in is linked to, and calls nothing of."""


def litert_folder() -> Path:
    """Where the package ai-edge-litert is; ``MissingTool`` where it has no compiler for NPUs."""
    found = find_spec("ai_edge_litert")
    places = () if found is None else found.submodule_search_locations or ()
    for place in map(Path, places):
        if (place / COMPILER).is_file():
            return place
    raise MissingTool("this package of ai-edge-litert has no compiler for NPUs; those for Linux on x86-64 have one")


def compile_for(model: Path, chip: Chip, made: Path, kits: Sequence[str], timeout_s: float | None = None) -> None:
    """Compile ``model`` into the file ``made`` beside it, with the libraries in the folders ``kits``.

    ``MissingTool`` names the vendor's library that is in none of them, ``Unsupported`` an operator where the NPU takes
    none of the file, ``ToolError`` is what else the compiler says.
    """
    place = litert_folder()
    plugin = place / _PLUGINS / chip.vendor.folder / "compiler"
    command = [str(place / COMPILER), "--cmd=apply", f"--model={model.name}", f"--o={made.name}", "--err=--"]
    command += [f"--soc_manufacturer={chip.vendor.manufacturer}", f"--soc_model={chip.asked}", f"--libs={plugin}"]
    limit = timeout_s or _SECONDS
    with _libraries(chip.vendor, kits) as folders:
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}
        try:
            ended = run_to_end([*command, *chip.flags], timeout_s=limit, cwd=model.parent, env=environment)
        except subprocess.TimeoutExpired as error:
            told = f"LiteRT's compiler for {chip.model} did not end within {limit:g} s; --timeout gives it more"
            raise ToolError(told) from error
    if ended.returncode or not made.is_file() or not made.stat().st_size:
        said = f"{ended.stdout}\n{ended.stderr}"
        if kind := next(filter(None, (name for pair in _NOT_TAKEN.findall(said) for name in pair)), ""):
            raise not_taken(read_graphs(model.read_bytes()), kind)
        raise refusal(chip, said, ended.returncode)


def refusal(chip: Chip, said: str, code: int) -> MissingTool | ToolError:
    """What the compiler's words and exit code come to: a library that is lacking, or else what it says itself."""
    lacking = sorted({Path(found).name for kind in _LACKING for found in kind.findall(said)})
    if lacking:
        return MissingTool(
            f"LiteRT's compiler for {chip.model} lacks {', '.join(lacking)}, which {chip.vendor.kit} has; "
            "--litert-npu-kit has to be the folder with its libraries for Linux on x86-64"
        )
    nothing = f"it ended with {code}, and says nothing" if code else "it leaves no file, and says nothing"
    told = "; ".join(line.strip() for line in _SAID.findall(said)[:3])[:400] or nothing
    return ToolError(f"LiteRT does not compile the model for {chip.model}: {told}")


@contextmanager
def _libraries(vendor: Vendor, kits: Sequence[str]) -> Iterator[list[Path]]:
    """The folders in which the vendor's libraries are; Qualcomm's are those of onnxruntime-qnn where no kit has any."""
    folders = [Path(kit).absolute() for kit in kits]
    if vendor is not QUALCOMM or any((folder / HTP).is_file() for folder in folders):
        yield folders
        return
    with TemporaryDirectory(prefix="convertkit-npu-") as linked:
        yield [*folders, *_of_onnxruntime(Path(linked))]


def _of_onnxruntime(linked: Path) -> tuple[Path, ...]:
    """``linked``, with all libraries of the package onnxruntime-qnn under the names that the plug-in asks for."""
    found = find_spec("onnxruntime_qnn")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    for library in package.glob("lib*.so"):
        (linked / library.name).symlink_to(library)
    for name, other in _STANDS_FOR.items():
        if not (linked / name).exists():
            (linked / name).symlink_to(package / other)
    return linked, package.with_name(f"{package.name}.libs")
