"""Results for pipelines: JUnit XML, and the Markdown that a job's page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from convertkit.release.result import CellResult, Release, change_text
from convertkit.text import size_text

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file that GitHub shows on the page of a job."""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not take, section 2.2."""


def junit(release: Release) -> str:
    """A test case for each cell, in a suite for each model."""
    root = ElementTree.Element("testsuites", {"name": _text(release.name)})
    for model in dict.fromkeys(each.model for each in release.cells):
        cells = [each for each in release.cells if each.model == model]
        failed = [each for each in cells if each.required and not each.passed]
        skipped = [each for each in cells if not each.required and not each.passed]
        counts = {"tests": str(len(cells)), "failures": str(len(failed)), "errors": "0", "skipped": str(len(skipped))}
        times = {"time": f"{sum(each.seconds for each in cells if not each.cached):.3f}"}
        suite = ElementTree.SubElement(root, "testsuite", {"name": _text(model), **counts, **times})
        for each in cells:
            _case(suite, each)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, cell: CellResult) -> None:
    seconds = 0.0 if cell.cached else cell.seconds
    named = {"classname": _text(cell.model), "name": f"{cell.target}:{cell.precision}", "time": f"{seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", named)
    if not cell.passed:
        first = _text(cell.error.splitlines()[0] if cell.error else "failed")
        kind = {"type": cell.kind} if cell.required else {}
        told = ElementTree.SubElement(case, "failure" if cell.required else "skipped", {"message": first, **kind})
        told.text = _text(cell.error)
    if cell.verdicts:
        said = "\n".join(each.sentence for each in cell.verdicts)
        ElementTree.SubElement(case, "system-out").text = _text(said)


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def markdown(release: Release) -> str:
    """The release as a table, and why cells have failed."""
    return "\n".join(_lines(release)) + "\n"


def _lines(release: Release) -> Iterator[str]:
    good = sum(each.passed for each in release.cells)
    word = "published" if release.passed else "**withheld**"
    yield f"### {_cell(release.name)}: {word}, {good} of {len(release.cells)} cells passed"
    yield ""
    yield "| cell | result | size | latency | accuracy | against the baseline |"
    yield "|---|---|--:|--:|--:|---|"
    for each in release.cells:
        result = "passed" if each.passed else "**failed**" if each.required else "failed, not required"
        size = "" if each.size_bytes is None else size_text(each.size_bytes)
        latency = "" if each.latency_ms is None else f"{each.latency_ms:.3f} ms"
        accuracy = "" if each.accuracy is None else f"{each.metric} {each.accuracy:.4g}"
        row = (_cell(each.name), result, size, latency, _cell(accuracy), change_text(each))
        yield f"| {' | '.join(row)} |"
    for each in release.cells:
        if each.error:
            yield from ("", f"**{_cell(each.name)}**", "", *(f"    {line}" for line in each.error.splitlines()))


def _cell(text: str) -> str:
    """Text that does not end a table's cell, nor mean anything in Markdown or HTML."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text.replace("\n", " "))
