"""What most exports import: an import of this gets it done while a worker imports its framework.

Tasks import each of these themselves, as an export whose results are all in a cache needs none of them.
"""

from __future__ import annotations

import convertkit.findings.measure
import convertkit.report.html
import convertkit.steps.comparing
import convertkit.steps.recording  # noqa: F401
