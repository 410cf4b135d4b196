"""Whether two artifacts compute the same thing: comparison, verdict, replay and reports.

``compare`` turns pairs of outputs into numbers, ``verdict`` holds those against a tolerance,
``replay`` runs the same feeds through two artifacts.
"""

from convertkit.parity.compare import DiffAccumulator, Histogram, TensorDiff
from convertkit.parity.replay import Recording, compare_recordings, record
from convertkit.parity.verdict import ParityReport, judge

__all__ = [
    "DiffAccumulator",
    "Histogram",
    "ParityReport",
    "Recording",
    "TensorDiff",
    "compare_recordings",
    "judge",
    "record",
]
