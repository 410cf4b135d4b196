"""Import coremltools without the frameworks that it looks for.

It imports TensorFlow, PyTorch, scikit-learn and XGBoost where they are installed, which takes a quarter of a
minute, and does without each that is missing.  Only for a worker process: what is blocked here stays blocked.
"""

from __future__ import annotations

import logging
import sys
import warnings
from types import ModuleType
from typing import cast

_BLOCKED = ("torch", "tensorflow", "sklearn", "xgboost", "lightgbm", "libsvm", "keras", "executorch", "torchvision")


def import_coremltools() -> None:
    """Import it, without its warnings about versions of the others; ``ModuleNotFoundError`` where it is missing."""
    blocked = cast("dict[str, ModuleType | None]", sys.modules)  # None marks what must not be imported
    for name in _BLOCKED:
        blocked.setdefault(name, None)
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import coremltools  # noqa: F401 - everything of it comes after this
