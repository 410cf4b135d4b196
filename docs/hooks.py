"""What MkDocs is told about this manual: its navigation, and what becomes of links that leave it."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
LINK = re.compile(r"\[([^\]\n]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def _generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", HERE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_config(config: Any) -> Any:
    """Navigation by kind, in the order of the index."""
    generate = _generate()
    config.nav = [{"Home": "index.md"}]
    for kind, (head, _, _) in generate.KINDS.items():
        config.nav.append({head: [{name: path} for path, name in generate.pages(kind).items()]})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository become their paths: the site is read without one."""
    folder = Path(page.file.src_uri).parent

    def inside(match: re.Match[str]) -> str:
        target = os.path.normpath(folder / match[2])
        if not target.startswith(".."):
            return match[0]
        return f"{match[1]} (`{os.path.normpath(Path('docs') / target)}`)"

    return LINK.sub(inside, markdown)
