"""The README of what ships."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.targets.genai.attention import Shape
from convertkit.targets.genai.generation import Generated
from convertkit.targets.genai.runtime import genai_name


def readme(shape: Shape, context: int, carried: Sequence[str], generated: Generated, refusal: str) -> str:
    """Markdown."""
    has_tokenizer = "tokenizer.json" in carried and not refusal
    files = "".join(f"| `{name}` | the source's, as it was |\n" for name in carried)
    missing = f"\nThe tokenizer is not one that GenAI loads: {refusal}. Give it ids of tokens.\n" if refusal else ""
    return f"""# Decoder for ONNX Runtime GenAI

| file | |
|---|---|
| `model.onnx` | {shape.layers} layers of {shape.heads} heads of {shape.head_size}, {shape.groups} of keys and values |
| `genai_config.json` | context {context}, the cache in place |
{files}{missing}
## In a program
```python
{_TEXT if has_tokenizer else _IDS}```

One sequence for each generator: the model takes a batch of 1, so that a batch with padding is refused and not computed
otherwise than its sequences alone.

## Verified with
{genai_name()}: {generated.chosen}. The report tells what else was compared.
"""


_IDS = """import onnxruntime_genai as og

model = og.Model(".")
generator = og.Generator(model, og.GeneratorParams(model))
generator.append_tokens([1, 2, 3])
while not generator.is_done():
    generator.generate_next_token()
print(generator.get_sequence(0))
"""
_TEXT = """import onnxruntime_genai as og

model = og.Model(".")
tokenizer = og.Tokenizer(model)
stream = tokenizer.create_stream()
generator = og.Generator(model, og.GeneratorParams(model))
generator.append_tokens(tokenizer.encode("Once upon a time"))
while not generator.is_done():
    generator.generate_next_token()
    print(stream.decode(generator.get_next_tokens()[0]), end="", flush=True)
"""
