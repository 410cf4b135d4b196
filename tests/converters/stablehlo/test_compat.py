"""What is relied on of jaxlib's private modules: where a new version fails here, ``compat.py`` has to change."""

from __future__ import annotations

from jaxlib.mlir import ir as mlir
from jaxlib.mlir.dialects import stablehlo

from convertkit.converters.stablehlo import compat
from convertkit.converters.stablehlo.module import PORTABLE

TEXT = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


def test_a_registry_learns_the_dialects_that_are_brought() -> None:
    context, registry = mlir.Context(), mlir.DialectRegistry()
    assert "func" not in registry.names if hasattr(registry, "names") else True
    compat.add_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    assert str(mlir.Module.parse(TEXT, context).body.operations[0].name) == '"main"'


def test_a_module_becomes_a_portable_artifact() -> None:
    context = mlir.Context()
    registry = mlir.DialectRegistry()
    compat.add_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    made = compat.portable(mlir.Module.parse(TEXT, context), stablehlo.get_current_version())
    assert made.startswith(PORTABLE)
    with context:
        assert "stablehlo.negate" in str(stablehlo.deserialize_portable_artifact(context, made))
