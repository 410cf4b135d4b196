"""Modules of these tests are importable, here and in the workers, as ``grid``, ``grid_models`` and ``real_models``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
