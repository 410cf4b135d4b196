"""The README of what ships."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.targets.litert_lm.in_place import Shape
from convertkit.targets.litert_lm.runtime import litert_lm_name
from convertkit.text import size_text


def readme(
    shape: Shape, context: int, rows: Sequence[int], tokenizer: str, generated: str, notes: Sequence[str]
) -> str:
    """Markdown."""
    lengths = ", ".join(map(str, rows))
    said = "".join(f"{note}.\n" for note in notes)
    return f"""# Decoder for LiteRT-LM

| in `model.litertlm` | |
|---|---|
| model | {shape.layers} layers; signatures for prompts of {lengths} tokens and for decoding, one set of weights |
| cache | {context:,} tokens of prompt and answer, {size_text(shape.cache_bytes)}, written in place |
| tokenizer | `{tokenizer}`, the source's, as it was |
| metadata | tokens that begin and end a text, how tokens are chosen, the source's chat template if there is one |
{said}
## In a program
```python
import litert_lm

with litert_lm.Engine("model.litertlm", litert_lm.Backend.CPU()) as engine:
    with engine.create_session(apply_prompt_template=False) as session:
        session.run_prefill(["Once upon a time"])
        for part in session.run_decode_async():
            print("".join(part.texts), end="", flush=True)
```

The Kotlin, Swift and C++ interfaces of LiteRT-LM take the same file. It is for CPUs. Leave `max_num_tokens` as the file
has it: behind {context:,} tokens a longer prompt would be written over the last places of the cache.

## Verified with
{litert_lm_name()}: {generated}. The report tells what else was compared.
"""
