"""JAX as a source: artifacts of ``jax.export`` and callables that are exported here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.converters.stablehlo.sniff import is_jax_export
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions
from convertkit.references import imports_of

if TYPE_CHECKING:
    from convertkit.stage import Source

_OURS = frozenset({"jax", "flax"})
_OTHERS = frozenset({"torch", "keras", "tensorflow"})


class JaxConverter:
    """Reads serialized ``jax.export`` artifacts and ``pkg.mod:callable`` of modules that import JAX."""

    name = "jax"
    summary = "JAX (jax.export, pkg.mod:callable with --input, Flax)"
    extra = "jax"
    reads = frozenset[str]()

    def sniff(self, source: str) -> str | None:
        """A file with a portable artifact inside a ``jax.export`` flatbuffer, or a JAX callable."""
        if is_jax_export(Path(source)):
            return "jax-export"
        imported = imports_of(source, _OURS | _OTHERS)
        return "jax-callable" if imported & _OURS and not imported & _OTHERS else None

    def save_live(self, model: object, example: object, folder: Path) -> Path | None:
        """A file in ``folder`` made of an object of the caller's process; None where it is not this framework's."""
        from convertkit.converters.jax.live import saved_live

        return saved_live(model, example, folder)

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        from convertkit.converters.jax.source import JaxSource

        kind = "jax-export" if is_jax_export(Path(source)) else "jax-callable"
        return JaxSource(source, kind, options, workdir)


converter = JaxConverter()
