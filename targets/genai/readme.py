"""The README of what ships."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.targets.decoders.generation import Generated
from convertkit.targets.genai.attention import Shape
from convertkit.targets.genai.runtime import genai_name
from convertkit.text import size_text


def readme(shape: Shape, context: int, carried: Sequence[str], generated: Generated, refusal: str) -> str:
    """Markdown."""
    has_tokenizer = "tokenizer.json" in carried and not refusal
    files = "".join(f"| `{name}` | the source's, as it was |\n" for name in carried)
    each = _bytes_a_token(shape)
    missing = f"\nThe tokenizer is not one that GenAI loads: {refusal}. Give it ids of tokens.\n" if refusal else ""
    return f"""# Decoder for ONNX Runtime GenAI

| file | |
|---|---|
| `model.onnx` | {shape.layers} layers of {shape.heads} heads of {shape.head_size}, {shape.groups} of keys and values |
| `genai_config.json` | context {context}, the cache in place |
{files}{missing}
## In a program
```python
{(_TEXT if has_tokenizer else _IDS).format(length=min(_LENGTH, context))}```

`max_length` counts the tokens of prompt and answer. The cache has room for so many from the start:
{each:,} bytes for each, so {size_text(each * context)} for the whole context of {context:,}.

One sequence for each generator: the model takes a batch of 1, so that a batch with padding is refused and not computed
otherwise than its sequences alone.

## Verified with
{genai_name()}: {generated.chosen}. The report tells what else was compared.
"""


def _bytes_a_token(shape: Shape) -> int:
    """Keys and values of every layer, in float32."""
    return 2 * shape.layers * shape.groups * shape.head_size * 4


_LENGTH = 1000
"""Tokens that the program asks for at most."""
_IDS = """import onnxruntime_genai as og

model = og.Model(".")
settings = og.GeneratorParams(model)
settings.set_search_options(max_length={length})
generator = og.Generator(model, settings)
generator.append_tokens([1, 2, 3])
while not generator.is_done():
    generator.generate_next_token()
print(generator.get_sequence(0))
"""
_TEXT = """import onnxruntime_genai as og

model = og.Model(".")
tokenizer = og.Tokenizer(model)
stream = tokenizer.create_stream()
settings = og.GeneratorParams(model)
settings.set_search_options(max_length={length})
generator = og.Generator(model, settings)
generator.append_tokens(tokenizer.encode("Once upon a time"))
while not generator.is_done():
    generator.generate_next_token()
    print(stream.decode(generator.get_next_tokens()[0]), end="", flush=True)
"""
