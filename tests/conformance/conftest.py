"""The modules of this folder are scripts, too: they import each other by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
