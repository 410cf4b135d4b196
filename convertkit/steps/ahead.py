"""What takes time and needs no result: done while a worker imports its framework.

Tasks do each of these themselves, as an export whose results are all in a cache needs none of them.
"""

from __future__ import annotations


def get_ready() -> None:
    """Import what most exports run on, and compile the templates of the report."""
    import convertkit.findings.measure
    import convertkit.steps.comparing
    import convertkit.steps.recording  # noqa: F401
    from convertkit.report.html import page

    page()
