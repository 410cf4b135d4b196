"""PyTorch models as sources: archives, exported programs, weights with a factory, factories alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.converters.pytorch.read.sniff import examine
from convertkit.references import imports_of

if TYPE_CHECKING:
    from convertkit.progress import Progress
    from convertkit.recipe import ExportOptions
    from convertkit.stage import Source


_FRAMEWORKS = frozenset(
    {"torch", "torchvision", "torchaudio", "timm", "transformers", "lightning", "pytorch_lightning"}
)
_OTHERS = frozenset({"jax", "flax", "keras", "tensorflow"})


class TorchConverter:
    """Reads every file that PyTorch writes, and modules made by ``pkg.mod:factory``."""

    name = "pytorch"
    summary = "PyTorch (TorchScript, .pt2, state_dict with --model, pkg.mod:factory)"
    extra = "torch"
    reads = frozenset({"--model", "--trust pickle"})

    def sniff(self, source: str) -> str | None:
        found = examine(Path(source))
        if found is not None:
            return found.kind
        return "torch-factory" if imports_of(source, _FRAMEWORKS | _OTHERS) & _FRAMEWORKS else None

    def save_live(self, model: object, example: object, folder: Path) -> Path | None:
        """A file in ``folder`` made of an object of the caller's process; None where it is not torch's."""
        if "torch" not in sys.modules:
            return None
        from convertkit.converters.pytorch.live import saved_live

        return saved_live(model, example, folder)

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        from convertkit.converters.pytorch.read import opening

        progress.status(f"importing torch and loading {Path(source).name}")
        begun = opening.begin(source, options)  # torch is imported there while we import here
        from convertkit.converters.pytorch.source import TorchSource

        return TorchSource.opened(begun, options, workdir, progress)


converter = TorchConverter()
